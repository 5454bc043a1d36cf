"""The copies of the root's files that a mirror keeps in the vault, `c1`, `c2`, ..."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from sys import maxsize
from typing import Final, final

from .confine import Handle, is_copy
from .copying import copy_content, same_content
from .disk_state import Disk
from .manifest import Entry
from .syscalls import CREATE, READ

MAX_COPIED_BYTES: Final = 1 << 30
"""Data in one file of which a copy is kept, unless something else is asked for."""

logger = logging.getLogger(__name__)


def go_on() -> None:
    """What a copy asks while a root is being restored: that is never given up, being the end of a call that was."""


@final
class Copies:
    """One directory of copies; `fd` is opened and closed by the mirror that it belongs to.

    Holes stay holes, and where the disk can share the data between two files it does. A file with more data than
    `max_bytes` is left out, which is logged once.
    """

    __slots__ = ("_count", "_disk", "_left_out", "_max_bytes", "_sys", "fd")

    def __init__(self, disk: Disk, max_bytes: int | None) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._max_bytes = maxsize if max_bytes is None else max_bytes
        self._left_out: set[str] = set()
        self._count = 0
        self.fd = -1

    def leave_out(self, path: str, info: os.stat_result) -> bool:
        """Whether there is to be no copy of it."""
        if min(info.st_size, info.st_blocks * 512) <= self._max_bytes:
            return False
        if path not in self._left_out:
            self._left_out.add(path)
            logger.warning(
                "%a in %s has %d bytes, so no copy of it is kept. If a call that changes it fails, that cannot be "
                "undone, and an error says so; max_copied_bytes= raises the limit.",
                path, self._disk.root, info.st_size,
            )  # fmt: skip
        return True

    def make(self, source: int, check: Callable[[], None]) -> str:
        """Copy an open file; the copy's name. `check` is called now and then, and what it raises ends it."""
        self._count += 1
        name = f"c{self._count}"
        with Handle(self._sys, self._sys.open(name, CREATE, 0o600, dir_fd=self.fd)) as fd:
            copy_content(self._sys, source, fd, self._sys.fstat(source), check)
        return name

    def matches(self, fd: int, known: Entry, check: Callable[[], None] = go_on) -> bool:
        """Whether an open file holds what the copy of an entry does; False when that has none."""
        if not known.copy or self._sys.fstat(fd).st_size != known.size:
            return False
        with (
            suppress(FileNotFoundError),
            Handle(self._sys, self._sys.open(known.copy, READ, dir_fd=self.fd)) as copy,
        ):
            size = self._sys.fstat(copy).st_size
            return size == known.size and same_content(self._sys, fd, copy, size, check)
        return False

    def sweep(self, needed: Collection[str]) -> None:
        """Remove those that nothing needs; new ones get other names than all that were there."""
        for name in self._sys.names(self.fd):
            if is_copy(name):
                self._count = max(self._count, int(name[1:]))
                if name not in needed:
                    with suppress(OSError):
                        self._sys.unlink(name, dir_fd=self.fd)

    def recount(self) -> None:
        """New ones get other names than all that are there."""
        self._count = max((int(name[1:]) for name in self._sys.names(self.fd) if is_copy(name)), default=0)


__all__ = ["MAX_COPIED_BYTES", "Copies", "go_on"]
