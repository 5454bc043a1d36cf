"""The undo journal's file: records on disk before anything they describe happens.

A record that was torn by a crash ends the journal: what it describes has not happened yet. Recovery undoes the records
from the floor on, newest first. Cutting the file to nothing, or raising the floor to its end, is the commit: one call,
before which everything is undone and after which nothing is. Neither takes room on the disk.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, final

from ..errors import JournalError
from .frames import HEADER_SIZE, LONGEST_VOIDABLE, VALID, VOID, floor_of, frame, frames, header
from .syscalls import Syscalls

Operation = Literal["create", "replace", "delete", "move"]

_FILE: Final = "journal"


@dataclass(frozen=True, slots=True)
class Record:
    """How to undo one change, and how to tell whether it happened at all.

    Attributes:
        operation: "create": remove the path. "replace", "delete": restore the kept image. "move": move `target` back.
        path: what was changed.
        target: where it was moved to.
        staged: the name in the state directory of what was put at the path; still there, it was not put.
        image: the name in the state directory of what was there before.
        inode: of what was moved or deleted, to tell it from what others put there.
        mode: of a directory that had to be made writable first; -1 when it had not.
        times: modification times (ns) to set again, by path, in this order.
    """

    operation: Operation
    path: str
    target: str = ""
    staged: str = ""
    image: str = ""
    inode: int = 0
    mode: int = -1
    times: tuple[tuple[str, int], ...] = ()


class Span(NamedTuple):
    """Where a record stands in the file. The first one starts at 0, as cutting there leaves nothing, not a header."""

    start: int
    end: int


def encode(record: Record) -> bytes:
    """The record as it stands in the file."""
    fields = (
        record.operation,
        record.path,
        record.target,
        record.staged,
        record.image,
        record.inode,
        record.mode,
        record.times,
    )
    body = json.dumps(fields, separators=(",", ":")).encode()
    assert len(body) <= LONGEST_VOIDABLE, "paths are much shorter"
    return frame(body)


def decode(data: bytes) -> tuple[list[tuple[Span, Record]], int]:
    """The records that recovery undoes, oldest first, and where the whole ones end.

    Raises `JournalError` for records of another version.
    """
    floor = floor_of(data)
    if floor is None:
        return [], 0
    found: list[tuple[Span, Record]] = []
    start = 0
    for part in frames(data, HEADER_SIZE):
        if start >= floor and not part.void:
            found.append((Span(start, part.end), _record(part.body)))
        start = part.end
    return found, start


def _record(body: bytes) -> Record:
    try:
        operation, path, target, staged, image, inode, mode, times = json.loads(body)
        return Record(operation, path, target, staged, image, inode, mode, tuple((at, when) for at, when in times))
    except (ValueError, TypeError) as error:
        raise JournalError(
            "The undo journal is of another version; open the root with the version that wrote it."
        ) from error


@final
class Journal:
    """The journal of one state directory, written by whoever holds its lock.

    `end` is where the known records end and `floor` where recovery starts. While `torn`, the file may say otherwise: a
    write to it failed or was interrupted. `mend` makes it true again, and must succeed before anything is appended.
    """

    __slots__ = ("_dir", "_durable", "_fd", "_inode", "_sys", "end", "floor", "torn")

    def __init__(self, sys: Syscalls, directory: int, *, durable: bool) -> None:
        self._sys = sys
        self._dir = directory
        self._durable = durable
        self._fd = -1
        self._inode = 0
        self.end = 0
        self.floor = 0
        self.torn = False

    def pending(self) -> bool:
        """Whether another process left records behind; also notices when the file was made anew."""
        try:
            found = self._sys.stat(_FILE, dir_fd=self._dir)
        except FileNotFoundError:
            self.close()
            return False
        if found.st_ino != self._inode:
            self.close()
        return found.st_size > 0

    def load(self) -> list[tuple[Span, Record]]:
        """The records to undo, oldest first; the end is set behind all that are whole."""
        self._open()
        size = self._sys.fstat(self._fd).st_size
        data = b""
        while len(data) < size and (piece := self._sys.pread(self._fd, size - len(data), len(data))):
            data += piece
        found, self.end = decode(data)
        self.floor = 0
        self.torn = False
        return found

    def append(self, record: Record) -> Span:
        """Write it behind the others; with `durable`, wait for the disk. When it raises, the journal is torn."""
        if self._fd < 0:
            self._open()
        data = encode(record)
        if self.end == 0:
            self.floor = 0
            data = header(0) + data
        self.torn = True
        self._pwrite(data, self.end)
        if self._durable:
            self._sys.fsync(self._dir)  # the image's name
            self._sys.fsync(self._fd)
        span = Span(self.end, self.end + len(data))
        self.end = span.end
        self.torn = False
        return span

    def mend(self, end: int) -> None:
        """Cut what may stand behind `end`, where the last known record ends, and write the known floor again."""
        if self._fd >= 0:
            self._sys.ftruncate(self._fd, end)
            if end:
                self._pwrite(header(self.floor), 0)
        self.end = end
        self.torn = False

    def cut(self, length: int) -> None:
        """Forget all records from that position on; `sync` makes it last through a power cut."""
        self._sys.ftruncate(self._fd, length)
        self.end = length

    def set_floor(self, floor: int) -> None:
        """Have recovery undo what starts there or later, and nothing before. When it raises, the journal is torn."""
        if floor != self.floor and self.end:
            self.torn = True
            self._pwrite(header(floor), 0)
            self.floor = floor
            self.torn = False

    def set_void(self, span: Span, *, void: bool) -> None:
        """Have recovery pass over one record, or not."""
        self._pwrite(VOID if void else VALID, max(span.start, HEADER_SIZE))

    def sync(self) -> None:
        """Wait for the disk, if durable."""
        if self._durable and self._fd >= 0:
            self._sys.fsync(self._fd)

    def close(self) -> None:
        """Give the descriptor back; the file stays."""
        if self._fd >= 0:
            fd, self._fd, self._inode, self.end = self._fd, -1, 0, 0
            self._sys.close(fd)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = self._sys.open(_FILE, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._dir)
            self._inode = self._sys.fstat(self._fd).st_ino
            self.end = 0

    def _pwrite(self, data: bytes, offset: int) -> None:
        done = self._sys.pwrite(self._fd, data, offset)
        while done < len(data):
            done += self._sys.pwrite(self._fd, data[done:], offset + done)


__all__ = ["Journal", "Operation", "Record", "Span", "decode", "encode"]
