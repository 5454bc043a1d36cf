"""Models behind LiteLLM, which speaks to most providers there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, final

from .chat_format import ChatStream, chat_arguments, read_chat
from .core import LoopOptions
from .exchange import ModelRequest, ModelTurn
from .litellm_client import litellm_client
from .sdk import ProviderWords, load
from .sdk_adapter import Accumulator, SdkAdapter


@final
class LiteLLMAdapter(SdkAdapter):
    """Asks through the `litellm` package.

    Construction raises ImportError without the package (`pip install 'weakincentives[litellm]'`) and sends nothing;
    importing it takes seconds. LiteLLM has no release for Python 3.15 yet; there `OpenAIAdapter` with `base_url` speaks
    to most providers. Keys come from the variables of the provider that the model's name begins with.

    Args:
        model: provider and name, such as "groq/llama-3.3-70b".
        base_url: another server; `api_key` its key.
        strict: send strict schemas, as `OpenAIAdapter` does; off by default, as not every provider takes them.
        native_output: ask for JSON by schema where the answer is typed; off by default likewise.
        extra: further arguments of `litellm.completion`.
        options: as of every adapter: `max_turns`, `request_timeout`, `throttle`, ...
    """

    clients_keep_time = False  # some providers of LiteLLM bring clients of their own

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        strict: bool = False,
        native_output: bool = False,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        variable = f"{model.partition('/')[0].upper()}_API_KEY" if "/" in model else "the provider's key variable"
        words = ProviderWords("LiteLLM", variable, "LiteLLMAdapter", model)
        super().__init__(words, extra=extra, **options)
        self._sdk = load("litellm", "litellm", before=(3, 15))
        self._where = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
        self._strict = strict
        self._native_output = native_output
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """How events and errors call it."""
        return "litellm"

    def make_client(self, *, is_async: bool) -> Any:
        """What LiteLLM sends through."""
        return litellm_client(self.model, self._where, self.http_client, is_async=is_async)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        made = chat_arguments(request, strict=self._strict, native_output=self._native_output)
        limit = {} if self._max_tokens is None else {"max_tokens": self._max_tokens}
        fields = {**made, **limit, **self._where, **self.extra}
        complete = self._sdk.acompletion if client.is_async else self._sdk.completion
        return complete(
            **{"client": client.handler, **fields},
            model=self.model,
            timeout=timeout,
            num_retries=0,
            max_retries=0,
        )

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:
        """The turn in a response."""
        return read_chat(response, request)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return ChatStream(request)


__all__ = ["LiteLLMAdapter"]
