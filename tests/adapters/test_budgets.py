"""Budgets that limit: passed, shared or bound as a resource, every one of them counts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from weakincentives.adapters import ToolExecutor, TurnAdapter
from weakincentives.budget import Budget, BudgetTracker, TokenUsage
from weakincentives.deadlines import Deadline
from weakincentives.errors import BudgetExceededError, PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, ResourceRegistry, Scope
from weakincentives.runtime import PendingToolTracker, ToolCall
from weakincentives.session import Session
from weakincentives.testing import ScriptedAdapter, call, say

TEN = TokenUsage(input=10)


def narrow() -> Budget:
    return Budget(max_total_tokens=15)


def wide() -> Budget:
    return Budget(max_total_tokens=1000)


def blocking(adapter: TurnAdapter, *args: Any, **options: Any) -> Any:
    return adapter.evaluate(*args, **options)


def awaiting(adapter: TurnAdapter, *args: Any, **options: Any) -> Any:
    return asyncio.run(adapter.aevaluate(*args, **options))


both_ways = pytest.mark.parametrize("evaluate", [blocking, awaiting])


def looking(contexts: list[Any], bound: Any = None) -> Prompt[Any]:
    """A prompt whose tool notes the tracker of its context and the one among its resources."""

    def look(params: None, *, context: ToolContext) -> ToolResult[str]:
        contexts.append((context.budget_tracker, context.resources.get(BudgetTracker, None)))
        assert (BudgetTracker in context.resources) == (context.budget_tracker is not None)
        return ToolResult.ok("seen")

    tool = Tool[None, str](name="look", description="Look.", handler=look)
    prompt = Prompt(name="looking", sections=[MarkdownSection(title="T", tools=[tool])])
    return prompt if bound is None else prompt.bind(resources=bound)


def script(turns: int = 3) -> ScriptedAdapter:
    """Ten tokens a turn."""
    return ScriptedAdapter(*[call("look") for _ in range(turns - 1)], say("Done."), usage=TEN)


@both_ways
def test_a_budget_holds_beside_a_tracker(evaluate: Callable[..., Any]) -> None:
    """The narrow one stops, whichever it is; the tracker counts all the same."""
    tracker = BudgetTracker(wide())
    with pytest.raises(PromptEvaluationError, match="15 total tokens is used up: 20 spent") as caught:
        evaluate(script(), looking([]), Session(), budget=narrow(), budget_tracker=tracker)
    assert caught.value.phase == "budget"
    assert tracker.consumed.total == 20
    tracker = BudgetTracker(narrow())
    with pytest.raises(PromptEvaluationError, match="15 total tokens is used up: 20 spent"):
        evaluate(script(), looking([]), Session(), budget=wide(), budget_tracker=tracker)
    assert tracker.consumed.total == 20


@both_ways
def test_a_bound_tracker_is_the_tracker_of_the_run(evaluate: Callable[..., Any]) -> None:
    """It counts, it stops, and it is what the context has."""
    tracker, seen = BudgetTracker(narrow()), list[Any]()
    with pytest.raises(PromptEvaluationError, match="20 spent") as caught:
        evaluate(script(), looking(seen, {BudgetTracker: tracker}), Session())
    assert caught.value.phase == "budget"
    assert tracker.consumed.total == 20
    assert seen == [(tracker, tracker)]


@both_ways
def test_a_bound_tracker_may_be_built_by_a_provider(evaluate: Callable[..., Any]) -> None:
    """Also lazily, and by an async provider."""
    made = list[BudgetTracker]()

    def build(_: object) -> BudgetTracker:
        made.append(BudgetTracker(narrow()))
        return made[-1]

    async def build_later(_: object) -> BudgetTracker:
        return build(_)

    for provider in (build, build_later):
        registry = ResourceRegistry.of(Binding(BudgetTracker, provider))
        with pytest.raises(PromptEvaluationError, match="20 spent"):
            evaluate(script(), looking([], registry), Session())
        assert made[-1].consumed.total == 20
    assert len(made) == 2


@both_ways
def test_all_three_count_and_each_stops(evaluate: Callable[..., Any]) -> None:
    """A bound tracker, a passed one and a budget."""
    for number in range(3):
        limits = [narrow() if number == place else wide() for place in range(3)]
        bound, passed = BudgetTracker(limits[0]), BudgetTracker(limits[1])
        prompt = looking([], {BudgetTracker: bound})
        with pytest.raises(PromptEvaluationError, match="15 total tokens is used up: 20 spent"):
            evaluate(script(), prompt, Session(), budget_tracker=passed, budget=limits[2])
        assert bound.consumed.total == passed.consumed.total == 20


@both_ways
def test_the_tracker_of_a_budget_is_among_the_resources(evaluate: Callable[..., Any]) -> None:
    """`context.budget_tracker` is a short cut for the resource, however the run was limited."""
    for options in ({"budget": wide()}, {"budget_tracker": BudgetTracker(wide())}, {}):
        seen = list[Any]()
        evaluate(script(2), looking(seen), Session(), **options)
        ((short_cut, resource),) = seen
        assert short_cut is resource
        assert (short_cut is None) == (not options)
    evaluate(script(2), looking(seen := []), Session(), budget_tracker=(tracker := BudgetTracker(wide())))
    assert seen == [(tracker, tracker)]


def test_the_same_tracker_bound_and_passed_counts_once() -> None:
    """One object is one tracker."""
    tracker = BudgetTracker(wide())
    script().evaluate(looking([], {BudgetTracker: tracker}), Session(), budget_tracker=tracker)
    assert tracker.consumed.total == 30


def test_what_a_handler_spends_counts_in_all() -> None:
    """An evaluation inside a call, on the context's tracker, is paid by the budget around it and by the shared one."""
    shared = BudgetTracker(wide())

    def delegate(params: None, *, context: ToolContext) -> ToolResult[str]:
        answer = script(2).evaluate(looking([]), Session(), budget_tracker=context.budget_tracker)
        return ToolResult.ok(answer.text)

    tool = Tool[None, str](name="look", description="Delegate.", handler=delegate)
    prompt = Prompt(name="outer", sections=[MarkdownSection(title="T", tools=[tool])])
    with pytest.raises(PromptEvaluationError, match="25 total tokens is used up: 30 spent"):
        script().evaluate(prompt, Session(), budget=Budget(max_total_tokens=25), budget_tracker=shared)
    assert shared.consumed.total == 30


def test_the_deadline_of_a_bound_budget_holds() -> None:
    """As that of `budget=` does."""
    late, soon = Deadline.after(timedelta(hours=1)), Deadline.after(timedelta(milliseconds=1))
    while not soon.expired:
        pass
    bound = {BudgetTracker: BudgetTracker(Budget(deadline=soon))}
    with pytest.raises(PromptEvaluationError) as caught:
        script().evaluate(looking([], bound), Session(), deadline=late)
    assert caught.value.phase == "deadline"


def test_an_executor_without_a_model_is_stopped_too() -> None:
    """By a bound tracker that others have used up: of our own calls and of native ones."""
    tracker = BudgetTracker(narrow())
    tracker.record("elsewhere", TokenUsage(input=16))
    seen, session = list[Any](), Session()
    with ToolExecutor(prompt=looking(seen, {BudgetTracker: tracker}), session=session) as executor:
        assert executor.execute(ToolCall("1", "look", "{}")).outcome == "refused"
        assert executor.budget_tracker is tracker
    assert seen == []
    native = PendingToolTracker(session=session, resources=ResourceRegistry.build({BudgetTracker: tracker}))
    refused = native.begin_tool_execution(tool_use_id="n1", tool_name="Write")
    assert refused is not None
    assert "15 total tokens is used up" in refused.text


def test_a_tracker_for_each_call_is_the_calls_own() -> None:
    """Bound for calls, it counts what its call records, and limits no run."""
    seen = list[Any]()
    binding = Binding(BudgetTracker, lambda _: BudgetTracker(narrow()), scope=Scope.TOOL_CALL)
    script().evaluate(looking(seen, ResourceRegistry.of(binding)), Session())
    (first, same), (second, _) = seen
    assert first is same is not second


def test_a_tracker_within_another_counts_in_both() -> None:
    """And is stopped by both; the error carries what was spent."""
    outer = BudgetTracker(narrow())
    inner = BudgetTracker(wide(), within=[outer])
    inner.record("a", TEN)
    outer.record("b", TEN)
    assert (inner.consumed.total, outer.consumed.total) == (10, 20)
    with pytest.raises(BudgetExceededError) as caught:
        inner.check()
    assert caught.value.consumed == TokenUsage(input=20)
    assert caught.value.dimension == "total"
