"""What adapters on top of a provider's SDK share: clients, streams, and failures put into our words."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from threading import Lock
from typing import Any, Protocol, Self, Unpack
from weakref import WeakKeyDictionary

from .core import LoopOptions, ProviderAdapter
from .exchange import ModelRequest, ModelTurn
from .failures import RequestFailed
from .sdk import ProviderWords, failure_of, is_missing_key, missing_key


class Accumulator(Protocol):
    """Puts the pieces of a stream together."""

    def feed(self, event: Any, /) -> None:
        """Take the next piece."""
        ...

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when pieces are missing."""
        ...


class SdkAdapter(ProviderAdapter):
    """Asks through an SDK client whose own retries are off.

    Clients are made on first use: one for plain code, one for each event loop. `close` and `aclose` end those made
    here; a client that was handed in stays its owner's.

    Args:
        words: how errors speak of the provider.
        timeout: seconds a request may take; the deadline shortens it.
        extra: what else to send with every request, in the provider's own words.
    """

    def __init__(
        self,
        words: ProviderWords,
        *,
        timeout: float = 600.0,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        super().__init__(**options)
        if timeout <= 0:
            raise ValueError(f"timeout must be more than 0 seconds, got {timeout!r}.")
        self.words = words
        self.timeout = timeout
        self.extra = dict(extra or {})
        self._given = None if client is None else client.with_options(max_retries=0)
        self._given_async = None if async_client is None else async_client.with_options(max_retries=0)
        self._made: Any = None
        self._made_async: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._clients = Lock()

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.words.model

    # What a provider adds.

    @abstractmethod
    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""

    @abstractmethod
    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request; an awaitable where the client is async. A stream where `request.on_text` is set."""

    @abstractmethod
    def read(self, response: Any, request: ModelRequest) -> ModelTurn:
        """The turn in a response that was not streamed."""

    @abstractmethod
    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""

    # Asking.

    def ask(self, request: ModelRequest) -> ModelTurn:
        """Send one request and wait for the answer; `RequestFailed` says how it failed."""
        try:
            answer = self.send(self._client(), request, self._seconds(request))
            if request.on_text is None:
                return self.read(answer, request)
            pieces = self.accumulator(request)
            try:
                for event in answer:
                    pieces.feed(event)
                    self._check_time(request)
            finally:
                close = getattr(answer, "close", None)
                if close is not None:
                    close()
            return pieces.turn()
        except RequestFailed:
            raise
        except Exception as error:
            raise self._failure(error) from error

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Like `ask`, for async code."""
        try:
            answer = await self.send(self._async_client(), request, self._seconds(request))
            if request.on_text is None:
                return self.read(answer, request)
            pieces = self.accumulator(request)
            try:
                async for event in answer:
                    pieces.feed(event)
                    self._check_time(request)
            finally:
                close = getattr(answer, "close", None) or getattr(answer, "aclose", None)
                if close is not None:
                    await close()
            return pieces.turn()
        except RequestFailed:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _seconds(self, request: ModelRequest) -> float:
        return self.timeout if request.timeout is None else max(min(self.timeout, request.timeout), 0.001)

    def _check_time(self, request: ModelRequest) -> None:
        if request.out_of_time is not None and request.out_of_time():
            raise RequestFailed("timeout", "the deadline passed while the answer was coming in")

    def _failure(self, error: Exception) -> Exception:
        if is_missing_key(error):
            return missing_key(error, self.words)
        known = failure_of(error, self.words)
        if known is not None:
            return known
        if isinstance(error, AttributeError | TypeError | LookupError | ValueError):
            text = f"{self.words.provider} sent an answer that cannot be read: {type(error).__name__}: {error}"
            return RequestFailed("malformed", text)
        return error

    # Clients.

    def _client(self) -> Any:
        if self._given is not None:
            return self._given
        with self._clients:
            if self._made is None:
                self._made = self.make_client(is_async=False)
            return self._made

    def _async_client(self) -> Any:
        if self._given_async is not None:
            return self._given_async
        loop = asyncio.get_running_loop()  # connections belong to the loop they were opened in
        with self._clients:
            client = self._made_async.get(loop)
            if client is None:
                client = self._made_async[loop] = self.make_client(is_async=True)
            return client

    def close(self) -> None:
        """Close the connections of plain code; the next request opens new ones."""
        with self._clients:
            client, self._made = self._made, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those of plain code."""
        self.close()
        with self._clients:
            client = self._made_async.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


__all__ = ["Accumulator", "SdkAdapter"]
