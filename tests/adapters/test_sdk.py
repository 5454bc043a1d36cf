"""Packages and clients: loaded when needed, told not to retry, used from any event loop, closed by who made them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import warnings
import weakref
from datetime import timedelta
from typing import Any

import pytest
from tests.adapters.loopback import Drop, LoopbackServer, Slow, Status
from tests.adapters.wires import CONNECTORS, connected

from weakincentives.adapters import ReasoningDelta, TextDelta, Throttle
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.litellm import LiteLLMAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.sdk_errors import load, retry_after
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, ToolExample, tool
from weakincentives.session import Session
from weakincentives.testing import call, say
from weakincentives.testing.adapter_contract import Workshop, assert_no_orphans

pytestmark = pytest.mark.slow  # servers

every_wire = pytest.mark.parametrize("wire", CONNECTORS)


def test_no_sdk_is_imported_before_it_is_needed() -> None:
    """Importing the adapters imports no provider's package."""
    code = (
        "import sys, weakincentives.adapters.openai, weakincentives.adapters.anthropic;"
        "import weakincentives.adapters.litellm, weakincentives.testing;"
        "print([m for m in ('openai', 'anthropic', 'litellm', 'httpx', 'httpx2') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("adapter", "extra"), [(OpenAIAdapter, "openai"), (AnthropicAdapter, "anthropic"), (LiteLLMAdapter, "litellm")]
)
def test_a_missing_package_names_its_command(adapter: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ImportError says what to install."""
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(ImportError, match=rf"pip install 'weakincentives\[{extra}\]'"):
        adapter("model")


def test_a_package_without_a_release_for_this_python_names_what_works() -> None:
    """The command alone would install nothing, so the error says what takes the package's place."""
    with pytest.raises(ImportError, match=r"no release of it for this Python.*OpenAIAdapter\(model, base_url"):
        load("a_package_that_is_not_there", "litellm", before=(3, 11))
    with pytest.raises(ImportError, match=r"Install it: pip install 'weakincentives\[litellm\]'$"):
        load("a_package_that_is_not_there", "litellm", before=(4, 0))


def test_wrong_settings_are_refused() -> None:
    """When the adapter is made, not when it is used."""
    with pytest.raises(ValueError, match="'responses' or 'chat'"):
        OpenAIAdapter("m", api="assistants")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="timeout"):
        AnthropicAdapter("m", request_timeout=0)


@every_wire
def test_one_adapter_serves_several_event_loops(wire: str) -> None:
    """Each loop has its own connections; plain code has others."""
    shop = Workshop()

    async def once(adapter: Any) -> str:
        try:
            return (await adapter.aevaluate(shop.prompt, shop.session)).text
        finally:
            await adapter.aclose()

    with connected(wire, say("1"), say("2"), say("3")) as (adapter, _):
        assert asyncio.run(once(adapter)) == "1"
        assert adapter.evaluate(shop.prompt, shop.session).text == "2"
        assert asyncio.run(once(adapter)) == "3"


@every_wire
def test_faults_are_waited_out_by_async_code(wire: str) -> None:
    """The same for `aevaluate`, streaming or not."""
    shop = Workshop()
    fault = Status(429, {"type": "rate_limit_error"}, {"retry-after-ms": "10"})

    async def both(adapter: Any) -> list[str]:
        async with adapter:
            whole = await adapter.aevaluate(shop.prompt, shop.session)
            assert_no_orphans(whole.history)
            streamed = await adapter.aevaluate(shop.prompt, shop.session, on_event=print)
            return [whole.text, streamed.text]

    turns = [fault, Drop(after=20), call("write", path="1"), say("Whole."), fault, Drop(after=20), say("Streamed.")]
    with connected(wire, *turns) as (adapter, server):
        assert asyncio.run(both(adapter)) == ["Whole.", "Streamed."]
        server.assert_complete()


@every_wire
def test_a_deadline_ends_a_slow_request_of_async_code(wire: str) -> None:
    """At once, and other tasks go on meanwhile."""
    shop = Workshop()

    async def evaluate(adapter: Any) -> None:
        async with adapter:
            await adapter.aevaluate(shop.prompt, shop.session)  # the first time takes longer
            start, ticks = time.monotonic(), 0
            task = asyncio.ensure_future(
                adapter.aevaluate(shop.prompt, shop.session, deadline=Deadline.after(timedelta(seconds=0.4)))
            )
            while not task.done():
                await asyncio.sleep(0.02)
                ticks += 1
            assert ticks > 1
            assert time.monotonic() - start < 30
            await task

    turns = (say("Ready."), Slow(60, say("Late.")))
    with connected(wire, *turns) as (adapter, _), pytest.raises(PromptEvaluationError) as caught:
        asyncio.run(evaluate(adapter))
    assert caught.value.phase == "deadline"


@every_wire
def test_a_request_that_was_given_up_on_is_not_heard(wire: str) -> None:
    """Nothing is told after `evaluate` has raised, though the request may still be running."""
    shop = Workshop()
    events: list[Any] = []
    with connected(wire, Slow(1.0, say("Late."))) as (adapter, _):
        with pytest.raises(PromptEvaluationError):
            adapter.evaluate(
                shop.prompt,
                shop.session,
                deadline=Deadline.after(timedelta(seconds=0.3)),
                on_event=events.append,
            )
        told = len(events)
        time.sleep(1.2)
        assert len(events) == told


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_a_client_of_ones_own_is_used_and_not_closed(package: str) -> None:
    """With its retries off, whatever it was made with."""
    sdk: Any = pytest.importorskip(package)
    shop = Workshop()
    with LoopbackServer(Status(500), say("Yes.")) as server:
        if package == "openai":
            client = sdk.OpenAI(base_url=server.url, api_key="k", max_retries=5)
            adapter: Any = OpenAIAdapter("m", client=client, throttle=Throttle(base=0.0))
        else:
            client = sdk.Anthropic(base_url=server.url, api_key="k", max_retries=5)
            adapter = AnthropicAdapter("m", client=client, throttle=Throttle(base=0.0))
        events: list[Any] = []
        assert adapter.evaluate(shop.prompt, shop.session, on_event=events.append).text == "Yes."
        adapter.close()
        assert not client.is_closed()
        client.close()
    assert [type(event).__name__ for event in events][:2] == ["TurnStarted", "Retrying"]


def test_settings_reach_the_service() -> None:
    """Model, limits, the system text and what else was given."""
    shop = Workshop()
    options: dict[str, Any] = {"system": "Be brief.", "max_tokens": 77, "extra": {"temperature": 0.5}}
    for wire, system, limit in (
        ("chat", "messages", "max_completion_tokens"),
        ("responses", "instructions", "max_output_tokens"),
        ("messages", "system", "max_tokens"),
    ):
        with connected(wire, say("Yes."), **options) as (adapter, server):
            adapter.evaluate(shop.prompt, shop.session)
            body = server.received[0].body
        assert (body["model"], body["temperature"], body[limit]) == ("scripted", 0.5, 77)
        assert "Be brief." in str(body[system])


def test_thinking_goes_back_as_it_came() -> None:
    """What a provider signed or encrypted is returned untouched, and only to that provider."""
    shop = Workshop()
    with connected("messages", call("read", path="a.txt"), say("Done.")) as (adapter, server):
        response = adapter.evaluate(shop.prompt, shop.session, on_event=lambda _: None)
        blocks = server.received[1].body["messages"][1]["content"]
        assert blocks[0] == {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
        assert blocks[1]["input"] == {"path": "a.txt"}
    with connected("responses", call("read", path="a.txt"), say("Done.")) as (adapter, server):
        adapter.evaluate(shop.prompt, shop.session)
        assert server.received[1].body["input"][1]["encrypted_content"] == "x1"
    with connected("responses", say("On.")) as (adapter, server):
        adapter.evaluate(shop.prompt, shop.session, history=response.history)
        assert "signature" not in str(server.received[0].body)


class _Response:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": " 1.5 "}, 1.5),
        ({"retry_after": "2", "retry_after_ms": "300"}, 0.3),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry_after_ms": "-5"}, 0.0),
        ({"retry_after_ms": "inf"}, None),
        ({"retry_after_ms": "nan"}, None),
        ({"retry_after_ms": "1e99", "retry_after": "7"}, 7.0),
        ({"retry_after_ms": "soon", "retry_after": "7"}, 7.0),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "9" * 400}, None),
        ({"retry_after": "86401"}, None),
        ({"retry_after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, a date; nonsense counts as nothing."""
    error = Exception()
    error.response = _Response(**headers)  # pyright: ignore[reportAttributeAccessIssue]
    assert retry_after(error) == seconds
    assert retry_after(Exception()) is None


@pytest.mark.parametrize("in_a_cycle", [False, True])
@every_wire
def test_connections_end_with_an_adapter_that_is_dropped(wire: str, in_a_cycle: bool) -> None:
    """Also without `close`, and in whatever order the collector comes by."""
    shop = Workshop()
    with LoopbackServer(say("Kept.")) as server:
        adapter: Any = CONNECTORS[wire](server.url)
        assert adapter.evaluate(shop.prompt, shop.session).text == "Kept."
        client = weakref.ref(adapter._client())
        if in_a_cycle:
            adapter.itself = adapter
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", ResourceWarning)
            del adapter
            gc.collect()
        assert [str(warning.message) for warning in seen if warning.category is ResourceWarning] == []
        left = client()
        assert left is None or left.is_closed()


@pytest.mark.parametrize("dropped", ["after its loop", "within its loop", "never"])
@every_wire
def test_connections_end_with_their_event_loop_or_a_dropped_adapter(wire: str, dropped: str) -> None:
    """Also without `aclose`: what `asyncio.run` opened is closed when it returns, or when the adapter is gone."""
    with warnings.catch_warnings(record=True) as seen, LoopbackServer(say("One."), say("Two.")) as server:
        warnings.simplefilter("always", ResourceWarning)
        adapters: list[Any] = [CONNECTORS[wire](server.url)]

        async def ask() -> Any:
            shop = Workshop()
            await adapters[0].aevaluate(shop.prompt, shop.session)
            client = adapters[0]._async_client()
            if dropped == "within its loop":
                adapters.clear()
                gc.collect()
                for _ in range(50):
                    await asyncio.sleep(0.01)
                assert client.is_closed()
            return client

        client = asyncio.run(ask())
        assert client.is_closed()
        if dropped == "never":
            assert asyncio.run(ask()) is not client
        adapters.clear()
        gc.collect()
    assert [str(warning.message) for warning in seen if warning.category is ResourceWarning] == []


@every_wire
def test_a_loop_whose_generators_were_shut_down_gets_new_connections(wire: str) -> None:
    """A client that was closed behind the adapter's back is not used again."""

    async def ask_twice(adapter: Any) -> None:
        for text in ("One.", "Two."):
            shop = Workshop()
            assert (await adapter.aevaluate(shop.prompt, shop.session)).text == text
            await adapter._made_async[asyncio.get_running_loop()][1].aclose()  # as `shutdown_asyncgens` does
        await adapter.aclose()

    with LoopbackServer(say("One."), say("Two.")) as server:
        asyncio.run(ask_twice(CONNECTORS[wire](server.url)))


@every_wire
def test_guidance_follows_the_description(wire: str) -> None:
    """Whatever the wire calls it, the model reads description, guidance and examples in one text."""

    def double(params: int) -> int:
        """Double a number.

        Never call it for 0.
        """
        return params * 2

    made = tool(double)
    assert made.params_type is not None
    example = ToolExample("Once", made.params_type(params=1), 2)
    prompt = Prompt(name="maths", sections=[MarkdownSection(title="T", tools=[made.replace(examples=[example])])])
    with connected(wire, say("Done.")) as (adapter, server):
        adapter.evaluate(prompt, Session())
    (sent,) = server.received[0].body["tools"]
    text = sent.get("function", sent)["description"]
    assert text == 'Double a number.\n\nNever call it for 0.\n\nExamples:\n- Once: {"params": 1} -> 2'


@every_wire
def test_reasoning_is_streamed_beside_the_text(wire: str) -> None:
    """Where a provider sends it; it is no part of the answer."""
    shop = Workshop()

    async def read(adapter: Any) -> list[Any]:
        async with adapter, adapter.stream(shop.prompt, shop.session) as events:
            return [event async for event in events]

    with connected(wire, say("Tea is at four.")) as (adapter, _):
        events = asyncio.run(read(adapter))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert (thought, said) == ("Hm.", "Tea is at four.")
    assert events[-1].response.text == "Tea is at four."
