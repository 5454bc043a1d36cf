"""The host's end of the pipes to a container. Whatever comes from there is hostile: bounded, JSON, in time."""

from __future__ import annotations

import json
import os
import selectors
from struct import Struct
from time import monotonic
from typing import Any, Final, cast, final

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


__all__ = ["HEAD", "MAX_REQUEST", "BrokenPipeline", "Pipeline"]
