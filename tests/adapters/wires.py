"""The adapters with a real client, by name, for tests that are the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.adapters.loopback import LoopbackServer

from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.sdk_adapter import SdkAdapter
from weakincentives.loop.request import Throttle


class Connected(NamedTuple):
    adapter: SdkAdapter
    server: LoopbackServer


def _chat(url: str, **options: Any) -> SdkAdapter:
    return OpenAIAdapter("scripted", base_url=f"{url}/v1", **options)


def _responses(url: str, **options: Any) -> SdkAdapter:
    return OpenAIAdapter("scripted", api="responses", base_url=f"{url}/v1", **options)


def _messages(url: str, **options: Any) -> SdkAdapter:
    return AnthropicAdapter("scripted", base_url=url, **options)


CONNECTORS: dict[str, Callable[..., SdkAdapter]] = {"chat": _chat, "responses": _responses, "messages": _messages}


@contextmanager
def connected(wire: str, *turns: Any, **options: Any) -> Generator[Connected]:
    """An adapter and the server it talks to; failed requests are repeated at once."""
    options.setdefault("throttle", Throttle(base=0.0))
    with LoopbackServer(*turns) as server, CONNECTORS[wire](server.url, **options) as adapter:
        yield Connected(adapter, server)
