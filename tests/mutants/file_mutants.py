"""Seeded faults in copies, in what a model knows of files, and in what is left of closed roots."""
# ruff: noqa: E501 - the text of the files as it stands

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COPIES = ("tests/filesystem/test_copies.py",)
_HOST = ("tests/filesystem/test_host.py",)
_MEMORY = ("tests/filesystem/test_memory.py",)
_KNOWN = ("tests/prompt/test_policies_read_before_write.py",)
_OVERRIDES = ("tests/prompt/test_overrides.py",)
_LEFT = ("tests/filesystem/test_private_state.py",)
_TOOLS = ("tests/contrib/test_vfs_tools.py",)
_ELSEWHERE = ("tests/filesystem/test_other_machines.py",)

MUTANTS = [
    Mutant(
        "a copy of a read-only file is read-only",
        "filesystem/disk/staging.py",
        "self._sys.fchmod(fd, mode | stat.S_IWUSR)",
        "self._sys.fchmod(fd, mode)",
        _COPIES,
    ),
    Mutant(
        "a copied directory has the time of the copying",
        "filesystem/disk/staging.py",
        '            self._sys.utime(".", (info.st_atime_ns, info.st_mtime_ns), dir_fd=fd)\n',
        "",
        _COPIES,
    ),
    Mutant(
        "a copy that failed leaves its parts in the vault",
        "filesystem/disk/staging.py",
        "            for staged in self._staged.values():\n                self._disk.state.purge(staged)\n",
        "            for _staged in self._staged.values():\n                pass\n",
        _COPIES,
    ),
    Mutant(
        "a path longer than the system takes ends a copy",
        "filesystem/disk/confine.py",
        "if error.errno == errno.ENAMETOOLONG and len(path) > MAX_PART_BYTES",
        "if False and len(path) > MAX_PART_BYTES",
        _COPIES,
    ),
    Mutant(
        "a missing source is reported as the target",
        "filesystem/disk/filesystem.py",
        "        writing.about = source\n        parent, name",
        "        parent, name",
        _HOST,
    ),
    Mutant(
        "a sub view's errors name paths of the whole",
        "filesystem/views.py",
        "            error.filename = relative(error.filename, self._base)",
        "            pass",
        _MEMORY,
    ),
    Mutant(
        "what is below a file is asked for on the disk",
        "filesystem/disk/reading.py",
        "            except NotADirectoryError:  # below a file: a write would say so",
        "            except AssertionError:",
        _HOST,
    ),
    Mutant(
        "a copy of a file that changed counts as read",
        "prompt/read_before_write.py",
        "            prints = with_entry(prints, path, read)",
        "            prints = with_entry(prints, path, _print(fs, path) if fs is not None else read)",
        _KNOWN,
    ),
    Mutant(
        "only the first level of a copied tree is known",
        "prompt/read_before_write.py",
        "for path in [target] if fs is None else walk_files(FilesystemTree(fs), target):",
        "for path in [target]:",
        _KNOWN,
    ),
    Mutant(
        "a policy is not asked about its tools",
        "prompt/tree.py",
        "            as_policy(policy).check_tool(bound.tool)",
        "            pass",
        _KNOWN,
    ),
    Mutant(
        "seeding replaces edits that do not fit",
        "prompt/overrides.py",
        "if found is None else without_unedited(found)",
        "if found is None else usable(descriptor, found)",
        _OVERRIDES,
    ),
    Mutant(
        "a copy is suggested where all is read-only",
        "contrib/files/writing.py",
        "        if fs.is_readonly(path) and not fs.is_readonly(ROOT):  # else",
        "        if fs.is_readonly(path):  # else",
        _TOOLS,
    ),
    Mutant(
        "the copy of a watched root stays when it is closed",
        "filesystem/disk/locations.py",
        "if not state.lasting or not state.watched():",
        "if not state.lasting:",
        _LEFT,
    ),
    Mutant(
        "what a killed process left stays",
        "filesystem/disk/kept_state.py",
        "            drop_all(entry)\n",
        "            pass\n",
        _LEFT,
    ),
    Mutant(
        "an open transaction is thrown away with what is left over",
        "filesystem/disk/kept_state.py",
        "    if entry.vault < 0 or entry.is_open() or entry.rejected():\n        return\n"
        "    with entry.locked():  # raises when a process is at work there\n"
        "        if not entry.is_open() and not entry.rejected():\n",
        "    with entry.locked():\n        if True:\n",
        _LEFT,
    ),
    Mutant(
        "a directory that may not be unlinked stays",
        "filesystem/disk/confine.py",
        "        if error.errno == errno.EPERM and stat.S_ISDIR(sys.stat(name, dir_fd=at).st_mode):\n            return False\n",
        "",
        _ELSEWHERE,
    ),
    Mutant(
        "a Mac's drive is not waited for",
        "private_files.py",
        "    if _FULL_SYNC is not None:",
        "    if False:",
        _ELSEWHERE,
    ),
    Mutant(
        "a mode is set by way of /proc everywhere",
        "filesystem/disk/syscalls.py",
        '    if not hasattr(os, "O_PATH"):\n        return False\n    try:\n        os.close(os.open("/proc/self/fd", DIRECTORY))\n'
        "    except OSError:\n        return False\n    return True",
        "    return True",
        _ELSEWHERE,
    ),
    Mutant(
        "without openat2 symlinks on the way are followed",
        "filesystem/disk/syscalls.py",
        "return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=dir_fd)",
        "return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)",
        _ELSEWHERE,
    ),
]
