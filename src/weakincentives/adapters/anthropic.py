"""Claude models behind Anthropic's Messages API, or behind any server that speaks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack, final

from .core import LoopOptions
from .exchange import ModelRequest, ModelTurn
from .messages_format import PROVIDER, MessagesStream, messages_arguments, read_messages
from .sdk import ProviderWords, load
from .sdk_adapter import Accumulator, SdkAdapter


@final
class AnthropicAdapter(SdkAdapter):
    """Asks through the `anthropic` package.

    Construction raises ImportError without the package (`pip install 'weakincentives[anthropic]'`) and sends nothing.
    The key comes from ANTHROPIC_API_KEY unless it is given; a server of one's own needs none.

    Args:
        model: its name.
        max_tokens: how much the model may write in one turn; the API wants to know.
        cache: let the provider keep the beginning of the conversation, so that the next turn costs less.
        base_url: another server.
        extra: further fields of the request's body, such as `{"thinking": {"type": "adaptive"}}`.
        client: an `anthropic.Anthropic` of one's own; `async_client` an `anthropic.AsyncAnthropic`. Neither is closed
            here.
        options: as of every adapter: `max_turns`, `request_timeout`, `throttle`, ...
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int = 16_384,
        cache: bool = True,
        base_url: str | None = None,
        api_key: str | None = None,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        provider = "Anthropic" if base_url is None else base_url
        words = ProviderWords(provider, "ANTHROPIC_API_KEY", "AnthropicAdapter", model)
        super().__init__(words, extra=extra, client=client, async_client=async_client, **options)
        self._sdk = load("anthropic", "anthropic")
        self._max_tokens = max_tokens
        self._cache = cache
        self._base_url = base_url
        self._api_key = api_key

    @property
    def name(self) -> str:
        """How events and errors call it."""
        return PROVIDER

    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""
        cls = self._sdk.AsyncAnthropic if is_async else self._sdk.Anthropic
        http = self.http_client(self._sdk.DefaultAsyncHttpxClient if is_async else self._sdk.DefaultHttpxClient)
        key = self._api_key or (None if self._base_url is None else os.environ.get("ANTHROPIC_API_KEY") or "none")
        return cls(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        made = messages_arguments(request)
        # As fields of the body, since not every version of the package has arguments for them.
        further = {"cache_control": {"type": "ephemeral"}, **self.extra} if self._cache else self.extra
        return client.messages.create(
            model=self.model, max_tokens=self._max_tokens, timeout=timeout, extra_body=further or None, **made
        )

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - nothing to undo here
        """The turn in a response."""
        return read_messages(response)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return MessagesStream(request)


__all__ = ["AnthropicAdapter"]
