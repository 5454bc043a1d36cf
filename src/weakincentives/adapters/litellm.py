"""Models behind LiteLLM, which speaks to most providers there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, final

from .chat_format import ChatStream, chat_arguments, read_chat
from .core import LoopOptions
from .exchange import ModelRequest, ModelTurn
from .sdk import ProviderWords, load
from .sdk_adapter import Accumulator, SdkAdapter


@final
class LiteLLMAdapter(SdkAdapter):
    """Asks through the `litellm` package.

    Construction raises ImportError without the package (`pip install 'weakincentives[litellm]'`) and sends nothing;
    importing it takes seconds. Keys come from the variables of the provider that the model's name begins with.

    Args:
        model: provider and name, such as "groq/llama-3.3-70b".
        base_url: another server; `api_key` its key.
        strict: send strict schemas, as `OpenAIAdapter` does; off by default, as not every provider takes them.
        native_output: ask for JSON by schema where the answer is typed; off by default likewise.
        extra: further arguments of `litellm.completion`.
        options: as of every adapter: `max_turns`, `manual`, `throttle`, ...
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        strict: bool = False,
        native_output: bool = False,
        max_tokens: int | None = None,
        timeout: float = 600.0,
        extra: Mapping[str, Any] | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        variable = f"{model.partition('/')[0].upper()}_API_KEY" if "/" in model else "the provider's key variable"
        words = ProviderWords("LiteLLM", variable, "LiteLLMAdapter", model)
        super().__init__(words, timeout=timeout, extra=extra, **options)
        self._sdk = load("litellm", "litellm")
        self._where = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
        self._strict = strict
        self._native_output = native_output
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """How events and errors call it."""
        return "litellm"

    def make_client(self, *, is_async: bool) -> Any:
        """There is no client to make: the package's functions keep their own."""
        return _AsyncFunctions(self._sdk.acompletion) if is_async else _Functions(self._sdk.completion)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        made = chat_arguments(request, strict=self._strict, native_output=self._native_output)
        limit = {} if self._max_tokens is None else {"max_tokens": self._max_tokens}
        fields = {**made, **limit, **self._where, **self.extra}
        return client.completion(model=self.model, timeout=timeout, num_retries=0, max_retries=0, **fields)

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:
        """The turn in a response."""
        return read_chat(response, request)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return ChatStream(request)


class _Functions:
    """In the place of a client; holds nothing that would have to be closed."""

    def __init__(self, completion: Any) -> None:
        self.completion = completion

    def close(self) -> None:
        pass


class _AsyncFunctions:
    """The same, awaited."""

    def __init__(self, completion: Any) -> None:
        self.completion = completion

    async def close(self) -> None:
        pass


__all__ = ["LiteLLMAdapter"]
