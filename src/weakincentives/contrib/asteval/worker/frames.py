"""How host and worker talk: length-prefixed JSON, with marks for the Python values that JSON has no form for.

Either side may send anything; reading is bounded in length, depth and time, and whatever is not as it should be is a
`WrongFrameError`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import socket
import struct
from time import monotonic
from typing import Any, cast, final

MAX_DEPTH = 60
_HEADER = struct.Struct("!I")

# What host and worker say on the control channel, which is not made of frames.

READY = b"ready"
"""From the worker, once: it can be used."""

START = b"s"
"""To the worker, with the channel of an evaluation: have a process ready that waits there for a request."""

KILL = b"k"
"""To the worker: let there be nothing left of that process."""

STATUS = struct.Struct("!i")
"""From the worker, for each `KILL`: how the process ended."""


class WrongFrameError(Exception):
    """What came is no frame, or too long a one."""


class TooBigError(Exception):
    """A value is too big or too deep to be sent."""


@final
class Shown:
    """A value that cannot be sent, as the text it shows."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send one frame, whole."""
    data = json.dumps(message, allow_nan=False).encode()
    channel.sendall(_HEADER.pack(len(data)) + data)


def receive(channel: socket.socket, limit: int, until: float | None = None) -> dict[str, Any] | None:
    """The next frame; None when the other side is gone.

    `TimeoutError` when it is not whole by then, on the clock of `monotonic`; `WrongFrameError` for all else.
    """
    header = _exactly(channel, _HEADER.size, until)
    if header is None:
        return None
    (size,) = _HEADER.unpack(header)
    if size > limit:
        raise WrongFrameError(f"a frame of {size} bytes")
    data = _exactly(channel, size, until)
    if data is None:
        return None
    try:
        message = json.loads(bytes(data), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WrongFrameError(str(error)) from None
    if not isinstance(message, dict):
        raise WrongFrameError("no object")
    return cast(dict[str, Any], message)


def _exactly(channel: socket.socket, size: int, until: float | None) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        if until is not None:
            left = until - monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(left)
        try:
            piece = channel.recv(min(size - len(data), 1 << 16))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return data


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def pack(value: object, room: int, *, show: bool = True) -> Any:
    """The value in a form that JSON has, with one-key objects for the rest.

    What has no form is sent as what it shows, or is a `TypeError`. `TooBigError` beyond `room` bytes or so.
    """
    return _Packer(room, show=show).pack(value, 0)


@final
class _Packer:
    def __init__(self, room: int, *, show: bool) -> None:
        self._room = room
        self._show = show

    def pack(self, value: Any, depth: int) -> Any:
        kind = cast(type[Any], type(value))
        if depth > MAX_DEPTH:
            raise TooBigError("it is nested too deeply")
        self._take(8)
        if value is None or kind is bool:
            return value
        if kind is str:
            self._take(len(value))
            return value
        if kind is int:
            self._take(value.bit_length() // 4)
            return value if value.bit_length() < 64 else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": [repr(value.real), repr(value.imag)]}
        if kind is bytes or kind is bytearray:
            self._take(len(value))
            return {"bytes": base64.b64encode(value).decode()}
        if kind is list:
            return [self.pack(item, depth + 1) for item in value]
        if kind is tuple or kind is set or kind is frozenset:
            return {kind.__name__: [self.pack(item, depth + 1) for item in value]}
        if kind is dict:
            return {"dict": [[self.pack(key, depth + 1), self.pack(item, depth + 1)] for key, item in value.items()]}
        if not self._show:
            raise TypeError(f"there is no form for a {kind.__name__}")
        text = repr(value)
        self._take(len(text))
        return {"shown": text}

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise TooBigError("it is too big")


def unpack(packed: Any) -> Any:
    """What was packed. `WrongFrameError` for what no `pack` gives."""
    try:
        return _unpack(packed, 0)
    except (TypeError, ValueError, binascii.Error, RecursionError, KeyError) as error:
        raise WrongFrameError(str(error)) from None


def _unpack(packed: Any, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise ValueError("too deep")
    if packed is None or isinstance(packed, str | int | float):
        return packed
    if isinstance(packed, list):
        return [_unpack(item, depth + 1) for item in cast(list[Any], packed)]
    ((kind, content),) = packed.items()
    if kind in _SIMPLE:
        return _SIMPLE[kind](content)
    items = cast(list[Any], content)
    if kind == "dict":
        return {_unpack(key, depth + 1): _unpack(item, depth + 1) for key, item in items}
    return _GROUPS[kind](_unpack(item, depth + 1) for item in items)


def _int(text: Any) -> int:
    return int(text, 16)


def _float(text: Any) -> float:
    if text not in {"nan", "inf", "-inf"}:
        raise ValueError("no such float")
    return float(text)


def _complex(parts: Any) -> complex:
    real, imaginary = parts
    return complex(float(real), float(imaginary))


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _shown(text: Any) -> Shown:
    if not isinstance(text, str):
        raise TypeError("no text")
    return Shown(text)


_SIMPLE: dict[str, Any] = {"int": _int, "float": _float, "complex": _complex, "bytes": _bytes, "shown": _shown}
_GROUPS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}

__all__ = [
    "KILL", "MAX_DEPTH", "READY", "START", "STATUS", "Shown", "TooBigError", "WrongFrameError", "pack", "receive",
    "send", "unpack",
]  # fmt: skip
