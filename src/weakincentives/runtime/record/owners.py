"""Which runs of a file belong to a living process: locks on the bytes of a file, which end with their process.

The system drops them however a process ends, so that a run whose process was killed can be taken at once. They are
POSIX locks, because those are not inherited: a child that was forked while a run is under way does not keep it. They
have two pitfalls. They are dropped when a process closes any descriptor of the file, so there is one for each file and
process; and a process does not see its own, so what is taken here is kept in a set as well.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import final

from ...errors import RecordError
from ...interrupts import Lock
from ...private_files import ensure_private

_IS_BSD = sys.platform == "darwin" or "bsd" in sys.platform
_FLOCK = struct.Struct("qqihh" if _IS_BSD else "hhqqi")


def _flock(kind: int, start: int) -> bytes:
    if _IS_BSD:
        return _FLOCK.pack(start, 1, 0, kind, os.SEEK_SET)
    return _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0)


def _kind_of(flock: bytes) -> int:
    return _FLOCK.unpack_from(flock)[3 if _IS_BSD else 0]


class _OwnersFile:
    """The one descriptor that this process has of a file, and the numbers that it has taken there."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.taken: set[int] = set()


_lock = Lock()
_files: dict[tuple[int, int], _OwnersFile] = {}
"""By device and inode. They stay open as long as the process: closing one would drop the locks of all its runs."""


def _after_fork() -> None:
    """The locks are the parent's; the child may close its copies of the descriptors without harm to them."""
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = Lock()
    for file in _files.values():
        os.close(file.fd)
    _files.clear()


os.register_at_fork(after_in_child=_after_fork)


@final
class RunOwners:
    """Takes and drops runs by their numbers, for this process. `close` drops those that were taken through it."""

    __slots__ = ("_path", "_taken")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: set[tuple[int, int]] = set()  # with the process: a child has taken nothing

    def take(self, number: int) -> bool:
        """Make the run this process's; False when it is taken already, here or by another process."""
        with _lock:
            file = self._file()
            if number in file.taken:
                return False
            try:
                fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except BlockingIOError:
                return False
            except PermissionError:  # what some systems say instead
                return False
            file.taken.add(number)
            self._taken.add((os.getpid(), number))
            return True

    def drop(self, number: int) -> None:
        """Let others have the run; nothing happens when it is not this process's."""
        with _lock:
            file = self._file()
            self._taken.discard((os.getpid(), number))
            if number in file.taken:
                file.taken.discard(number)
                fcntl.lockf(file.fd, fcntl.LOCK_UN, 1, number)

    def is_taken(self, number: int) -> bool:
        """Whether a living process has the run."""
        with _lock:
            file = self._file()
            if number in file.taken:
                return True
            return _kind_of(fcntl.fcntl(file.fd, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, number))) != fcntl.F_UNLCK

    def close(self) -> None:
        """Drop every run that was taken through this object."""
        for pid, number in tuple(self._taken):
            if pid == os.getpid():
                self.drop(number)
        self._taken.clear()

    def _file(self) -> _OwnersFile:
        try:
            ensure_private(self._path)
            found = self._path.stat()
            file = _files.get((found.st_dev, found.st_ino))
            if file is None:
                file = _OwnersFile(os.open(self._path, os.O_RDWR | os.O_CLOEXEC))
                _files[found.st_dev, found.st_ino] = file
        except OSError as error:
            raise RecordError(f"{self._path}, which says who has a run, cannot be opened: {error.strerror}.") from error
        return file


__all__ = ["RunOwners"]
