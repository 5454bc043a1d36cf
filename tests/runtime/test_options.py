"""One value for "how to run": the same options for an evaluation, a loop and an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import pytest

from weakincentives import runtime
from weakincentives.adapters import History, PromptResponse, ToolExecutionContext, ToolExecutor, UserMessage
from weakincentives.budget import Budget, BudgetTracker, TokenUsage
from weakincentives.deadlines import Deadline
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import MainLoop, MainLoopConfig, RunOptions, Session, ToolCall, ToolInvoked
from weakincentives.runtime.options import ExecutorKeywords, ExecutorOptions, RunKeywords, StartedOptions
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Params:
    text: str = "x"


def fail(params: Params, *, context: ToolContext) -> ToolResult[str]:
    raise RuntimeError("the cellar is flooded")


def prompt() -> Prompt[Any]:
    tool = Tool[Params, str](name="fail", description="Fail.", handler=fail)
    return Prompt(name="options", sections=[MarkdownSection(title="Task", template="Go.", tools=[tool])])


class Loop(MainLoop[str, Any]):
    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        return prompt(), Session(bus=self.bus)


def after(**duration: float) -> Deadline:
    return Deadline.after(timedelta(**duration))


@pytest.mark.parametrize(("options", "keywords"), [(ExecutorOptions, ExecutorKeywords), (RunOptions, RunKeywords)])
def test_the_keywords_are_the_fields(options: Any, keywords: Any) -> None:
    """What an editor completes at `evaluate` and `ToolExecutor` is what the options hold."""
    assert {field.name for field in fields(options)} == keywords.__optional_keys__
    assert all(field.default is None for field in fields(options))


def test_the_engine_reads_no_unstarted_option() -> None:
    """A started run has no budget beside its tracker, no duration and no list of messages; its record is open."""
    asked = {field.name for field in fields(RunOptions)}
    assert {field.name for field in fields(StartedOptions)} == asked - {"budget", "record"} | {"recorder"}
    history = (UserMessage("Hello"),)
    started = RunOptions(deadline=timedelta(hours=1), budget=Budget(max_total_tokens=5), history=history).started()
    assert isinstance(started.deadline, Deadline)
    assert started.budget_tracker is not None
    assert started.history == History(history)
    assert started.hide_errors is False


def test_the_tightest_deadline_holds() -> None:
    """Of the one that was passed, the budget's and the tracker's."""
    soon, later = after(minutes=1), after(minutes=9)
    for options in (
        RunOptions(deadline=soon, budget=Budget(deadline=later)),
        RunOptions(deadline=later, budget=Budget(deadline=soon)),
        RunOptions(deadline=timedelta(hours=1), budget_tracker=BudgetTracker(Budget(deadline=soon))),
        RunOptions(budget=Budget(deadline=later), budget_tracker=BudgetTracker(Budget(deadline=soon))),
    ):
        assert options.started().deadline == soon
    assert RunOptions().started().deadline is None


def test_a_budget_and_a_tracker_both_count() -> None:
    """What is spent is recorded in the shared tracker too."""
    shared = BudgetTracker(Budget(max_total_tokens=100))
    tracker = RunOptions(budget=Budget(max_total_tokens=5), budget_tracker=shared).started().budget_tracker
    assert tracker is not None
    tracker.record("a", TokenUsage(input=3))
    assert shared.consumed.total == 3
    assert RunOptions(budget_tracker=shared).started().budget_tracker is shared


def test_options_over_others() -> None:
    """Each option stands in place of the other's, where it says something; False says something."""
    soon = after(minutes=1)
    config = MainLoopConfig(deadline=timedelta(hours=1), hide_errors=True, resources={})
    chosen = RunOptions(deadline=soon).over(config)
    assert type(chosen) is RunOptions
    assert (chosen.deadline, chosen.hide_errors) == (soon, True)
    assert RunOptions(hide_errors=False).over(config).hide_errors is False


def test_options_as_keywords() -> None:
    """For any adapter: what is None is left out, and a duration has begun."""
    keywords = RunOptions(deadline=timedelta(minutes=1), hide_errors=False).keywords()
    assert set(keywords) == {"deadline", "hide_errors"}
    assert isinstance(keywords.get("deadline"), Deadline)


@pytest.mark.parametrize("options", [RunOptions, MainLoopConfig])
def test_a_deadline_that_is_a_number_is_refused(options: Any) -> None:
    """The error says what to write instead, before anything runs."""
    with pytest.raises(TypeError, match=r"a Deadline or a timedelta, got 30; write timedelta\(seconds="):
        options(deadline=30)


@pytest.mark.parametrize("deadline", [timedelta(0), timedelta(seconds=-1)])
def test_a_duration_leaves_time(deadline: timedelta) -> None:
    """The mistake is named when the options are made."""
    for options in (ExecutorOptions, RunOptions, MainLoopConfig):
        with pytest.raises(ValueError, match="leaves no time"):
            options(deadline=deadline)


@pytest.mark.parametrize("name", ["evaluate", "aevaluate", "execute", "aexecute", "ToolExecutor"])
def test_an_unknown_keyword_is_named(name: str) -> None:
    """The error says which function was called and what it takes."""
    adapter: Any = ScriptedAdapter(say("Done."))
    loop: Any = Loop(adapter)
    unknown: dict[str, Any] = {"dedline": after(minutes=1)}
    calls: dict[str, Callable[[], object]] = {
        "evaluate": lambda: adapter.evaluate(prompt(), Session(), **unknown),
        "aevaluate": lambda: asyncio.run(adapter.aevaluate(prompt(), Session(), **unknown)),
        "execute": lambda: loop.execute("x", **unknown),
        "aexecute": lambda: asyncio.run(loop.aexecute("x", **unknown)),
        "ToolExecutor": lambda: ToolExecutor(prompt=prompt(), session=Session(), **unknown),
    }
    with pytest.raises(TypeError) as raised:
        calls[name]()
    text = str(raised.value)
    assert f"{name}() got an unexpected keyword argument 'dedline'" in text
    known = (ExecutorKeywords if name == "ToolExecutor" else RunKeywords).__optional_keys__
    assert all(keyword in text for keyword in known)
    assert not adapter.requests


@pytest.mark.parametrize("option", ["on_event", "history"])
def test_an_executor_has_no_model_to_listen_to(option: str) -> None:
    """`on_event` and `history` belong to evaluations."""
    given: dict[str, Any] = {option: None}
    with pytest.raises(TypeError, match=option):
        ToolExecutor(prompt=prompt(), session=Session(), **given)
    with pytest.raises(TypeError, match=option):
        ToolExecutionContext(prompt=prompt(), session=Session(), **given)


def test_started_options_stand_alone() -> None:
    """An executor is given started options or keywords, not both."""
    with pytest.raises(TypeError, match="not both"):
        ToolExecutor(prompt=prompt(), session=Session(), options=StartedOptions(), hide_errors=True)


def test_an_executor_takes_a_duration_and_a_budget() -> None:
    """As an evaluation does; `ToolExecutionContext` passes them on."""
    context = ToolExecutionContext(
        prompt=prompt(), session=Session(), deadline=timedelta(hours=1), budget=Budget(max_total_tokens=5)
    )
    with context.executor() as executor:
        assert executor.deadline is not None
        assert executor.deadline.remaining() > timedelta(minutes=59)
        assert executor.budget_tracker is not None


@pytest.mark.parametrize("adapters", [None, True, False])
@pytest.mark.parametrize("own", [None, True, False])
def test_hiding_errors_for_one_evaluation(adapters: bool | None, own: bool | None) -> None:
    """`hide_errors=` of an evaluation stands in place of the adapter's setting."""
    settings: dict[str, Any] = {} if adapters is None else {"hide_errors": adapters}
    session = Session()
    ScriptedAdapter(call("fail"), say("Done."), **settings).evaluate(prompt(), session, hide_errors=own)
    hidden = bool(adapters) if own is None else own
    assert ("flooded" not in session[ToolInvoked].all()[0].rendered_output) is hidden


def test_a_loop_passes_every_option_on() -> None:
    """What the config says holds for every request; what a request says holds for it."""
    session_history = History((UserMessage("Earlier."),))
    loop = Loop(ScriptedAdapter(say("Done."), say("Done.")), config=MainLoopConfig(history=session_history))
    response, _ = loop.execute("x")
    assert response.history.messages[0] == UserMessage("Earlier.")
    response, _ = loop.execute("x", history=History((UserMessage("Other."),)))
    assert response.history.messages[0] == UserMessage("Other.")


def test_the_next_manual_step_has_its_own_listener() -> None:
    """`on_event` is each step's; the limits are the first one's."""
    first: list[Any] = []
    second: list[Any] = []
    session = Session()
    adapter = ScriptedAdapter(call("fail"), say("Done."), manual=True, usage=TokenUsage(input=3))
    tracker = BudgetTracker(Budget(max_total_tokens=100))
    response = adapter.evaluate(prompt(), session, on_event=first.append, budget_tracker=tracker)
    seen = len(first)
    replies = [open_call.execute() for open_call in response.tool_calls]
    seen_after_calls = len(first)
    adapter.evaluate(prompt(), session, tool_results=replies, on_event=second.append)
    assert seen
    assert len(first) == seen_after_calls + 1  # the answer that was given for the first step's call
    assert second
    assert tracker.consumed.total == 6


def test_the_former_name_of_the_response() -> None:
    """`LoopResponse` can be imported for one more release."""
    with pytest.warns(DeprecationWarning, match="PromptResponse"):
        assert runtime.LoopResponse is PromptResponse


def test_a_call_by_hand() -> None:
    """The executor's options reach the call."""
    with ToolExecutor(prompt=prompt(), session=Session(), hide_errors=True) as executor:
        assert "flooded" not in executor.execute(ToolCall("1", "fail", "{}")).text
