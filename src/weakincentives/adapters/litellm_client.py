"""What LiteLLM sends through: one object that serves both of its ways, with the limits of `guard.py`.

LiteLLM takes a `client=` for a call: its own `HTTPHandler` for most providers, a client of the `openai` package for the
others. Which it wants depends on the provider and on its version. A handler that has the latter's `chat`, too, is right
for both, and nothing has to be set for the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .sdk import load

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


__all__ = ["LiteLLMClient", "litellm_client"]
