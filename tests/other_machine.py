"""A process that has nothing of what only Linux has, and what a Mac has instead: `pytest -p tests.other_machine ...`.

Missing are `openat2`, `renameat2`, `statx`, `name_to_handle_at`, `prctl` and every other call that is asked for by
number, `/proc`, `O_PATH`, `O_TMPFILE`, extended attributes, copying in the kernel, and locks that belong to a
descriptor. `unlink` of a directory is not permitted (Linux: it is a directory), and there is `F_FULLFSYNC`. It must be
loaded before the package is, and is loaded by the programs that are started from here, too.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_FIRST = ("asyncio", "ctypes.util", "multiprocessing.util", "socket", "subprocess", "uuid")
"""What looks at `sys.platform` for things that are compiled in."""

_LINUX_ONLY = {
    os: (
        "O_PATH O_TMPFILE copy_file_range listxattr getxattr setxattr removexattr fdatasync posix_fadvise "
        "posix_fallocate memfd_create eventfd pidfd_open pipe2 sched_getaffinity sched_setaffinity splice getrandom"
    ),
    fcntl: "F_OFD_SETLK F_OFD_SETLKW F_OFD_GETLK F_SETPIPE_SZ F_ADD_SEALS F_NOTIFY",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal",
}
_LINUX_LIBRARY = {"syscall", "openat2", "renameat2", "statx", "name_to_handle_at", "prctl", "inotify_init1", "unshare"}

full_syncs: list[int] = []
"""The descriptors that were written to the disk by the way of a Mac."""

_FULL_SYNC = 51


class _Library:
    """The C library, of which our own code finds only what others have, too. Tests may attack with all of it."""

    def __init__(self, library: object) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name in _LINUX_LIBRARY:
            raise AttributeError(name)
        if name == "sysctlbyname":
            return _sysctl
        return getattr(self._library, name)


BOOT = "6F1D7B5E-0000-4000-8000-000000000001"


def _sysctl(name: bytes, answer: Any, size: Any, _new: object, _new_size: object) -> int:
    """What a Mac has in the place of /proc/sys."""
    if name != b"kern.bootsessionuuid" or size._obj.value < len(BOOT) + 1:
        return -1
    answer.value = BOOT.encode()
    return 0


def _is_ours(depth: int) -> bool:
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith("weakincentives")


def _install() -> None:
    if any(name.split(".")[0] == "weakincentives" for name in sys.modules):
        raise RuntimeError("tests.other_machine must be loaded before the package is.")
    sysconfig.get_config_vars()
    for name in _FIRST:
        import_module(name)
    for module, names in _LINUX_ONLY.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    load, unlink, fsync = ctypes.CDLL, os.unlink, os.fsync
    control: Callable[..., Any] = fcntl.fcntl

    def library(name: str | None, *args: Any, **options: Any) -> Any:
        found: object = load(name, *args, **options)
        return _Library(found) if _is_ours(2) else found

    def unlinked(path: Any, *, dir_fd: int | None = None) -> None:
        try:
            unlink(path, dir_fd=dir_fd)
        except IsADirectoryError as error:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), error.filename) from None

    def controlled(fd: Any, command: int, *args: Any) -> Any:
        if command != _FULL_SYNC:
            return control(fd, command, *args)
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        full_syncs.append(fd)
        fsync(fd)
        return 0

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"open", "os.listdir", "os.scandir"} or not isinstance(arguments[0], str | bytes):
            return
        if os.fsdecode(arguments[0]).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])

    replaced: list[tuple[Any, str, Any]] = [
        (ctypes, "CDLL", library),
        (os, "unlink", unlinked),
        (os, "remove", unlinked),
        (fcntl, "fcntl", controlled),
        (fcntl, "F_FULLFSYNC", _FULL_SYNC),
        (tempfile, "_O_TMPFILE_WORKS", False),
        (sys, "platform", "darwin"),
    ]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    sys.addaudithook(refuse)
    here = Path(__file__).parent
    paths = [str(here / "other_machine_site"), str(here.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


_install()
