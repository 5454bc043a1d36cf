"""Models behind OpenAI's API, or behind any server that speaks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Unpack, final

from ..loop.adapter import LoopOptions
from ..loop.request import ModelRequest, ModelTurn
from .chat_format import ChatStream, chat_arguments, read_chat
from .responses_format import PROVIDER, ResponsesStream, read_responses, responses_arguments
from .sdk_adapter import Accumulator, SdkAdapter
from .sdk_errors import ProviderWords, load

Api = Literal["responses", "chat"]


@final
class OpenAIAdapter(SdkAdapter):
    """Asks through the `openai` package: the Responses API, or Chat Completions.

    Construction raises ImportError without the package (`pip install 'weakincentives[openai]'`) and sends nothing. The
    key comes from OPENAI_API_KEY unless it is given; a server of one's own needs none.

    Args:
        model: its name.
        api: "responses", or "chat"; without it, Chat Completions when there is a `base_url`, since other servers
            know that one best.
        base_url: another server, such as vLLM, Ollama or llama.cpp; without it, what OPENAI_BASE_URL says.
        strict: have the server hold the model to the tools' schemas. Optional fields become nullable for that and come
            back as their defaults; a schema with no strict form is sent as it is.
        native_output: likewise for the final answer of a typed prompt.
        max_tokens: how much the model may write in one turn.
        extra: further fields of the request's body, such as `{"temperature": 0}`.
        client: an `openai.OpenAI` of one's own; `async_client` an `openai.AsyncOpenAI`. Neither is closed here.
        options: as of every adapter: `max_turns`, `request_timeout`, `throttle`, ...
    """

    def __init__(
        self,
        model: str,
        *,
        api: Api | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        strict: bool = True,
        native_output: bool = True,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        if base_url is None and client is None and async_client is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or None  # the SDK reads it, too, but not which API to speak
        words = ProviderWords("OpenAI" if base_url is None else base_url, "OPENAI_API_KEY", "OpenAIAdapter", model)
        super().__init__(words, extra=extra, client=client, async_client=async_client, **options)
        self._sdk = load("openai", "openai")
        self.api: Api = api or ("responses" if base_url is None else "chat")
        if self.api not in {"responses", "chat"}:
            raise ValueError(f"api must be 'responses' or 'chat', got {api!r}.")
        self._base_url = base_url
        self._api_key = api_key
        self._strict = strict
        self._native_output = native_output
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """How events and errors call it."""
        return PROVIDER

    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""
        cls = self._sdk.AsyncOpenAI if is_async else self._sdk.OpenAI
        http = self.http_client(self._sdk.DefaultAsyncHttpxClient if is_async else self._sdk.DefaultHttpxClient)
        key = self._api_key or (None if self._base_url is None else os.environ.get("OPENAI_API_KEY") or "none")
        return cls(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        options = {"strict": self._strict, "native_output": self._native_output}
        if self.api == "chat":
            made = chat_arguments(request, **options)
            limit = {} if self._max_tokens is None else {"max_completion_tokens": self._max_tokens}
            create = client.chat.completions.create
        else:
            made = responses_arguments(request, **options)
            limit = {} if self._max_tokens is None else {"max_output_tokens": self._max_tokens}
            create = client.responses.create
        return create(model=self.model, timeout=timeout, extra_body=self.extra or None, **made, **limit)

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:
        """The turn in a response."""
        return read_chat(response, request) if self.api == "chat" else read_responses(response, request)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return ChatStream(request) if self.api == "chat" else ResponsesStream(request)


__all__ = ["Api", "OpenAIAdapter"]
