"""Models behind LiteLLM, which supports most providers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack, final

from ..loop.attachments import IMAGE_TYPES, Accepts
from ..loop.request import ModelRequest, ModelTurn
from .chat_format import ChatStream, chat_arguments, read_chat
from .model_settings import SettingKeywords
from .sdk_adapter import Accumulator, SdkAdapter
from .sdk_errors import ProviderWords, load

# What LiteLLM sends through: one object that serves both of its ways, with the limits of `sdk_clients.py`.
#
# LiteLLM takes a `client=` for a call: its own `HTTPHandler` for most providers, a client of the `openai` package for
# the others. Which it wants depends on the provider and on its version. A handler that has the latter's `chat`, too, is
# right for both, and nothing has to be set for the whole process.


_OF_OPENAI = ("chat", "api_key", "base_url", "_base_url")
"""What LiteLLM uses of a client of the `openai` package."""


class LiteLLMClient(NamedTuple):
    """A handler for `client=`. Closing it closes its connections."""

    handler: Any
    is_async: bool

    def close(self) -> Any:
        """Close its connections; to be awaited where it is async."""
        return self.handler.client.aclose() if self.is_async else self.handler.client.close()


def litellm_client(
    model: str, where: Mapping[str, str], http_client: Callable[[Any], Any], *, is_async: bool
) -> LiteLLMClient:
    """A client for one model; `where` may hold its `base_url` and `api_key`."""
    litellm, openai, httpx = load("litellm", "litellm"), load("openai", "litellm"), load("httpx", "litellm")
    handlers = load("litellm.llms.custom_httpx.http_handler", "litellm")
    base: Any = handlers.AsyncHTTPHandler if is_async else handlers.HTTPHandler
    client = http_client(httpx.AsyncClient if is_async else httpx.Client)

    class Handler(base):
        """LiteLLM's handler over our client; for providers asked through `openai`, also that package's client."""

        def create_client(self, *_: Any, **__: Any) -> Any:
            return client

        def __getattr__(self, name: str) -> Any:
            if name not in _OF_OPENAI:
                raise AttributeError(name)
            _, _, key, url = litellm.get_llm_provider(
                model, api_base=where.get("base_url"), api_key=where.get("api_key")
            )
            made = (openai.AsyncOpenAI if is_async else openai.OpenAI)(
                api_key=key or where.get("api_key"), base_url=url, max_retries=0, http_client=client
            )
            self.__dict__.update({each: getattr(made, each) for each in _OF_OPENAI})
            return self.__dict__[name]

    return LiteLLMClient(Handler(), is_async)


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
        options: `temperature`, `top_p`, `seed`, `tool_choice`, `media_types`;
            those of every adapter: `max_turns`, `throttle`, ...
    """

    accepts: Accepts = Accepts(IMAGE_TYPES)
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
        **options: Unpack[SettingKeywords],
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
        """The name used in events and error messages."""
        return "litellm"

    def make_client(self, *, is_async: bool) -> Any:
        """What LiteLLM sends through."""
        return litellm_client(self.model, self._where, self.http_client, is_async=is_async)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        made = chat_arguments(request, self.model_settings, strict=self._strict, native_output=self._native_output)
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
