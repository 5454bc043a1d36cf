"""The undo journal's file: records on disk before anything they describe happens.

A record is its length, its checksum and a line of JSON. A record that was torn by a crash ends the journal: what
it describes has not happened yet. Cutting the file to nothing is the commit: one call, before which everything
is undone and after which nothing is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal, final
from zlib import crc32

from ..errors import JournalError
from .syscalls import Syscalls

Operation = Literal["create", "replace", "delete", "move"]

_HEAD: Final = Struct(">II")
_FILE: Final = "journal"


@dataclass(frozen=True, slots=True)
class Record:
    """How to take one change back.

    Attributes:
        operation: "create": remove the path. "replace", "delete": put the kept image back. "move": move
            `target` back.
        path: what was changed.
        target: where it was moved to.
        image: the name in the state directory of what was there before.
        inode: of what was moved, to tell whether it happened.
        mode: of a directory that had to be made writable first; -1 when it had not.
        times: modification times (ns) to set again, by path, in this order.
    """

    operation: Operation
    path: str
    target: str = ""
    image: str = ""
    inode: int = 0
    mode: int = -1
    times: tuple[tuple[str, int], ...] = ()


def encode(record: Record) -> bytes:
    """The record as it stands in the file."""
    body = json.dumps(
        (
            record.operation,
            record.path,
            record.target,
            record.image,
            record.inode,
            record.mode,
            record.times,
        ),
        separators=(",", ":"),
    ).encode()
    return _HEAD.pack(len(body), crc32(body)) + body


def decode(data: bytes) -> tuple[list[tuple[int, Record]], int]:
    """The records and where each starts, up to the first that is torn or damaged, and where that is."""
    found: list[tuple[int, Record]] = []
    start = 0
    while start + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, start)
        body = data[start + _HEAD.size : start + _HEAD.size + length]
        if len(body) != length or length == 0 or crc32(body) != checksum:
            break
        operation, path, target, image, inode, mode, times = json.loads(body)
        times = tuple((at, when) for at, when in times)
        found.append((start, Record(operation, path, target, image, inode, mode, times)))
        start += _HEAD.size + length
    return found, start


@final
class Journal:
    """The journal of one state directory, written by whoever holds its lock.

    An append that raises leaves at most a torn tail, which the next append writes over.
    """

    __slots__ = ("_dir", "_durable", "_end", "_fd", "_inode", "_sys")

    def __init__(self, sys: Syscalls, directory: int, *, durable: bool) -> None:
        self._sys = sys
        self._dir = directory
        self._durable = durable
        self._fd = -1
        self._inode = 0
        self._end = 0

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

    def load(self) -> list[tuple[int, Record]]:
        """All records, and the position set behind them."""
        self._open()
        size = self._sys.fstat(self._fd).st_size
        data = b""
        while len(data) < size and (piece := self._sys.pread(self._fd, size - len(data), len(data))):
            data += piece
        try:
            found, self._end = decode(data)
        except ValueError as error:
            raise JournalError(
                "The undo journal is of another version; open the root with the version that wrote it."
            ) from error
        return found

    def append(self, record: Record) -> int:
        """Write it behind the others and say where it starts; with `durable`, wait for the disk."""
        if self._fd < 0:
            self._open()
        data = encode(record)
        self._pwrite(self._fd, data, self._end)
        if self._durable:
            self._sys.fsync(self._dir)  # the image's name
            self._sys.fsync(self._fd)
        start, self._end = self._end, self._end + len(data)
        return start

    def cut(self, length: int) -> None:
        """Forget all records from that position on; `sync` makes it last through a power cut."""
        self._sys.ftruncate(self._fd, length)
        self._end = length

    def sync(self) -> None:
        """Wait for the disk, if durable."""
        if self._durable and self._fd >= 0:
            self._sys.fsync(self._fd)

    def rewrite(self, records: Iterable[Record], name: str) -> list[int]:
        """Replace all records in one step, by way of a new file of that name; says where each starts."""
        starts: list[int] = []
        data = bytearray()
        for record in records:
            starts.append(len(data))
            data += encode(record)
        fd = self._sys.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._dir)
        try:
            self._pwrite(fd, bytes(data), 0)
            if self._durable:
                self._sys.fsync(fd)
            self._sys.rename(name, _FILE, source_fd=self._dir, target_fd=self._dir)
            if self._durable:
                self._sys.fsync(self._dir)
        except BaseException:
            self._sys.close(fd)
            raise
        self.close()
        self._fd, self._end = fd, len(data)
        self._inode = self._sys.fstat(fd).st_ino
        return starts

    def close(self) -> None:
        """Give the descriptor back; the file stays."""
        if self._fd >= 0:
            fd, self._fd, self._inode, self._end = self._fd, -1, 0, 0
            self._sys.close(fd)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = self._sys.open(_FILE, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._dir)
            self._inode = self._sys.fstat(self._fd).st_ino
            self._end = 0

    def _pwrite(self, fd: int, data: bytes, offset: int) -> None:
        done = self._sys.pwrite(fd, data, offset)
        while done < len(data):
            done += self._sys.pwrite(fd, data[done:], offset + done)


__all__ = ["Journal", "Operation", "Record", "decode", "encode"]
