"""The limits of one request to a model server: how long it may take in all, how much it may answer, where it may lead.

`sdk_clients.py` puts them around the SDKs' own HTTP clients. What breaks a limit is `RequestFailed`, which the SDKs
pass on as the cause of their own errors; `sdk_adapter.py` finds it there.
"""

from __future__ import annotations

import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any, final

from .throttle import RequestFailed

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""How much a model server may send in answer to one request, headers not counted, packed or unpacked."""

DEFAULT_SECONDS = 600.0
"""How long one request may take in all."""

_PIECE = 1 << 20
_CURRENT: ContextVar[Guard | None] = ContextVar("wink_guard", default=None)
"""The request whose connection this thread is using."""


@final
class Guard:
    """One request: the moment it must be over, and the bytes it may still bring.

    `start` begins the time of a blocking request: when it is over the connection in use is shut down, and whatever
    waits on it returns. (The clients' own timeouts begin anew with every byte.) `finish` must follow, or the connection
    might be shut down while it serves another request; it may be called any number of times.
    """

    __slots__ = ("_connection", "_ended", "_expires", "_lock", "_max_bytes", "_seconds", "_timer", "_unpacked", "_wire")

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._expires = time.monotonic() + seconds
        self._wire = self._unpacked = 0
        self._connection: Any = None
        self._ended = False
        self._lock = Lock()
        self._timer: Timer | None = None

    # Time.

    def start(self) -> None:
        """Begin the time of a blocking request."""
        self._timer = Timer(self._seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def finish(self) -> None:
        """The request is over, and the connection is another's to use."""
        with self._lock:
            self._ended, self._connection = True, None
        if self._timer is not None:
            self._timer.cancel()

    def use(self, connection: Any) -> None:
        """Take note of the connection that serves this request from now on; None for none."""
        with self._lock:
            if not self._ended:
                self._connection = connection
        if connection is not None and self.seconds_left() <= 0:
            self._shut_down()  # it was opened too late, so nothing may be sent on it

    def _shut_down(self) -> None:
        with self._lock:
            connection = None if self._ended else self._connection
            if connection is not None:
                with suppress(OSError):
                    # Not SSLSocket's method, which would make the reader take what is left for plain text.
                    socket.socket.shutdown(connection.get_extra_info("socket"), socket.SHUT_RDWR)

    def seconds_left(self) -> float:
        """What is left; 0 or less when it is over."""
        return self._expires - time.monotonic()

    def check_time(self) -> None:
        """`RequestFailed` when the time is over."""
        if self.seconds_left() <= 0:
            raise self.too_late()

    def too_late(self) -> RequestFailed:
        """What to raise then."""
        return RequestFailed("timeout", f"the answer was not complete after {self._seconds:g} seconds")

    # Size.

    def unpack(self, pieces: Iterator[bytes], packed: Any) -> Iterator[bytes]:
        """The pieces of a body as they were before they were packed; `packed` is `unpacker`'s."""
        for piece in pieces:
            yield from self.unpacked(piece, packed)

    def unpacked(self, piece: bytes, packed: Any) -> Iterator[bytes]:
        """One piece, counted and unpacked by no more than a MiB at a time, since 1 KB may unpack to 1 MB."""
        self.check_time()
        self._wire = self._count(self._wire, piece)
        if packed is None:
            yield piece
            return
        if packed.eof:
            return  # it would keep what follows the end, and copy all of that with each piece
        try:
            while plain := packed.decompress(piece, _PIECE):
                self._unpacked = self._count(self._unpacked, plain)
                yield plain
                piece = packed.unconsumed_tail
        except zlib.error as error:
            raise RequestFailed("malformed", f"the answer could not be unpacked: {error}") from error

    def _count(self, so_far: int, piece: bytes) -> int:
        if so_far + len(piece) > self._max_bytes:
            limit = f"{self._max_bytes / (1 << 20):g} MiB"
            raise RequestFailed("malformed", f"the answer is larger than {limit}. max_answer_bytes= raises the limit.")
        return so_far + len(piece)


def unpacker(encoding: str) -> Any:
    """What unpacks a body with this `content-encoding`, None for a plain one; `RequestFailed` when there is nothing."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return None
    if name in {"gzip", "x-gzip", "deflate"}:
        return zlib.decompressobj(zlib.MAX_WBITS | 32)
    raise RequestFailed("malformed", f"the answer is packed in a way that was not asked for: {name[:40]!r}")


@final
class Attention:
    """`with Attention(guard):` the connections this thread uses meanwhile serve that request."""

    __slots__ = ("_guard", "_token")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._guard)

    def __exit__(self, *exc: object) -> None:
        _CURRENT.reset(self._token)


def on_trace(name: str, info: dict[str, Any]) -> None:
    """The `trace` extension of a blocking request: its guard learns of connections as they are opened."""
    if name.endswith((".connect_tcp.complete", ".start_tls.complete", ".connect_unix_socket.complete")):
        _watch(info["return_value"])


def _watch(connection: Any) -> None:
    """Have a connection tell the current guard whenever something is sent on it.

    The trace speaks of new connections only. A connection that is used again is known by the request's first bytes.
    """
    write = connection.write

    def watched(*arguments: Any, **named: Any) -> Any:
        guard = _CURRENT.get()
        if guard is not None:
            guard.use(connection)
        return write(*arguments, **named)

    connection.write = watched
    guard = _CURRENT.get()
    if guard is not None:
        guard.use(connection)


__all__ = ["DEFAULT_SECONDS", "MAX_ANSWER_BYTES", "Attention", "Guard", "on_trace", "unpacker"]
