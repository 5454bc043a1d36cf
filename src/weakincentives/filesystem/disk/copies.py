"""The copies of a root's files, from which `watch="scan"` restores them.

They are files `c1`, `c2`, ... in the vault. Each holds one copy or, where a walk finds many small files, many of them:
the copy `c3+6000` begins at that position of `c3`, and is as long as its entry in the manifest says.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from sys import maxsize
from typing import Final, final

from .confine import Handle, is_copy_file
from .disk_root import DiskRoot
from .manifest import Manifest, ManifestEntry
from .staging import copy_content, never_stop, same_content
from .syscalls import CREATE, READ, pwrite_all, read_part

MAX_COPIED_BYTES: Final = 1 << 30
"""Data in one file of which a copy is kept, unless something else is asked for."""

SINGLE_COPIES: Final = 100
"""So many copies of one walk are files of their own. Making a file is most of the work where there are thousands."""
SMALL_BYTES: Final = 64 << 10
"""What is larger always has a file of its own, with its holes, which the disk may share."""
PROGRESS_SECONDS: Final = 2.0

logger: logging.Logger = logging.getLogger(__name__)


@final
class Copies:
    """One directory of copies; `fd` is opened and closed by the mirror that it belongs to.

    Holes stay holes, and where the disk can share the data between two files it does. A file with more data than
    `max_bytes` is left out, which is logged once.

    Attributes:
        unsure: the files that may be needed no more, new ones included; `drop_unsure` asks for them alone.
    """

    __slots__ = (
        "_began", "_count", "_disk", "_left_out", "_made", "_max_bytes", "_pack", "_pack_fd", "_packed", "_reported",
        "_sys", "fd", "unsure",
    )  # fmt: skip

    def __init__(self, disk: DiskRoot, max_bytes: int | None) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._max_bytes = maxsize if max_bytes is None else max_bytes
        self._left_out: set[str] = set()
        self._count = 0
        self._made = 0  # in this walk
        self._began = self._reported = 0.0
        self._pack = ""  # the file of many that is written to
        self._pack_fd = -1
        self._packed: dict[str, int] = {}  # how many bytes the files of many have
        self.fd: int = -1
        self.unsure: set[str] = set()

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

    # --- making them

    def begin_walk(self) -> None:
        """Before the first copy of a walk."""
        self._close_pack()  # an interrupt may have left it
        self._made = 0
        self._began = self._reported = time.monotonic()

    def end_walk(self) -> None:
        """After its last copy, also when it was cut off."""
        self._close_pack()
        if self._reported > self._began:
            seconds = time.monotonic() - self._began
            logger.info("Copied %d files of %s in %.1f s", self._made, self._disk.root, seconds)

    def make(self, source: int, check: Callable[[], None]) -> str:
        """Copy an open file; the copy's name. `check` is called now and then, and what it raises ends it."""
        self._made += 1
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS:
            self._reported = now
            logger.info("Copying %s, %d files so far, so that changes can be undone", self._disk.root, self._made)
        found = self._sys.fstat(source)
        if self._made > SINGLE_COPIES and found.st_size <= SMALL_BYTES:
            check()
            data = self._sys.pread(source, SMALL_BYTES, 0)
            if len(data) == found.st_size:
                return self._append(data)
        with Handle(self._sys, self._create(name := self._new_name())) as fd:
            copy_content(self._sys, source, fd, found, check)
        return name

    def _append(self, data: bytes) -> str:
        if self._pack_fd < 0:
            name = self._new_name()
            self._pack_fd = self._create(name)
            self._pack, self._packed[name] = name, 0
        at = self._packed[self._pack]
        pwrite_all(self._sys, self._pack_fd, data, at)
        self._packed[self._pack] = at + len(data)
        return f"{self._pack}+{at}"

    def _close_pack(self) -> None:
        fd, self._pack_fd, self._pack = self._pack_fd, -1, ""
        if fd >= 0:
            with suppress(OSError):
                self._sys.close(fd)

    def _new_name(self) -> str:
        self._count += 1
        name = f"c{self._count}"
        self.unsure.add(name)
        return name

    def _create(self, name: str) -> int:
        return self._sys.open(name, CREATE, 0o600, dir_fd=self.fd)

    def matches(self, fd: int, known: ManifestEntry, check: Callable[[], None] = never_stop) -> bool:
        """Whether an open file holds what the copy of an entry does; False when that has none."""
        if not known.copy or self._sys.fstat(fd).st_size != known.size:
            return False
        name, packed, at = known.copy.partition("+")
        with (
            suppress(FileNotFoundError),
            Handle(self._sys, self._sys.open(name, READ, dir_fd=self.fd)) as copy,
        ):
            if packed:
                return read_part(self._sys, copy, known.size, int(at)) == read_part(self._sys, fd, known.size, 0)
            size = self._sys.fstat(copy).st_size
            return size == known.size and same_content(self._sys, fd, copy, size, check)
        return False

    # --- removing them

    def sweep(self, manifest: Manifest) -> None:
        """Remove those that nothing needs; new ones get other names than all that were there."""
        needed = _used(manifest)
        for name in self._sys.names(self.fd):
            if is_copy_file(name):
                self._count = max(self._count, int(name[1:]))
                if name not in needed:
                    self._remove(name)
        self.unsure.clear()

    def worn(self, manifest: Manifest) -> set[str]:
        """The files of many of which less than half is needed, and something is."""
        if not self.unsure.intersection(self._packed):
            return set()
        used = _used(manifest)
        return {name for name, size in self._packed.items() if name in used and 2 * used[name] < size}

    def drop_unsure(self, manifest: Manifest) -> None:
        """Remove those that a change has left without use; where nothing changed nothing is looked at."""
        if self.unsure:
            for name in self.unsure.difference(_used(manifest)):
                self._remove(name)
            self.unsure.clear()

    def _remove(self, name: str) -> None:
        self._packed.pop(name, None)
        with suppress(OSError):  # the next sweep finds it
            self._sys.unlink(name, dir_fd=self.fd)

    def recount(self) -> None:
        """New ones get other names than all that are there."""
        self._count = max((int(name[1:]) for name in self._sys.names(self.fd) if is_copy_file(name)), default=0)


def copy_file(found: ManifestEntry) -> str:
    """The file in which the copy of an entry is; empty when it has none."""
    return found.copy.partition("+")[0] if stat.S_ISREG(found.mode) else ""


def _used(manifest: Manifest) -> dict[str, int]:
    """The files of copies, with how many bytes of each are needed."""
    used: dict[str, int] = {}
    for found in manifest.values():
        name = copy_file(found)
        if name:
            used[name] = used.get(name, 0) + found.size
    return used
