"""HTTP clients for the SDKs, made from the SDKs' own classes, with limits around every request.

How long it may take in all, how much it may answer, where it may lead. What breaks a limit is `RequestFailed`, which
the SDKs pass on as the cause of their own errors; `sdk_adapter.py` finds it there. The clients are subclasses that send
differently, so proxies, certificates and connection settings stay the SDK's.
"""

from __future__ import annotations

import socket
import sys
import time
import zlib
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from threading import Timer
from typing import Any, final

from ..interrupts import Lock
from ..loop.request import DEFAULT_SECONDS, MAX_ANSWER_BYTES, RequestFailed

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

    def unpacked(self, piece: bytes, packed: Any) -> Iterator[bytes]:
        """A piece of a body, counted and unpacked by `unpacker`'s no more than a MiB at a time: 1 KB may hold 1 MB."""
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


@contextmanager
def _serving(guard: Guard) -> Generator[None]:
    """The connections that this thread uses meanwhile serve that request."""
    token = _CURRENT.set(guard)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _on_trace(name: str, info: dict[str, Any]) -> None:
    """The `trace` extension of a blocking request: have new connections tell the current guard what is sent on them.

    The trace speaks of new connections only. A connection that is used again is known by the request's first bytes.
    """
    if not name.endswith((".connect_tcp.complete", ".start_tls.complete", ".connect_unix_socket.complete")):
        return
    connection = info["return_value"]
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


# The clients.


def guarded_client(base: Any, max_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> Any:
    """A client of class `base`: httpx's or httpx2's `Client` or `AsyncClient`, or an SDK's subclass of one.

    The time a request may take in all is its `timeout` for reading; an `AsyncClient` leaves it to the task around it,
    which can be cancelled. Redirects are followed once, to the same origin and
    with the same method; any other is `RequestFailed`. The caller closes the client.
    """
    library = _library(base)
    make = _async_class if issubclass(base, library.AsyncClient) else _class
    client = make(base, library)(follow_redirects=False, **options)
    client.max_answer_bytes = max_bytes
    return client


def _library(base: Any) -> Any:
    for cls in base.__mro__:
        root = cls.__module__.partition(".")[0]
        if root in {"httpx", "httpx2"}:
            return sys.modules[root]
    raise TypeError(f"{base!r} is not a client of httpx or httpx2.")


@cache
def _class(base: Any, library: Any) -> Any:
    class GuardedStream(library.SyncByteStream):
        """A body that is counted, unpacked and timed while it is read. Closing it gives its connection back."""

        def __init__(self, inner: Any, guard: Guard, packed: Any) -> None:
            self._inner, self._guard, self._packed = inner, guard, packed

        def __iter__(self) -> Iterator[bytes]:
            try:
                for piece in self._inner:
                    yield from self._guard.unpacked(piece, self._packed)
            except library.TransportError:
                self._guard.check_time()  # the connection was shut down by us
                raise
            self._guard.check_time()

        def close(self) -> None:
            self._guard.finish()
            self._inner.close()

    class GuardedClient(base):
        """Sends with limits; see `guarded_client`."""

        max_answer_bytes = MAX_ANSWER_BYTES

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            guard = Guard(_prepare(request), self.max_answer_bytes)
            request.extensions = {**request.extensions, "trace": _on_trace}
            options["follow_redirects"] = False
            response: Any = None
            guard.start()
            try:
                with _serving(guard):
                    response = base.send(self, request, stream=True, **options)
                    again = _redirected(request, response)
                    if again is not None:
                        guard.use(None)
                        response.close()
                        response = base.send(self, again, stream=True, **options)
                        _refuse_redirect(response)
                response.stream = GuardedStream(response.stream, guard, _unpacker(response))
                if not stream:
                    response.read()
            except BaseException as error:
                guard.finish()
                if response is not None:
                    response.close()
                if isinstance(error, library.TransportError):
                    guard.check_time()  # the connection was shut down by us
                raise
            return response

    return GuardedClient


@cache
def _async_class(base: Any, library: Any) -> Any:
    class GuardedStream(library.AsyncByteStream):
        """A body that is counted, unpacked and timed while it is read. Closing it gives its connection back."""

        def __init__(self, inner: Any, guard: Guard, packed: Any) -> None:
            self._inner, self._guard, self._packed = inner, guard, packed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._inner:
                for plain in self._guard.unpacked(piece, self._packed):
                    yield plain

        async def aclose(self) -> None:
            await self._inner.aclose()

    class GuardedClient(base):
        """Sends with limits; see `guarded_client`."""

        max_answer_bytes = MAX_ANSWER_BYTES

        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            guard = Guard(_prepare(request), self.max_answer_bytes)
            options["follow_redirects"] = False
            response: Any = None
            try:
                response = await base.send(self, request, stream=True, **options)
                again = _redirected(request, response)
                if again is not None:
                    await response.aclose()
                    response = await base.send(self, again, stream=True, **options)
                    _refuse_redirect(response)
                response.stream = GuardedStream(response.stream, guard, _unpacker(response))
                if not stream:
                    await response.aread()
            except BaseException:
                if response is not None:
                    await response.aclose()
                raise
            return response

    return GuardedClient


def _prepare(request: Any) -> float:
    """Ask for a plain body; the seconds that the request may take."""
    request.headers["accept-encoding"] = "identity"
    seconds = request.extensions.get("timeout", {}).get("read")
    return DEFAULT_SECONDS if seconds is None else seconds


def _redirected(request: Any, response: Any) -> Any:
    """The request to send instead, None when there is none; `RequestFailed` for a redirect that is not followed."""
    again = response.next_request
    if again is not None and again.method == request.method and _origin(again.url) == _origin(request.url):
        return again
    _refuse_redirect(response)
    return None


def _refuse_redirect(response: Any) -> None:
    if response.next_request is not None:
        url = response.next_request.url
        where = f"{url.scheme}://{url.netloc.decode(errors='replace')}"  # with the port, without a password
        raise RequestFailed(
            "refused",
            f"the server redirected the request to {where[:200]!r}, where it was not sent. "
            "If that is the right address, pass it as base_url=.",
        )


def _origin(url: Any) -> tuple[Any, ...]:
    return url.scheme, url.host, url.port


def _unpacker(response: Any) -> Any:
    """What unpacks the body; the header goes, so that the client does not unpack it again, without limits."""
    return unpacker(response.headers.pop("content-encoding", ""))
