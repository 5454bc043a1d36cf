"""The same script with every adapter: the scripted model, and the real clients against a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.loopback import USAGE, LoopbackServer

from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.litellm import LiteLLMAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.loop.adapter import Adapter
from weakincentives.testing import ScriptedAdapter
from weakincentives.testing.adapter_contract import AdapterContract


class TestScriptedAdapter(AdapterContract):
    def make(self, *turns: Any, **options: Any) -> Adapter:
        return ScriptedAdapter(*turns, usage=USAGE, **options)


class OverTheWire(AdapterContract):
    """A server for each test, and the adapter's connections closed at its end."""

    path = "/v1"

    @pytest.fixture(autouse=True)
    def _closing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))  # no certificates: loading them takes longer than most tests
        self.server: LoopbackServer | None = None
        self.adapter: Any = None
        yield
        if self.adapter is not None:
            self.adapter.close()
        if self.server is not None:
            self.server.close()

    def make(self, *turns: Any, **options: Any) -> Adapter:
        self.server = LoopbackServer(*turns)
        self.adapter = self.connect(self.server.url + self.path, **options)
        return self.adapter

    def connect(self, url: str, **options: Any) -> Adapter:
        raise NotImplementedError

    def finish(self, adapter: Adapter) -> None:
        assert self.server is not None
        self.server.assert_complete()


class TestOpenAIChat(OverTheWire):
    def connect(self, url: str, **options: Any) -> Adapter:
        return OpenAIAdapter("scripted", base_url=url, **options)


class TestOpenAIResponses(OverTheWire):
    def connect(self, url: str, **options: Any) -> Adapter:
        return OpenAIAdapter("scripted", api="responses", base_url=url, **options)


class TestAnthropic(OverTheWire):
    path = ""

    def connect(self, url: str, **options: Any) -> Adapter:
        return AnthropicAdapter("scripted", base_url=url, **options)


@pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is tested in its own environment")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
class TestLiteLLM(OverTheWire):
    def connect(self, url: str, **options: Any) -> Adapter:
        return LiteLLMAdapter("openai/scripted", base_url=url, api_key="none", **options)


del OverTheWire, AdapterContract  # pytest would collect them
