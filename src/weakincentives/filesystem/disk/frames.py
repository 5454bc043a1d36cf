"""How journals are written: frames that are authenticated one after the other, and two slots for a number.

Only this module knows the bytes. A frame is `status | MAC | length | body`. Its MAC covers the MAC before it, so frames
cannot be left out, moved or taken from elsewhere. The status says whether the frame is void. It is replaced in place,
as an undo must not take room on the disk, and has a MAC of its own: one value for each of the two states. Frames are
padded to 16 bytes, so that a status never lies across two sectors or pages.

A file begins with a header: a frame that says what the file belongs to, and two slots. A slot is `sequence | floor |
MAC`; the newest whole one counts. They are written in turn, so that the one before stands while one is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple, final

_SLOT: Final = Struct(">QQ")
_LENGTH: Final = Struct(">I")
_MAC: Final = 16
_BODY: Final = 2 * _MAC + _LENGTH.size
SLOT_SIZE: Final = _SLOT.size + _MAC
START: Final = bytes(_MAC)
"""What the first frame of a file follows."""


class RejectedError(Exception):
    """The file is not what this root, vault and transaction have written; the text says why. Nothing in it counts."""


@final
class Authenticator:
    """Computes the MACs of one root's files."""

    __slots__ = ("_copy",)

    def __init__(self, key: bytes) -> None:
        self._copy = blake2b(key=key, digest_size=2 * _MAC).copy  # a copy costs less than a new keyed hash

    def mac(self, kind: bytes, before: bytes, content: bytes = b"") -> bytes:
        """The MAC of the content where it follows something."""
        return self.seal(kind, before, content)[:_MAC]

    def seal(self, kind: bytes, before: bytes, content: bytes) -> bytes:
        """The MAC, and as many bytes again that only who knows the key can tell.

        `kind` is one byte and `before` has a fixed length, so that no two uses can be taken for each other.
        """
        state = self._copy()
        state.update(kind + before)
        state.update(content)
        return state.digest()


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
    body += b" " * (-(_LENGTH.size + len(body)) % _MAC)
    seal = keys.seal(b"F", before[:_MAC], body)
    return seal[_MAC:] + seal[:_MAC] + _LENGTH.pack(len(body)) + body, seal


def status(keys: Authenticator, seal: bytes, *, void: bool) -> bytes:
    """What stands at the start of the frame with that seal while it is void, or while it is not."""
    return keys.mac(b"V", seal[:_MAC]) if void else seal[_MAC:]


def frames(keys: Authenticator, data: bytes, start: int, before: bytes) -> Iterator[Frame]:
    """The frames from there on, up to the first that is torn or damaged."""
    while start + _BODY <= len(data):
        (length,) = _LENGTH.unpack_from(data, start + 2 * _MAC)
        end = start + _BODY + length
        body = data[start + _BODY : end]
        seal = keys.seal(b"F", before[:_MAC], body)
        if len(body) != length or not compare_digest(data[start + _MAC : start + 2 * _MAC], seal[:_MAC]):
            return
        found = data[start : start + _MAC]
        valid = compare_digest(found, status(keys, seal, void=False))
        void = not valid and compare_digest(found, status(keys, seal, void=True))
        yield Frame(start, end, void, not valid and not void, body, seal)
        start, before = end, seal


def header(keys: Authenticator, body: bytes, floor: int) -> tuple[bytes, Header]:
    """The start of a file with that body and floor."""
    data, seal = frame(keys, START, body)
    found = Header(len(data) + 2 * SLOT_SIZE, body, seal[:_MAC], 0, floor)
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
    (length,) = _LENGTH.unpack_from(data, 2 * _MAC)
    end = _BODY + length + 2 * SLOT_SIZE
    if len(data) < end and length < 1 << 16:
        return None
    first = next(frames(keys, data, 0, START), None)
    if first is None or first.void or first.torn:
        raise RejectedError("it was not written with this key for this root, or is damaged")
    found = Header(end, first.body, first.seal[:_MAC], -1, 0)
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


__all__ = [
    "SLOT_SIZE",
    "START",
    "Authenticator",
    "Frame",
    "Header",
    "RejectedError",
    "frame",
    "frames",
    "header",
    "read_header",
    "slot",
    "slot_offset",
    "status",
]
