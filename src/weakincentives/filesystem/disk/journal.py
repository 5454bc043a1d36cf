"""The undo journal's file: records on disk before anything they describe happens.

Its header binds it to one root, one vault and one transaction; a journal of another is rejected as a whole. A record
that was torn by a crash ends it: what it describes has not happened yet. Recovery undoes the records from the floor on,
newest first. Cutting the file to nothing, or raising the floor to its end, is the commit: one call, before which
everything is undone and after which nothing is. Neither takes room on the disk.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, fields
from hmac import compare_digest
from operator import attrgetter
from struct import Struct
from typing import Final, Literal, NamedTuple, final, get_args

from ..paths import ROOT
from .confine import is_beneath, is_image, is_staged
from .state_dir import JOURNAL, MAC_SIZE, Authenticator, StateBinding, StateDir
from .syscalls import Syscalls, look, pwrite_all

# How journals are written: frames that are authenticated one after the other, and two slots for a number.
#
# Only this module knows the bytes. A frame is `status | MAC | length | body`. Its MAC covers the MAC before it, so that
# frames cannot be left out, moved or taken from elsewhere. The status says whether the frame is void. It is replaced in
# place, as an undo must not take room on the disk, and has a MAC of its own: one value for each of the two states.
# Frames are padded to 16 bytes, so that a status never lies across two sectors or pages.
#
# A file begins with a header: a frame that says what the file belongs to, and two slots. A slot is `sequence | floor |
# MAC`; the newest whole one counts. They are written in turn, so that the one before stands while one is written.


_SLOT: Final = Struct(">QQ")
_LENGTH: Final = Struct(">I")
_BODY: Final = 2 * MAC_SIZE + _LENGTH.size
SLOT_SIZE: Final = _SLOT.size + MAC_SIZE
START: Final = bytes(MAC_SIZE)
"""What the first frame of a file follows."""


class RejectedError(Exception):
    """The file is not what this root, vault and transaction have written; the text says why. Nothing in it counts."""


class Frame(NamedTuple):
    """One frame of a file. `torn`: its status was being written when the process was killed."""

    start: int
    end: int
    void: bool
    torn: bool
    body: bytes
    seal: bytes


class Header(NamedTuple):
    """The header of a file: where it ends, what it says, and the newest slot."""

    end: int
    body: bytes
    mac: bytes
    sequence: int
    floor: int


def frame(keys: Authenticator, before: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The body, which is text, as it stands in the file behind the frame with the seal `before`; and its seal."""
    body += b" " * (-(_LENGTH.size + len(body)) % MAC_SIZE)
    seal = keys.seal(b"F", before[:MAC_SIZE], body)
    return seal[MAC_SIZE:] + seal[:MAC_SIZE] + _LENGTH.pack(len(body)) + body, seal


def status(keys: Authenticator, seal: bytes, *, void: bool) -> bytes:
    """What stands at the start of the frame with that seal while it is void, or while it is not."""
    return keys.mac(b"V", seal[:MAC_SIZE]) if void else seal[MAC_SIZE:]


def frames(keys: Authenticator, data: bytes, start: int, before: bytes) -> Iterator[Frame]:
    """The frames from there on, up to the first that is torn or damaged."""
    while start + _BODY <= len(data):
        (length,) = _LENGTH.unpack_from(data, start + 2 * MAC_SIZE)
        end = start + _BODY + length
        body = data[start + _BODY : end]
        seal = keys.seal(b"F", before[:MAC_SIZE], body)
        if len(body) != length or not compare_digest(data[start + MAC_SIZE : start + 2 * MAC_SIZE], seal[:MAC_SIZE]):
            return
        found = data[start : start + MAC_SIZE]
        valid = compare_digest(found, status(keys, seal, void=False))
        void = not valid and compare_digest(found, status(keys, seal, void=True))
        yield Frame(start, end, void, not valid and not void, body, seal)
        start, before = end, seal


def header(keys: Authenticator, body: bytes, floor: int) -> tuple[bytes, Header]:
    """The start of a file with that body and floor."""
    data, seal = frame(keys, START, body)
    found = Header(len(data) + 2 * SLOT_SIZE, body, seal[:MAC_SIZE], 0, floor)
    return data + slot(keys, found, 0, floor) + bytes(SLOT_SIZE), found


def slot(keys: Authenticator, of: Header, sequence: int, floor: int) -> bytes:
    """What stands in the slot of that number; see `slot_offset`."""
    content = _SLOT.pack(sequence, floor)
    return content + keys.mac(b"S", of.mac, content)


def slot_offset(of: Header, sequence: int) -> int:
    """Where the slot of that number is."""
    return of.end - SLOT_SIZE * (2 - sequence % 2)


def read_header(keys: Authenticator, data: bytes) -> Header | None:
    """The header of the file; None when the file is shorter: its first write was cut off, and nothing followed.

    Raises `RejectedError` for one that is whole, but not ours.
    """
    if len(data) < _BODY:
        return None
    (length,) = _LENGTH.unpack_from(data, 2 * MAC_SIZE)
    end = _BODY + length + 2 * SLOT_SIZE
    if len(data) < end and length < 1 << 16:
        return None
    first = next(frames(keys, data, 0, START), None)
    if first is None or first.void or first.torn:
        raise RejectedError("it was not written with this key for this root, or is damaged")
    found = Header(end, first.body, first.seal[:MAC_SIZE], -1, 0)
    for number in range(2):
        at = slot_offset(found, number)
        content = data[at : at + _SLOT.size]
        if compare_digest(data[at + _SLOT.size : at + SLOT_SIZE], keys.mac(b"S", found.mac, content)):
            sequence, floor = _SLOT.unpack(content)
            if sequence > found.sequence and sequence % 2 == number:
                found = found._replace(sequence=sequence, floor=floor)
    if found.sequence < 0:
        raise RejectedError("its start is damaged")
    return found


Operation = Literal["create", "replace", "delete", "move"]

_VERSION: Final = "wink-journal-2"
_PART: Final = "journal"
_OPERATIONS: Final = frozenset(get_args(Operation))
_dump = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Record:
    """How to undo one change, and how to tell whether it happened at all.

    Attributes:
        operation: "create": remove the path. "replace", "delete": restore the kept image. "move": move `target` back.
        path: what was changed.
        target: where it was moved to.
        staged: the name in the vault of what was put at the path; still there, it was not put.
        image: the name in the vault of what was there before.
        inode: of what was moved, deleted or replaced, to tell it from what others put there.
        mode: of a directory that had to be made writable first; -1 when it had not.
        times: modification times (ns) to set again, by path, in this order.
        size: of a regular file that was deleted or replaced, else -1.
        mtime: its modification time (ns).
    """

    operation: Operation
    path: str
    target: str = ""
    staged: str = ""
    image: str = ""
    inode: int = 0
    mode: int = -1
    times: tuple[tuple[str, int], ...] = ()
    size: int = -1
    mtime: int = 0


_values = attrgetter(*(field.name for field in fields(Record)))


class Span(NamedTuple):
    """Where a record stands in the file. The first one starts at 0, as cutting there leaves nothing, not a header."""

    start: int
    end: int


def encode(record: Record) -> bytes:
    """The record as the body of a frame."""
    return _dump(_values(record)).encode()


def decode(body: bytes) -> Record:
    """The record, if it is one that we would write.

    Raises `RejectedError` for anything else, even if its MAC is right.
    """
    try:
        operation, path, target, staged, image, inode, mode, times, size, mtime = json.loads(body)
        record = Record(
            operation, path, target, staged, image, inode, mode, tuple((at, when) for at, when in times), size, mtime
        )
        sound = (
            record.operation in _OPERATIONS
            and is_beneath(path)
            and (is_beneath(target) if operation == "move" else target == "")
            and (is_staged(staged) if operation in {"create", "replace"} else staged == "")
            and (is_image(image) if operation in {"replace", "delete"} else image == "")
            and all(is_beneath(at) or at == ROOT for at, _ in record.times)
            and all(type(number) is int for number in (inode, mode, size, mtime, *(when for _, when in times)))
            and -1 <= mode <= 0o7777
        )
    except (ValueError, TypeError) as error:
        raise RejectedError("it has a record of another version") from error
    if not sound:
        raise RejectedError("it has a record that is never written")
    return record


def header_body(version: str, binding: StateBinding, transaction: bytes) -> bytes:
    """What the header of a file says."""
    return _dump((version, binding, transaction.hex())).encode()


def check_header(found: Header, expected: bytes) -> None:
    """Raise `RejectedError` unless the file belongs to this root, vault and transaction."""
    if found.body.rstrip() != expected:
        raise RejectedError("it belongs to another root, vault or transaction, or is a copy from an earlier time")


class Content(NamedTuple):
    """What is in a journal: the records that recovery undoes, and the seals of all whole ones by their end."""

    records: list[tuple[Span, Record]]
    marks: list[tuple[int, bytes]]
    header: Header | None


def read(keys: Authenticator, data: bytes, expected: bytes) -> Content:
    """The records, oldest first; all of them are checked before any counts. Raises `RejectedError`."""
    found = read_header(keys, data)
    if found is None:
        return Content([], [], None)
    check_header(found, expected)
    records: list[tuple[Span, Record]] = []
    marks: list[tuple[int, bytes]] = []
    torn = start = 0
    for part in frames(keys, data, found.end, found.mac):
        record = decode(part.body)
        torn += part.torn
        # One status may have been on its way when the process was killed; until it has arrived the record counts.
        if start >= found.floor and not part.void:
            records.append((Span(start, part.end), record))
        start = part.end
        marks.append((part.end, part.seal))
    if torn > 1:
        raise RejectedError("it is damaged")
    return Content(records, marks, found)


@final
class Journal:
    """The journal of one root, written by the holder of its lock.

    `end` is where the known records end and `floor` where recovery starts. While `torn`, the file may say otherwise: a
    write to it failed or was interrupted. `mend` makes it true again, and must succeed before anything is appended.
    """

    __slots__ = (
        "_before_number",
        "_durable",
        "_fd",
        "_header",
        "_inode",
        "_marks",
        "_state",
        "_sys",
        "end",
        "floor",
        "torn",
    )

    def __init__(self, sys: Syscalls, state: StateDir, *, durable: bool) -> None:
        self._sys = sys
        self._state = state
        self._durable = durable
        self._before_number = header_body(_VERSION, state.binding, b"").removesuffix(b'"]')
        self._fd = -1
        self._inode = 0
        self._header: Header | None = None
        self._marks: list[tuple[int, bytes]] = []  # end and seal of each record
        self.end: int = 0
        self.floor: int = 0
        self.torn: bool = False

    def pending(self) -> bool:
        """Whether another process left records behind; also notices when the file was made anew."""
        found = look(self._sys, JOURNAL, self._state.entry)
        if found is None:
            self.close()
            return False
        if found.st_ino != self._inode:
            self.close()
        return found.st_size > 0 or not stat.S_ISREG(found.st_mode)

    def load(self) -> list[tuple[Span, Record]]:
        """The records to undo, oldest first; the end is set behind all that are whole.

        A journal that is not of this root, vault and transaction is put aside, with a warning; then there are none.
        """
        try:
            expected = self._body(self._state.transaction)
            found, self._marks, self._header = read(self._state.keys, self._read(), expected)
        except RejectedError as reason:
            self.close()
            self._state.reject(JOURNAL, reason)
            self._open()
            found = []
        self.end = self._marks[-1][0] if self._marks else 0
        self.floor = 0
        self.torn = False
        return found

    def append(self, record: Record) -> Span:
        """Write it behind the others; with `durable`, wait for the disk. When it raises, the journal is torn."""
        if self._fd < 0:
            self._open()
        keys = self._state.keys
        start = b""
        self.torn = True
        if self.end == 0:
            self.floor = 0
            start, self._header = header(keys, self._body(self._state.begin(_PART)), 0)
        assert self._header is not None
        data, seal = frame(keys, self._marks[-1][1] if self._marks else self._header.mac, encode(record))
        data = start + data
        pwrite_all(self._sys, self._fd, data, self.end)
        if self._durable:
            # Image, journal's name, record, in this order: a record that outlives a power cut must find its image.
            self._sys.fsync(self._state.fd)  # the image's name
            if start and self._state.entry != self._state.fd:
                self._sys.fsync(self._state.entry)  # the journal's
            self._sys.fsync(self._fd)
        span = Span(self.end, self.end + len(data))
        self._marks.append((span.end, seal))
        self.end = span.end
        self.torn = False
        return span

    def mend(self, end: int) -> None:
        """Cut what may stand behind `end`, where the last known record ends, and write the known floor again."""
        if self._fd >= 0:
            self._sys.ftruncate(self._fd, end)
            if end:
                self._write_floor(self.floor)
        self._forget_behind(end)
        self.torn = False

    def cut(self, length: int) -> None:
        """Forget all records from that position on; `sync` makes it last through a power cut."""
        self._sys.ftruncate(self._fd, length)
        self._forget_behind(length)

    def set_floor(self, floor: int) -> None:
        """Have recovery undo what starts there or later, and nothing before. When it raises, the journal is torn."""
        if floor != self.floor and self.end:
            self.torn = True
            self._write_floor(floor)
            self.floor = floor
            self.torn = False

    def set_void(self, span: Span, *, void: bool) -> None:
        """Have recovery pass over one record, or not."""
        assert self._header is not None
        seal = next(seal for end, seal in reversed(self._marks) if end == span.end)
        pwrite_all(self._sys, self._fd, status(self._state.keys, seal, void=void), span.start or self._header.end)

    def sync(self) -> None:
        """Wait for the disk, if durable."""
        if self._durable and self._fd >= 0:
            self._sys.fsync(self._fd)

    def close(self) -> None:
        """Close the descriptor; the file stays."""
        if self._fd >= 0:
            fd, self._fd, self._inode, self.end = self._fd, -1, 0, 0
            self._marks.clear()
            self._sys.close(fd)

    def _body(self, transaction: bytes) -> bytes:
        return self._before_number + transaction.hex().encode() + b'"]'

    def _read(self) -> bytes:
        found = look(self._sys, JOURNAL, self._state.entry)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise RejectedError("it is not a regular file")
        self._open()
        size = self._sys.fstat(self._fd).st_size
        data = b""
        while len(data) < size and (piece := self._sys.pread(self._fd, size - len(data), len(data))):
            data += piece
        return data

    def _forget_behind(self, end: int) -> None:
        while self._marks and self._marks[-1][0] > end:
            self._marks.pop()
        self.end = end
        if not end:
            self._state.end(_PART)

    def _write_floor(self, floor: int) -> None:
        assert self._header is not None
        sequence = self._header.sequence + 1
        content = slot(self._state.keys, self._header, sequence, floor)
        pwrite_all(self._sys, self._fd, content, slot_offset(self._header, sequence))
        self._header = self._header._replace(sequence=sequence)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = self._sys.open(JOURNAL, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._state.entry)
            self._inode = self._sys.fstat(self._fd).st_ino
            self.end = 0
