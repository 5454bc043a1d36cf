"""Messages over pipes: four bytes of length, then JSON; bytes in them are base64."""

from __future__ import annotations

import base64
import json
import os
import struct
from typing import Any

HEAD = struct.Struct(">I")


class OwnerGoneError(Exception):
    """The pipe to the owner is closed: there is nobody left to work for."""


def receive(fd: int) -> Any:
    """The next message; waits for it."""
    (length,) = HEAD.unpack(_exactly(fd, HEAD.size))
    return json.loads(_exactly(fd, length))


def send(fd: int, message: object) -> None:
    """One message, whole."""
    body = json.dumps(message).encode()
    data = memoryview(HEAD.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]


def packed(data: bytes) -> str:
    """Bytes, so that JSON takes them."""
    return base64.b64encode(data).decode("ascii")


def unpacked(text: str) -> bytes:
    """The bytes again; `ValueError` when they were none."""
    return base64.b64decode(text, validate=True)


def _exactly(fd: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count:
        piece = os.read(fd, min(count, 1 << 20))
        if not piece:
            raise OwnerGoneError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
