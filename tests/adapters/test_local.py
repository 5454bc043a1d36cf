"""The real small model: it cannot follow a script, but it makes only valid calls, gets every answer and ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.conftest import needs

from weakincentives.adapters import AnswerMessage, CallFinished, ModelMessage, PromptResponse, TextDelta, history_of
from weakincentives.adapters.local import LocalAdapter
from weakincentives.adapters.local_weights import have_weights
from weakincentives.budget import Budget
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext
from weakincentives.results import ToolResult
from weakincentives.runtime import PromptExecuted, Session, ToolInvoked

pytestmark = pytest.mark.slow  # a model


@dataclass(frozen=True)
class Add:
    a: int
    b: int


@dataclass(frozen=True)
class Paint:
    colour: Literal["red", "green"]
    parts: tuple[Literal["door", "roof"], ...]
    coats: int | None = None


@dataclass(frozen=True)
class Tree:
    depth: int
    child: Tree | None = None


@dataclass(frozen=True)
class Verdict:
    fine: bool
    colour: Literal["red", "green"]


def _add(params: Add, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(str(params.a + params.b), message="Added.")


def _paint(params: Paint, *, context: ToolContext) -> ToolResult[str]:
    context.session[Paint].append(params)
    if params.colour == "red":
        return ToolResult.error("There is no red paint.")
    return ToolResult.ok(f"Painted {params.colour}.")


def _grow(params: Tree, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok("Grown.")


ADD = Tool[Add, str](name="add", description="Add two numbers.", handler=_add)
PAINT = Tool[Paint, str](name="paint", description="Paint parts of the house.", handler=_paint)


@pytest.fixture(scope="module")
def adapter() -> Iterator[LocalAdapter]:
    needs(
        "local-model",
        present=find_spec("xllamacpp") is not None and have_weights(),
        install="pip install 'weakincentives[local]' && wink model fetch",
    )
    with LocalAdapter(max_calls=2, max_turns=4, max_tokens=60) as made:
        yield made


def _prompt(text: str, *tools: Tool[Any, Any]) -> Prompt[Any]:
    return Prompt(name="local", sections=[MarkdownSection(title="Task", template=text, tools=tools)])


def _all_answered(response_history: Any) -> None:
    calls = [call.id for item in response_history.messages if isinstance(item, ModelMessage) for call in item.calls]
    answers = [item.call_id for item in response_history.messages if isinstance(item, AnswerMessage)]
    assert calls == answers
    assert len(set(calls)) == len(calls)


def test_the_model_calls_a_tool_and_answers(adapter: LocalAdapter) -> None:
    """Every call is valid and answered once, the run ends with a text, and its tokens are counted."""
    session = Session()
    response: PromptResponse[Any] = adapter.evaluate(_prompt("What is 17 + 25? Use the tool.", ADD), session)
    events = session[ToolInvoked].all()
    assert events
    assert {event.outcome for event in events} == {"succeeded"}
    assert all(isinstance(event.params, Add) for event in events)
    assert response.text
    assert response.turns <= 3
    assert response.usage.input > 0
    assert response.usage.output > 0
    _all_answered(response.history)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 8))])
def test_calls_are_valid_whatever_the_model_dreams(seed: int, adapter: LocalAdapter) -> None:
    """At a high temperature the arguments still fit enums, arrays and optional fields; failed calls leave nothing."""
    session = Session()
    dreaming = LocalAdapter(max_calls=2, max_turns=4, max_tokens=120, temperature=1.5, seed=seed)
    dreaming._server = adapter._loaded()
    response: PromptResponse[Any] = dreaming.evaluate(_prompt("Paint the roof, then add it up.", ADD, PAINT), session)
    outcomes = {event.outcome for event in session[ToolInvoked].all()}
    assert outcomes <= {"succeeded", "failed"}
    painted = [e.params for e in session[ToolInvoked].all() if e.tool_name == "paint" and e.success]
    assert list(session[Paint].all()) == painted
    _all_answered(response.history)


def test_a_typed_answer_is_always_of_its_type(adapter: LocalAdapter) -> None:
    """An output type becomes the grammar of the answer."""
    template = PromptTemplate[Verdict](
        ns="t", key="v", sections=[MarkdownSection(title="Task", template="Is the green door fine?")]
    )
    response = adapter.evaluate(Prompt(template), Session())
    assert isinstance(response.output, Verdict)


def test_a_typed_answer_beside_tools(adapter: LocalAdapter) -> None:
    """With tools the typed answer is inside the envelope and comes out of it."""
    section = MarkdownSection(title="Task", template="Is the green door fine?", tools=[ADD])
    response = adapter.evaluate(Prompt(PromptTemplate[Verdict](ns="t", key="w", sections=[section])), Session())
    assert isinstance(response.output, Verdict)


@pytest.mark.torture
def test_types_that_contain_themselves(adapter: LocalAdapter) -> None:
    """A recursive argument type and a recursive answer are grammars too."""
    short = LocalAdapter(max_tokens=40, max_calls=1, output_retries=0)
    short._server = adapter._loaded()
    tool = Tool[Tree, str](name="grow", description="Grow a tree.", handler=_grow)
    section = MarkdownSection(title="Task", template="Grow a tree of depth 1.", tools=[tool, ADD])
    for sections in ([section], [MarkdownSection(title="Task", template="Give a tree of depth 1.")]):
        template = PromptTemplate[Tree](ns="t", key="tree", sections=sections)
        phase = ""
        try:
            assert isinstance(short.evaluate(Prompt(template), Session()).output, Tree)
        except PromptEvaluationError as error:
            phase = error.phase
        assert phase in {"", "response"}, "being cut for length is all that may go wrong"


def test_text_comes_piece_by_piece_without_its_envelope(adapter: LocalAdapter) -> None:
    """`on_event` sees the answer as it is written, and nothing of the JSON around it."""
    seen: list[Any] = []
    prompt = _prompt("What is 17 + 25? Use the tool.", ADD)
    response: PromptResponse[Any] = adapter.evaluate(prompt, Session(), on_event=seen.append)
    pieces = [event.text for event in seen if isinstance(event, TextDelta)]
    assert "".join(pieces) == response.text
    assert len(pieces) > 1
    assert any(isinstance(event, CallFinished) for event in seen)


def test_a_cut_answer_says_so(adapter: LocalAdapter) -> None:
    """`max_tokens` ends a turn in the middle, and the response says why it stopped."""
    short = LocalAdapter(max_tokens=3)
    short._server = adapter._loaded()
    response: PromptResponse[Any] = short.evaluate(_prompt("Tell a long story."), Session())
    assert response.stop_reason == "max_tokens"
    assert response.usage.output == 3


def test_the_deadline_stops_it_between_tokens(adapter: LocalAdapter) -> None:
    """A deadline in the middle of a long text ends the evaluation soon after it."""
    session = Session()
    adapter.evaluate(_prompt("Say hi."), session)  # loaded
    long = LocalAdapter(max_tokens=3000)
    long._server = adapter._loaded()
    started = time.monotonic()
    with pytest.raises(PromptEvaluationError) as caught:
        long.evaluate(_prompt("Tell a very long story."), session, deadline=Deadline.after(timedelta(seconds=1)))
    assert caught.value.phase == "deadline"
    assert time.monotonic() - started < 15
    assert history_of(caught.value) is not None
    assert session[PromptExecuted].latest().stop_reason == "error"  # pyright: ignore[reportOptionalMemberAccess]
    # Nothing goes on behind our back: the next request is served at once.
    assert adapter.evaluate(_prompt("Say hi."), session).text


def test_a_request_has_a_total_time(adapter: LocalAdapter) -> None:
    """It counts from the start, though nothing is written before a long prompt is read; async code has the same."""
    del adapter  # the library and the weights are there
    slow = LocalAdapter(context=2048, request_timeout=1.0)
    long = _prompt("Say hi. " + "Some words to read. " * 300)
    started = time.monotonic()
    with pytest.raises(PromptEvaluationError, match=r"after 1 seconds\. request_timeout= allows more"):
        slow.evaluate(long, Session())
    with pytest.raises(PromptEvaluationError, match=r"after 1 seconds\. request_timeout= allows more"):
        asyncio.run(slow.aevaluate(long, Session()))
    assert time.monotonic() - started < 20


def test_cancelling_stops_it_between_tokens(adapter: LocalAdapter) -> None:
    """A cancelled evaluation stops generating; the model is free for the next one."""
    long = LocalAdapter(max_tokens=3000)
    long._server = adapter._loaded()

    async def cancel() -> None:
        running = asyncio.ensure_future(long.aevaluate(_prompt("Tell a very long story."), Session()))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    started = time.monotonic()
    asyncio.run(cancel())
    assert adapter.evaluate(_prompt("Say hi."), Session()).text
    assert time.monotonic() - started < 15


def test_an_exception_between_tokens_is_not_lost(adapter: LocalAdapter) -> None:
    """Ctrl-C while the model writes reaches the caller."""
    from threading import Event

    from weakincentives.adapters import ModelRequest, UserMessage

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapter._generate(ModelRequest((UserMessage("Hello"),), on_text=interrupt), Event())


def test_the_token_budget_ends_it(adapter: LocalAdapter) -> None:
    """A budget that is used up after the first turn lets no further call or turn happen."""
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(_prompt("What is 17 + 25? Use the tool.", ADD), Session(), budget=Budget(max_total_tokens=20))
    assert caught.value.phase == "budget"


def test_a_conversation_that_is_too_long_names_the_fix(adapter: LocalAdapter) -> None:
    """More text than the context holds is refused with the name of the argument to raise."""
    with pytest.raises(PromptEvaluationError, match="larger context="):
        adapter.evaluate(_prompt("word " * 6000), Session())


def test_a_file_that_is_no_model_names_the_fix(adapter: LocalAdapter, tmp_path: Path) -> None:
    """Something else than a GGUF file is found out with the first request."""
    (tmp_path / "x.gguf").write_bytes(b"nonsense")
    with pytest.raises(PromptEvaluationError, match="Give it a GGUF file"):
        LocalAdapter(tmp_path / "x.gguf").evaluate(_prompt("Hi"), Session())


def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, building the adapter says how to install it."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ImportError, match=r"pip install 'weakincentives\[local\]'"):
        LocalAdapter()


def test_missing_weights_name_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the weights, building the adapter says how to fetch them; a wrong path is named."""
    monkeypatch.setitem(sys.modules, "xllamacpp", sys)
    monkeypatch.setenv("WINK_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="wink model fetch"):
        LocalAdapter()
    with pytest.raises(FileNotFoundError, match=r"There is no model file '.*none.gguf'"):
        LocalAdapter(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="1 or more"):
        LocalAdapter(max_calls=0)
