"""Removing what is ours in a vault: files and whole trees, however they are nested and protected."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from .syscalls import DIRECTORY, Syscalls


def _random_name(what: str) -> str:
    return f"{what}-{os.urandom(6).hex()}-0"


def remove(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str] = _random_name) -> None:
    """Remove the name from the directory `at`; what is not there is removed.

    Without recursion, as others may have nested the tree very deeply: directories come up to `at` first, under the
    names that `new_name` makes.
    """
    pending = [name]
    while pending:
        name = pending.pop()
        try:
            removed = _unlinked(sys, name, at)
        except FileNotFoundError:
            continue
        if not removed:
            pending += _remove_directory(sys, at, name, new_name)


def _remove_directory(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str]) -> list[str]:
    """Empty and remove it; the new names of the directories that were in it."""
    raised: list[str] = []
    try:
        _empty(sys, at, name, new_name, raised)
    except PermissionError:
        sys.chmod(name, 0o700, dir_fd=at)  # ours alone by now, and it was write-protected
        _empty(sys, at, name, new_name, raised)
    sys.rmdir(name, dir_fd=at)
    return raised


def _empty(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str], raised: list[str]) -> None:
    fd = sys.open(name, DIRECTORY, dir_fd=at)
    try:
        for child in sys.names(fd):
            if not _unlinked(sys, child, fd):
                raised += [_raise(sys, at, child, fd, new_name("trash"))]
    finally:
        sys.close(fd)


def _unlinked(sys: Syscalls, name: str, at: int) -> bool:
    """Remove the name, unless it is a directory: False. Linux says so, others call it not permitted."""
    try:
        sys.unlink(name, dir_fd=at)
    except IsADirectoryError:
        return False
    except PermissionError as error:
        if error.errno == errno.EPERM and stat.S_ISDIR(sys.stat(name, dir_fd=at).st_mode):
            return False
        raise
    return True


def _raise(sys: Syscalls, at: int, child: str, fd: int, trash: str) -> str:
    try:
        sys.rename(child, trash, source_fd=fd, target_fd=at)
    except PermissionError:
        sys.chmod(child, 0o700, dir_fd=fd)
        sys.rename(child, trash, source_fd=fd, target_fd=at)
    return trash


__all__ = ["remove"]
