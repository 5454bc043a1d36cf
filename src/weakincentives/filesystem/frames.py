"""How journals are written: a header that can be changed in place, then frames, each with its length and checksum.

Only this module knows the bytes. A frame is `length | checksum | body`; a frame that was torn by a crash, or damaged,
ends the file. The header is `magic | floor | checksum`: what stands before the floor is not undone by a recovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ..errors import JournalError

_HEADER: Final = Struct(">4sQI")
_FLOOR: Final = Struct(">4sQ")
_FRAME: Final = Struct(">II")
_MAGIC: Final = b"WNK2"
_VOID: Final = 1 << 31

HEADER_SIZE: Final = _HEADER.size

LONGEST_VOIDABLE: Final = (1 << 24) - 1
"""Of a body, so that the first byte of its frame is free for one of these: `VOID` makes recovery pass over it."""

VOID: Final = b"\x80"
VALID: Final = b"\0"


class Frame(NamedTuple):
    """One frame of a file: where it starts and ends, whether it is void, and its body."""

    start: int
    end: int
    void: bool
    body: bytes


def header(floor: int) -> bytes:
    """The header with that floor; always of the same length, so that it can be replaced in one small write."""
    front = _FLOOR.pack(_MAGIC, floor)
    return front + crc32(front).to_bytes(4, "big")


def floor_of(data: bytes) -> int | None:
    """The floor in the file's header, or None where there is no whole one: then nothing behind it happened.

    Raises `JournalError` for a file of the version before, which had no header.
    """
    if len(data) >= HEADER_SIZE:
        magic, floor, checksum = _HEADER.unpack_from(data)
        if magic == _MAGIC and checksum == crc32(data[: _FLOOR.size]):
            return int(floor)
    if next(frames(data, 0), None) is not None:
        raise JournalError("The undo journal is of another version; open the root with the version that wrote it.")
    return None


def frame(body: bytes) -> bytes:
    """The body, which must not be empty, as it stands in the file."""
    return _FRAME.pack(len(body), crc32(body)) + body


def frames(data: bytes, start: int) -> Iterator[Frame]:
    """The frames from there on, up to the first that is torn or damaged."""
    while start + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, start)
        void, length = bool(length & _VOID), length & ~_VOID
        end = start + _FRAME.size + length
        body = data[start + _FRAME.size : end]
        if len(body) != length or length == 0 or crc32(body) != checksum:
            return
        yield Frame(start, end, void, body)
        start = end


__all__ = ["HEADER_SIZE", "LONGEST_VOIDABLE", "VALID", "VOID", "Frame", "floor_of", "frame", "frames", "header"]
