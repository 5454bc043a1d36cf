"""What a container answered, taken apart with suspicion."""

from __future__ import annotations

import base64
import binascii
import json
import os
import selectors
from collections.abc import Mapping
from struct import Struct
from time import monotonic
from typing import Any, Final, cast, final

from ...errors import SandboxError


@final
class Answer:
    """Fields of an answer, of the type that is asked for; `SandboxError` for any other."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """A string; empty when it is missing."""
        return self._typed(name, str, "")[:4000]

    def number(self, name: str) -> int:
        """An integer; 0 when it is missing."""
        return self._typed(name, int, 0)

    def data(self, name: str) -> bytes:
        """Bytes; none when they are missing."""
        return _unpacked(self._typed(name, str, ""))

    def files(self, name: str) -> dict[str, bytes]:
        """Bytes by path."""
        found = cast(dict[Any, Any], self._typed(name, dict, {}))
        if not all(isinstance(content, str) for content in found.values()):
            raise _nonsense(name)
        return {str(path): _unpacked(content) for path, content in found.items()}

    @staticmethod
    def packed(data: bytes) -> str:
        """Bytes, so that JSON takes them."""
        return base64.b64encode(data).decode("ascii")

    def _typed(self, name: str, kind: type[Any], missing: Any) -> Any:
        value = self._fields.get(name, missing)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _nonsense(name)
        return value


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _nonsense("its data") from None


def _nonsense(what: str) -> SandboxError:
    return SandboxError(f"The container answered nonsense ({what}). What it did is undone.")


# The host's end of the pipes to a container. Whatever comes from there is hostile: bounded, JSON, in time.


HEAD: Final = Struct(">I")
MAX_REQUEST: Final = 256 * 1024 * 1024


class BrokenPipeline(Exception):  # noqa: N818 - the state of it
    """Nothing sensible comes from there any more; the text says why."""


@final
class Pipeline:
    """Sends one message and waits for one. Does not own its descriptors."""

    __slots__ = ("_incoming", "_outgoing")

    def __init__(self, outgoing: int, incoming: int) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        for fd in (outgoing, incoming):
            os.set_blocking(fd, False)

    def send(self, body: bytes, until: float) -> None:
        """One message, whole; `BrokenPipeline` when it is not taken in time."""
        rest = memoryview(HEAD.pack(len(body)) + body)
        with selectors.DefaultSelector() as selector:
            selector.register(self._outgoing, selectors.EVENT_WRITE)
            while rest:
                self._wait(selector, until)
                try:
                    rest = rest[os.write(self._outgoing, rest) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise BrokenPipeline("it is gone") from error

    def receive(self, most: int, until: float) -> dict[str, Any]:
        """The next message, an object; `BrokenPipeline` when it is too long, malformed or late."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._incoming, selectors.EVENT_READ)
            (length,) = HEAD.unpack(self._exactly(HEAD.size, selector, until))
            if length > most:
                raise BrokenPipeline(f"it announced {length:,} bytes where at most {most:,} are taken")
            data = self._exactly(length, selector, until)
        try:
            message: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BrokenPipeline("it sent what is no JSON") from error
        if not isinstance(message, dict):
            raise BrokenPipeline("it sent no object")
        return cast(dict[str, Any], message)

    def _exactly(self, count: int, selector: selectors.BaseSelector, until: float) -> bytes:
        pieces: list[bytes] = []
        while count:
            self._wait(selector, until)
            try:
                piece = os.read(self._incoming, min(count, 1 << 20))
            except BlockingIOError:
                continue
            if not piece:
                raise BrokenPipeline("it is gone")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _wait(self, selector: selectors.BaseSelector, until: float) -> None:
        seconds = until - monotonic()
        if seconds <= 0 or not selector.select(seconds):
            raise BrokenPipeline("it does not answer")
