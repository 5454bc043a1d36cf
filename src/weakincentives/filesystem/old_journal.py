"""The journal of version 1, to be read only for a person who looks at it.

The file is `WNK2 | floor | CRC-32`, then one frame `length | CRC-32 | JSON` for each record; the highest bit of a
length makes the record void. Nothing in it says who wrote it.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from .frames import RejectedError
from .journal import Record, decode
from .reserved import reserved

_HEADER: Final = Struct(">4sQI")
_FRAME: Final = Struct(">II")
_MAGIC: Final = b"WNK2"
_VOID: Final = 1 << 31


class OldRecord(NamedTuple):
    """A record, and where it starts in the file."""

    start: int
    record: Record


def decode_old(data: bytes) -> list[OldRecord]:
    """The records to undo, oldest first; all are checked. Raises `RejectedError` for what version 1 never wrote."""
    found: list[OldRecord] = []
    if len(data) < _HEADER.size:
        return found
    magic, floor, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or checksum != crc32(data[: _HEADER.size - 4]):
        raise RejectedError("it has no header of version 1")
    start, at = 0, _HEADER.size
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        void, length = bool(length & _VOID), length & ~_VOID
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        if not length or len(body) != length or crc32(body) != checksum:
            break  # torn: what it describes has not happened
        record = _record(body)
        if start >= floor and not void:
            found.append(OldRecord(start, record))
        start = at = at + _FRAME.size + length
    return found


def _record(body: bytes) -> Record:
    """Read as a record of today, which has the same rules and two fields more."""
    try:
        row = json.loads(body)
        record = decode(json.dumps([*row, -1, 0]).encode())
    except (ValueError, TypeError) as error:
        raise RejectedError("it has a record of another version") from error
    paths = (record.path, record.target, *(path for path, _ in record.times))
    if any(reserved(part) for path in paths for part in path.split("/")):
        raise RejectedError("it has a record about undo state")
    return record


__all__ = ["OldRecord", "decode_old"]
