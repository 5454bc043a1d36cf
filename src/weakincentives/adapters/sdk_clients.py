"""HTTP clients for the SDKs, made from the SDKs' own classes, with the limits of `guard.py` around every request.

They are subclasses that send differently, so proxies, certificates and connection settings stay the SDK's.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

from ..loop.request_limits import DEFAULT_SECONDS, MAX_ANSWER_BYTES, Attention, Guard, on_trace, unpacker
from ..loop.throttle import RequestFailed


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
                yield from self._guard.unpack(self._inner, self._packed)
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
            request.extensions = {**request.extensions, "trace": on_trace}
            options["follow_redirects"] = False
            response: Any = None
            guard.start()
            try:
                with Attention(guard):
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


__all__ = ["guarded_client"]
