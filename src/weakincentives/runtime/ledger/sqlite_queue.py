"""Who waits for a SQLite file, so that whoever just wrote lets others go first.

A waiting process shares an advisory lock on the file's directory; a writer that could not have that lock for itself
knows that somebody is waiting. Nobody ever waits for this lock: it only tells, and the system drops it when a process
dies. It is a lock on a byte (`fcntl`), which belongs to the open descriptor: `flock` on the directory is that of a
`HostFilesystem` whose root it is. Systems other than Linux have no such locks for directories; there nobody is told.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import final
from weakref import ref

_WAY = (0.0006, 0.0012)
"""Seconds that are given to others; they try several times within that."""


@final
class Queue:
    """One process's place; used under the ledger's lock."""

    __slots__ = ("__weakref__", "_directory", "_fd", "_waiting", "_yield_until")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd: int | None = None
        self._waiting = False
        self._yield_until = 0.0

    def join(self) -> None:
        """Say that this process waits."""
        if not self._waiting:
            self._waiting = True
            with suppress(OSError):
                _lock(self._descriptor(), fcntl.F_RDLCK)

    def leave(self) -> None:
        """Say that it does not wait any more."""
        if self._waiting:
            self._waiting = False
            with suppress(OSError):
                _lock(self._descriptor(), fcntl.F_UNLCK)

    def wrote(self) -> None:
        """A transaction was committed: find out whether others wait."""
        with suppress(OSError):
            if _is_shared(self._descriptor()):
                self._yield_until = time.monotonic() + random.uniform(*_WAY)  # noqa: S311 - not for secrets

    def give_way(self) -> None:
        """Before the next transaction: let those who waited go first."""
        left = self._yield_until - time.monotonic()
        if left > 0:
            time.sleep(left)

    def close(self) -> None:
        """Let go of the directory."""
        if self._fd is not None and _descriptors.pop(self._fd, None) is not None:
            with suppress(OSError):
                os.close(self._fd)
        self._fd, self._waiting = None, False

    def _descriptor(self) -> int:
        if self._fd is None or self._fd not in _descriptors:  # a lock that came through a fork is the parent's too
            fd = self._fd = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            held = _Descriptor(self, _CLOSE)
            held.close = partial(os.close, fd)
            _descriptors[fd] = held  # instead of one that was closed when its queue went
        return self._fd


_FIRST_BYTE = struct.Struct("hhqqi")
"""Linux's `struct flock`: kind, from where, start, length, process."""

_HAS_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")


def _lock(fd: int, kind: int) -> None:
    if _HAS_LOCKS:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FIRST_BYTE.pack(kind, os.SEEK_SET, 0, 1, 0))


def _is_shared(fd: int) -> bool:
    """Whether another descriptor has the lock."""
    if not _HAS_LOCKS:
        return False
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FIRST_BYTE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    return _FIRST_BYTE.unpack_from(found)[0] != fcntl.F_UNLCK


@final
class _Descriptor(ref[Queue]):
    """Closes a descriptor when its queue goes, in C code: an interrupt in a `__del__` would be lost."""

    __slots__ = ("close",)

    close: Callable[[], None]


_CLOSE = methodcaller("close")
_descriptors: dict[int, _Descriptor] = {}
"""Those that this process has opened, by their numbers; a forked child has opened none."""

os.register_at_fork(after_in_child=_descriptors.clear)


__all__ = ["Queue"]
