"""What adapters on top of a provider's SDK share: clients, streams, and translated errors."""

from __future__ import annotations

import asyncio
import base64
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress
from types import AsyncGeneratorType
from typing import Any, Protocol, Unpack, cast
from weakref import WeakKeyDictionary, finalize

from ..budget import TokenUsage
from ..content import Content
from ..interrupts import Lock
from ..loop.adapter import AdapterKeywords, TurnAdapter
from ..loop.attachments import Accepts, attached
from ..loop.request import ModelRequest, ModelTurn, RequestFailed
from ..waiting import BLOCKING, OutOfTime, drive
from .model_settings import ModelSettings
from .sdk_clients import guarded_client
from .sdk_errors import ProviderWords, broken_limit, failure_of, is_missing_key, missing_key


class Accumulator(Protocol):
    """Puts the pieces of a stream together."""

    def feed(self, event: Any, /) -> None:
        """Take the next piece."""
        ...

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when pieces are missing."""
        ...


class SdkAdapter(TurnAdapter):
    """Asks through an SDK client whose own retries are off.

    Clients are made on first use: one for synchronous code, one for each event loop. `close` and `aclose` end those
    made here. Without them they end with the adapter, and those of an event loop with the loop, too. A client that was
    handed in stays its owner's, and so do the sizes and redirects that it allows: the time of its requests is bounded
    here, in a worker thread that is left to itself when it is over.

    Args:
        words: the provider's name in error messages.
        base_url: another server than the provider's, which may need no key.
        extra: further fields of every request's body, in the provider's own words.
        media_types: which images and documents the model is sent, such as `["image/png"]`; `()` for a model that only
            reads text. Without it, what the provider's models take.
        options: `temperature`, `top_p`, `seed` and `tool_choice`, see `ModelSettings`; those of every adapter.
    """

    clients_keep_time = True
    """Whether the clients made here end a blocking request in time by themselves."""

    def __init__(
        self,
        words: ProviderWords,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        temperature: float | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        tool_choice: str | None = None,
        media_types: Collection[str] | None = None,
        **options: Unpack[AdapterKeywords],
    ) -> None:
        super().__init__(**options)
        self.accepts: Accepts = self.accepts.with_types(media_types)
        self.model_settings: ModelSettings = ModelSettings(
            temperature=temperature, top_p=top_p, seed=seed, tool_choice=tool_choice
        )
        self.words = words
        self._base_url = base_url
        self._api_key = api_key
        self.extra: dict[str, Any] = dict(extra or {})
        self._given = None if client is None else client.with_options(max_retries=0)
        self._given_async = None if async_client is None else async_client.with_options(max_retries=0)
        self._made: Any = None
        self._close_made: Any = None
        self._made_async: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, AsyncGeneratorType[None, None]]]
        self._made_async = WeakKeyDictionary()
        self._clients = Lock()

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.words.model

    # What a provider adds.

    @abstractmethod
    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""

    def http_client(self, base: Any) -> Any:
        """An HTTP client for `make_client`, made from the SDK's own class, that holds to this adapter's limits."""
        return guarded_client(base, self.settings.max_answer_bytes, timeout=self.settings.request_timeout)

    def sdk_client(self, sdk: Any, name: str, *, is_async: bool) -> Any:
        """A client for `make_client`, of an SDK that has the classes `name` and `Async` + `name`."""
        prefix = "Async" if is_async else ""
        http = self.http_client(getattr(sdk, f"Default{prefix}HttpxClient"))
        key = self._api_key or (None if self._base_url is None else os.environ.get(self.words.key_variable) or "none")
        return getattr(sdk, prefix + name)(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

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
        seconds = self._seconds(request)
        if self._given is None and self.clients_keep_time:
            return self._ask(request)
        try:
            return drive(BLOCKING.within(seconds, lambda: self._ask(request), is_async=False))
        except OutOfTime:
            raise self._too_late(seconds) from None

    def _ask(self, request: ModelRequest) -> ModelTurn:
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
            raise self._failure_of(error, request) from error

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Like `ask`, for async code."""
        seconds = self._seconds(request)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._aask(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._too_late(seconds) from None

    async def _aask(self, request: ModelRequest) -> ModelTurn:
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
            raise self._failure_of(error, request) from error

    def _seconds(self, request: ModelRequest) -> float:
        limit = self.settings.request_timeout
        return limit if request.timeout is None else max(min(limit, request.timeout), 0.001)

    def _too_late(self, seconds: float) -> RequestFailed:
        return RequestFailed("timeout", f"{self.words.provider} did not answer within {seconds:g} seconds")

    def _check_time(self, request: ModelRequest) -> None:
        if request.out_of_time is not None and request.out_of_time():
            raise RequestFailed("timeout", "the deadline passed while the answer was coming in")

    def _failure_of(self, error: Exception, request: ModelRequest) -> Exception:
        """What the exception means; of a refused request with images it may be these that were refused."""
        failure = self._failure(error)
        if not isinstance(failure, RequestFailed) or failure.kind not in {"refused", "context"}:
            return failure
        kinds = ", ".join(sorted({content.media_type for content in attached(request.messages)}))
        if not kinds:
            return failure
        return RequestFailed(
            failure.kind,
            f"{failure}\nThe request held {kinds}. If {self.model} does not take that, say what it takes with "
            f"media_types= of {self.words.adapter}, () for none.",
        )

    def _failure(self, error: Exception) -> Exception:
        broken = broken_limit(error)
        if broken is not None:
            return RequestFailed(broken.kind, f"{self.words.provider}: {broken}")
        if is_missing_key(error):
            return missing_key(error, self.words)
        known = failure_of(error, self.words)
        if known is not None:
            return known
        if isinstance(
            error, AttributeError | LookupError | ValueError | TypeError | RecursionError
        ) and not _is_our_call(error):
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
                # An adapter may be dropped without `close`. By then it is too late for a finalizer of the client: in a
                # reference cycle its sockets may be finalized first.
                self._close_made = finalize(self, self._made.close)
            return self._made

    def _async_client(self) -> Any:
        if self._given_async is not None:
            return self._given_async
        loop = asyncio.get_running_loop()  # connections belong to the loop they were opened in
        with self._clients:
            client, open_until = self._made_async.get(loop, (None, None))
            if open_until is None or open_until.ag_frame is None:
                client = self.make_client(is_async=True)
                open_until = cast("AsyncGeneratorType[None, None]", _open_until_dropped(client))
                with suppress(StopIteration):
                    open_until.__anext__().send(None)  # begun: from here on the loop closes it
                self._made_async[loop] = client, open_until
            return client

    def close(self) -> None:
        """Close the connections of synchronous code; the next request opens new ones. See `TurnAdapter.close`."""
        super().close()
        with self._clients:
            close, self._made, self._close_made = self._close_made, None, None
        if close is not None:
            close()

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those of synchronous code. See `TurnAdapter.close`."""
        await super().aclose()
        with self._clients:
            made = self._made_async.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made[1].aclose()


def base64_of(content: Content) -> str:
    """An image or a document as providers take it."""
    return base64.b64encode(content.data).decode("ascii")


def data_url(content: Content) -> str:
    """The same with its media type before it."""
    return f"data:{content.media_type};base64,{base64_of(content)}"


async def _open_until_dropped(client: Any) -> AsyncGenerator[None, None]:
    """Close a client in its event loop, when the loop or the adapter ends.

    A loop closes the async generators that were begun in it when it ends (`asyncio.run`), and those that are dropped
    before. Nothing else can await in the loop at either time.
    """
    try:
        yield
    finally:
        await client.close()


def _is_our_call(error: Exception) -> bool:
    """Whether the SDK was called wrongly, which is not a fault of the answer."""
    return isinstance(error, TypeError) and "unexpected keyword argument" in str(error)


# Token counts in one vocabulary; providers name them differently and leave out what they like.


def openai_usage(usage: Any) -> TokenUsage:
    """Of Chat Completions (`prompt_tokens`) and Responses (`input_tokens`) alike."""
    if usage is None:
        return TokenUsage()
    details_in = _get(usage, "input_tokens_details") or _get(usage, "prompt_tokens_details")
    details_out = _get(usage, "output_tokens_details") or _get(usage, "completion_tokens_details")
    return TokenUsage(
        input=_count(usage, "input_tokens") or _count(usage, "prompt_tokens"),
        output=_count(usage, "output_tokens") or _count(usage, "completion_tokens"),
        cached=_count(details_in, "cached_tokens"),
        reasoning=_count(details_out, "reasoning_tokens"),
    )


def anthropic_usage(usage: Any) -> TokenUsage:
    """Of Messages, where `input_tokens` leaves out what the cache was asked for."""
    if usage is None:
        return TokenUsage()
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    return TokenUsage(
        input=_count(usage, "input_tokens") + read + written,
        output=_count(usage, "output_tokens"),
        cached=read,
        reasoning=_count(_get(usage, "output_tokens_details"), "thinking_tokens"),
    )


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _count(source: Any, name: str) -> int:
    found = None if source is None else _get(source, name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0
