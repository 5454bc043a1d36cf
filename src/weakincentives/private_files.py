"""Files and directories that only their owner can read. What is there already keeps the rights it has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO


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


__all__ = ["create_private", "ensure_private", "make_private_directory"]
