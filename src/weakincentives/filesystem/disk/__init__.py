"""Files in a real directory: confined to it, written atomically, undone by a journal."""

from .filesystem import HostFilesystem

__all__ = ["HostFilesystem"]
