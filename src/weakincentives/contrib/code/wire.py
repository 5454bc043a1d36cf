"""Messages between the host and a process that runs untrusted code: four bytes of length, then JSON.

Both sides use this module. It is sent to the other side as source text (`remote.program`), so it imports nothing but
the standard library and runs on Python 3.8.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from typing import Any, cast

HEADER = struct.Struct(">I")
MAX_DEPTH = 60
"""Of nested values that are sent."""


class OwnerGoneError(Exception):
    """The pipe to the owner is closed: no answer can reach it."""


class TooBigError(Exception):
    """A value is too big or nested too deeply to be sent."""


class RemoteValue:
    """A value of a type that only the other side knows; its representation is all there is of it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def receive(fd: int) -> Any:
    """The next message; waits for it. It must come from a side that is trusted: nothing about it is checked."""
    (length,) = HEADER.unpack(_exactly(fd, HEADER.size))
    return json.loads(_exactly(fd, length))


def send(fd: int, message: object) -> None:
    """Send one message, whole."""
    write_all(fd, framed(json.dumps(message).encode()))


def framed(body: bytes) -> bytes:
    """A message as it goes over the pipe."""
    return HEADER.pack(len(body)) + body


def write_all(fd: int, data: bytes) -> None:
    """Write all of it; the descriptor must be blocking."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _exactly(fd: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count:
        piece = os.read(fd, min(count, 1 << 20))
        if not piece:
            raise OwnerGoneError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def pack_bytes(data: bytes) -> str:
    """Bytes as text for JSON."""
    return base64.b64encode(data).decode("ascii")


def unpack_bytes(text: str) -> bytes:
    """The bytes again; `ValueError` for text that `pack_bytes` does not give."""
    return base64.b64decode(text, validate=True)


class Encoder:
    """Turns values into JSON data. What JSON has no form for is a list of a letter and its content.

    Args:
        room: how much to send, in bytes or so.
        cut: leave out what is beyond `room` or nested too deeply, instead of raising `TooBigError`.
        show: send a value of another type as its representation, instead of raising `TypeError`.
    """

    def __init__(self, room: int, *, cut: bool = False, show: bool = True) -> None:
        self._room = room
        self._cut = cut
        self._show = show

    def encode(self, value: Any, depth: int = 0) -> Any:
        """The value as JSON data."""
        kind = cast(Any, type(value))
        if depth > MAX_DEPTH:
            return self._beyond("it is nested too deeply")
        self._room -= 2
        if self._room < 0:
            return self._beyond("it is too big")
        if value is None or kind is bool:
            return value
        if kind is int:
            self._take(value.bit_length() // 4)
            return value if -(2**53) < value < 2**53 else ["i", format(value, "x")]
        if kind is float:
            return ["f", repr(value)]
        if kind is complex:
            return ["c", repr(value)]
        if kind is str:
            return clean(self._part(value))
        if kind in (bytes, bytearray):
            return ["b", pack_bytes(bytes(self._part(value)))]
        if kind in _LETTERS:
            return [_LETTERS[kind], [self.encode(item, depth + 1) for item in self._some(value)]]
        if kind is dict:
            pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in self._some(value.items())]
            return ["d", pairs]
        if not self._show:
            raise TypeError(f"a value of type {kind.__name__} cannot be sent")
        text = repr(value)
        return ["o", self._part(text if type(text) is str else "...")]

    def _beyond(self, problem: str) -> Any:
        if self._cut:
            return ["o", "..."]
        raise TooBigError(problem)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0 and not self._cut:
            raise TooBigError("it is too big")

    def _part(self, value: Any) -> Any:
        # One more than there is room for, so that the reader sees that something was left out.
        part = value[: max(0, self._room) + 1] if self._cut else value
        self._take(len(part))
        return part

    def _some(self, values: Any) -> Any:
        for item in values:
            yield item
            if self._room < 0:
                return


_LETTERS: dict[Any, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}


def decode(data: Any, depth: int = 0) -> Any:
    """The value of data that the other side sent; `ValueError` for data that `Encoder` does not give.

    Nothing of the other side is run: values are built from plain data, those of unknown types are `RemoteValue`.
    """
    if depth > MAX_DEPTH + 1:
        raise ValueError("nested too deeply")
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if not isinstance(data, list) or len(cast(Any, data)) != 2:
        raise ValueError("not a value")
    kind, content = cast("tuple[Any, Any]", data)
    if not isinstance(kind, str):
        raise ValueError("not a value")  # noqa: TRY004 - the data is wrong, not the program
    items = cast("list[Any]", content if isinstance(content, list) else ())
    try:
        if kind in _SCALARS and isinstance(content, str):
            return _SCALARS[kind](content)
        if kind == "d" and isinstance(content, list):
            return {decode(key, depth + 1): decode(item, depth + 1) for key, item in items}
        if kind in _COLLECTIONS and isinstance(content, list):
            return _COLLECTIONS[kind](decode(item, depth + 1) for item in items)
    except TypeError as error:  # something that cannot be hashed, as a key or in a set
        raise ValueError("not a key") from error
    raise ValueError("not a value")


def _integer(text: str) -> int:
    return int(text, 16)


def _remote(text: str) -> RemoteValue:
    return RemoteValue(clean(text))


def clean(text: str) -> str:
    """Text without lone surrogates, which can be neither stored nor sent on."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_SCALARS: dict[str, Any] = {"i": _integer, "f": float, "c": complex, "b": unpack_bytes, "o": _remote}
_COLLECTIONS: dict[str, Any] = {letter: kind for kind, letter in _LETTERS.items()}
