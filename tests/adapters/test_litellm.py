"""What is LiteLLM's own; the contract is in `test_contract.py`. Runs where the package is installed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.adapters.loopback import LoopbackServer, Status

from weakincentives.adapters import Throttle
from weakincentives.adapters.litellm import LiteLLMAdapter
from weakincentives.errors import PromptEvaluationError
from weakincentives.testing import say
from weakincentives.testing.adapter_contract import Workshop

pytest.importorskip("litellm", reason="litellm is tested in its own environment", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]


def adapter_for(server: LoopbackServer) -> LiteLLMAdapter:
    return LiteLLMAdapter("openai/m", base_url=f"{server.url}/v1", api_key="k", throttle=Throttle(base=0.0))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("code", [429, 500, 503])
def test_faults_are_waited_out(code: int, streaming: bool) -> None:
    """One request for each attempt, though LiteLLM has retries of its own."""
    shop = Workshop()
    with LoopbackServer(Status(code), Status(code), say("Done.")) as server:
        on_event: Any = print if streaming else None
        assert adapter_for(server).evaluate(shop.prompt, shop.session, on_event=on_event).text == "Done."
        server.assert_complete()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (Status(401, {"message": "Bad key."}), "OPENAI_API_KEY"),
        (Status(404, {"message": "No such model."}), "does not know the model"),
        (Status(400, {"message": "context_length_exceeded: maximum context length is 8 tokens"}), "too long"),
    ],
)
def test_errors_name_the_fix(fault: Status, word: str) -> None:
    """As with the other adapters."""
    shop = Workshop()
    with LoopbackServer(fault, say("Never.")) as server:
        with pytest.raises(PromptEvaluationError, match=word):
            adapter_for(server).evaluate(shop.prompt, shop.session)
        assert len(server.received) == 1


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    shop = Workshop()
    with pytest.raises(PromptEvaluationError, match="OPENAI_API_KEY"):
        LiteLLMAdapter("openai/gpt-4o", throttle=Throttle(max_attempts=1)).evaluate(shop.prompt, shop.session)
