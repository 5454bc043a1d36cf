"""G7, closed: a policy that raises, or answers something unknown, refuses the call."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.world import Go, Note, World, change, fine, make_tool, ok, outcomes

from weakincentives.errors import ReadOnlyError
from weakincentives.prompt import (
    Decision,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    QuotaPolicy,
    RateLimitPolicy,
    SequentialDependencyPolicy,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import Session, ToolCall
from weakincentives.testing import FakeClock


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    return ToolResult.error("No.") if params.how == "error" else ok()


class Says:
    def __init__(self, verdict: Any) -> None:
        self.verdict: Any = verdict
        self.asked: list[tuple[str, Any]] = []

    def check(self, tool_name: str, params: Any, context: ToolContext) -> Any:
        self.asked.append((tool_name, params))
        if self.verdict in RAISED:
            raise self.verdict
        return self.verdict


class Truthy:
    def __bool__(self) -> bool:
        return True

    allowed = True


RAISED = [RuntimeError, ValueError, KeyError, RecursionError, AssertionError, MemoryError, StopIteration]
ALLOWING = [None, Decision.allow(), Decision("allow")]
REFUSING: list[Any] = [
    "", " ", "no", Decision.refuse("no"), Decision.refuse(""), Decision("ask"), Decision("ALLOW"), Decision("", "x"),
    True, False, 0, 1, [], {}, (), Truthy(), object(), Decision, b"allow", 1.5, *RAISED,
]  # fmt: skip


@pytest.mark.parametrize("verdict", ALLOWING)
def test_what_allows(verdict: Any) -> None:
    """None and `Decision.allow()` let a call pass, and nothing else does."""
    policy = Says(verdict)
    world = World(make_tool(act), policies=[policy])
    assert world.call(arguments={"how": "x"}).success
    assert policy.asked == [("act", Go("x"))]


@pytest.mark.parametrize("verdict", REFUSING, ids=range(len(REFUSING)))
def test_what_refuses(verdict: Any) -> None:
    """Whatever else a policy returns or raises refuses the call: nothing ran, one event, the policy is named."""
    world = World(make_tool(act), policies=[Says(None), Says(verdict), Says(None)])
    before = world.picture()
    reply = world.call()
    assert (reply.outcome, reply.is_error) == ("refused", False)
    assert reply.text.endswith("\nRefused by Says.")
    assert world.picture() == before
    assert outcomes(world.events) == ["refused"]


def test_the_first_refusal_wins() -> None:
    """Policies are asked in order; after the first refusal no other is asked."""
    first, second, third = Says(None), Says("second"), Says("third")
    world = World(make_tool(act), policies=[first, second, third])
    assert world.call().text == "second\nRefused by Says."
    assert (len(first.asked), len(second.asked), len(third.asked)) == (1, 1, 0)


def test_policies_cannot_write() -> None:
    """A policy's context refuses writes to session and files, and so refuses its call."""
    raised: list[BaseException] = []

    class Writes:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
            for write in (
                lambda: context.session[Note].append(Note("policy")),
                lambda: context.session.dispatch(Note("policy")),
                lambda: context.session.dispatcher.dispatch("an event"),
                lambda: context.filesystem and context.filesystem.write("kept.txt", "policy"),
                lambda: context.filesystem and context.filesystem.delete("kept.txt"),
            ):
                try:
                    write()
                except ReadOnlyError as error:
                    raised.append(error)

    world = World(make_tool(fine), policies=[Writes()])
    before = world.picture()
    world.call()
    assert len(raised) == 5
    assert world.picture() == before


def test_a_policy_sees_params_not_arguments() -> None:
    """Policies are asked after the arguments were checked, and only then."""
    policy = Says(None)
    world = World(make_tool(act), policies=[policy])
    world.call(arguments='{"how": 7}')
    world.call("unknown")
    assert policy.asked == []


def test_policies_of_section_and_template_both_hold() -> None:
    """The section's policies are asked first, then the template's; both must allow."""
    from weakincentives.runtime.executor import ToolExecutor

    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
            order.append(self.name)
            return "no" if self.name == "template" else None

    section = MarkdownSection(title="S", template="", tools=[make_tool(fine)], policies=[Named("section")])
    template = PromptTemplate[Any](ns="t", key="k", sections=[section], policies=[Named("template")])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    assert executor.execute(ToolCall("1", "act", {})).text == "no\nRefused by template."
    assert order == ["section", "template"]


def test_a_sequence_is_learnt_from_successes_only() -> None:
    """A tool that must follow another is refused until the other has succeeded, not merely been called."""
    world = World(
        make_tool(act, "build", max_repeats=None),
        make_tool(act, "deploy"),
        policies=[SequentialDependencyPolicy({"deploy": ["build"]})],
    )
    assert world.call("deploy").outcome == "refused"
    world.call("build", {"how": "error"})
    assert world.call("deploy").outcome == "refused"
    world.call("build")
    assert world.call("deploy").success


def test_a_quota_counts_admitted_calls() -> None:
    """A quota is used up by calls that ran, failed ones too, not by refused ones."""
    world = World(make_tool(act, max_repeats=None), policies=[QuotaPolicy(2)])
    world.call("unknown")
    world.call(arguments="[]")
    ends = [world.call(arguments={"how": how}).outcome for how in ("error", "", "")]
    assert ends == ["failed", "succeeded", "refused"]


def test_a_rate_limit_opens_again() -> None:
    """A rate limit refuses within the minute and allows after it, by the session's clock."""
    clock = FakeClock()
    world = World(make_tool(act, max_repeats=None), policies=[RateLimitPolicy(1)], session=Session(clock=clock))
    assert world.call().success
    assert world.call().outcome == "refused"
    clock.advance(61)
    assert world.call().success


def test_a_quota_holds_for_calls_that_overlap() -> None:
    """Read-only calls of one turn that overlap do not slip past a quota together."""

    def slow(params: Go) -> ToolResult[Any]:
        time.sleep(0.05)
        return ok()

    world = World(make_tool(slow, annotations=ToolAnnotations(read_only=True)), policies=[QuotaPolicy(2)])
    replies = world.executor.execute_all([ToolCall(str(number), "act", {"number": number}) for number in range(6)])
    assert [reply.outcome for reply in replies] == ["succeeded"] * 2 + ["refused"] * 4
