"""Files and directories that only their owner can read. What is there already keeps the rights it has."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final


def make_private_directory(path: Path) -> None:
    """Make a directory with mode 0700, and those above it that are missing likewise."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:  # another process was faster, or it is a file
            if not directory.is_dir():
                raise


def create_private(path: Path) -> IO[bytes]:
    """A new file with mode 0600, opened for writing; the caller closes it.

    `FileExistsError` when there is something at the path, a symlink included. Give it a name that cannot be guessed in
    a directory that others can write to.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def ensure_private(path: Path) -> None:
    """Make an empty file with mode 0600 unless there is a file; a symlink is followed. It is never opened if it exists.

    Closing any descriptor of a file drops the locks that SQLite has on it in this process, so the file must not be
    opened here once another thread can have found it.
    """
    target = os.path.realpath(path)
    with suppress(FileExistsError):
        try:
            os.mknod(target, 0o600)
        except PermissionError:  # macOS lets only root do so; or the directory cannot be written, which is said again
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def sync_to_disk(fd: int) -> None:
    """Wait until what was written to an open file or directory would survive a power cut.

    On a Mac `fsync` only hands it to the drive; `F_FULLFSYNC` waits for that, too, where the filesystem can.
    """
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
        else:
            return
    os.fsync(fd)


_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NOT_THERE: Final = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}

__all__ = ["create_private", "ensure_private", "make_private_directory", "sync_to_disk"]
