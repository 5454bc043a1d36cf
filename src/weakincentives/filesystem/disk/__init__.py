"""Files in a real directory: confined to it, written atomically, undone by a journal.

Nothing is imported here: most programs never use it. `HostFilesystem` is in `weakincentives.filesystem`.
"""
