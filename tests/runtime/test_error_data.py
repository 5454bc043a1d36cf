"""Errors carry what happened as data, so that no code has to read it out of a text."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    DeadlineExceededError,
    DispatchError,
    PromptEvaluationError,
    ResourceCycleError,
    RollbackError,
)
from weakincentives.prompt import MarkdownSection, Prompt, Section, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, ResourceRegistry
from weakincentives.session import InProcessDispatcher, Session
from weakincentives.testing import ScriptedAdapter, call, execute_tool, say


class A: ...


class B: ...


def test_a_cycle_names_its_types() -> None:
    """`.cycle` is the circle, from a type back to itself."""
    registry = ResourceRegistry.of(Binding(A, lambda r: (r.get(B), A())[1]), Binding(B, lambda r: (r.get(A), B())[1]))
    with registry.open() as context, pytest.raises(ResourceCycleError) as caught:
        context.get(A)
    assert caught.value.cycle == (A, B, A)


class Stubborn:
    """Cannot be restored."""

    def snapshot(self) -> int:
        return 1

    def restore(self, snapshot: int) -> None:
        raise OSError("disk is gone")

    def release(self, snapshot: int) -> None: ...


def test_a_failed_undo_names_tool_and_causes() -> None:
    """`.tool_name` and `.causes`, by participant."""

    def fail(params: None, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Stubborn)
        return ToolResult.error("No.")

    tool = Tool[None, None](name="fail", description="Fail.", handler=fail)
    with pytest.raises(RollbackError) as caught:
        execute_tool(tool, resources={Stubborn: Stubborn()})
    assert caught.value.tool_name == "fail"
    assert [str(error) for error in caught.value.causes.values()] == ["disk is gone"]


@pytest.mark.slow  # waits for a deadline
def test_a_deadline_inside_a_tool_names_the_tool() -> None:
    """Whether the handler says so, or is stopped; a limit elsewhere names none."""

    go_on = Event()

    def slow(params: None, *, context: ToolContext) -> ToolResult[None]:
        raise DeadlineExceededError("no time left")

    def stuck(params: None, *, context: ToolContext) -> ToolResult[None]:
        go_on.wait(60)
        return ToolResult.ok(None)

    def quick(params: None) -> ToolResult[None]:
        return ToolResult.ok(None)

    def error_of(handler: Any, **options: Any) -> PromptEvaluationError:
        tool = Tool[None, None](name="wait", description="Wait.", handler=handler)
        prompt = Prompt(name="p", sections=[MarkdownSection(title="T", tools=[tool])])
        with pytest.raises(PromptEvaluationError) as caught:
            ScriptedAdapter(call("wait"), say("Never."), max_turns=1).evaluate(prompt, Session(), **options)
        return caught.value

    assert (error_of(slow).phase, error_of(slow).tool_name) == ("deadline", "wait")
    late = error_of(stuck, deadline=Deadline.after(timedelta(seconds=2)))
    go_on.set()
    assert (late.phase, late.tool_name) == ("deadline", "wait")
    assert error_of(quick).tool_name is None


def test_failed_subscribers_can_be_raised() -> None:
    """`raise_if_errors` raises one error with all causes, and nothing when all went well."""
    bus, problems = InProcessDispatcher(), [ValueError("one"), KeyError("two")]
    result = bus.dispatch("unheard")
    result.raise_if_errors()

    def first(event: str) -> None:
        raise problems[0]

    def second(event: str) -> None:
        raise problems[1]

    bus.subscribe(str, first)
    with pytest.raises(DispatchError, match=r"1 subscribers of str failed .*first: ValueError: one") as caught:
        bus.dispatch("heard").raise_if_errors()
    assert caught.value.__cause__ is problems[0]
    bus.subscribe(str, second)
    with pytest.raises(DispatchError) as caught:
        Session(bus=bus).dispatch("heard").raise_if_errors()
    assert caught.value.causes == tuple(problems)
    assert isinstance(caught.value.__cause__, ExceptionGroup)


class Rules(MarkdownSection[Any]):
    """A section with a class of its own."""


def test_sections_can_be_found() -> None:
    """By path, by key where it is the only one, by class; what is missing or doubtful is a KeyError that says so."""
    rules = Rules(title="Rules", template="Be kind.")
    inner = [MarkdownSection(title="Note", template="a"), rules]
    outer = MarkdownSection(title="Outer", template="b", children=inner)
    other = MarkdownSection(title="Other", template="c", children=[MarkdownSection(title="Note", template="d")])
    prompt = Prompt(name="p", sections=[outer])
    assert prompt.find_section("outer") is outer
    assert prompt.find_section("outer.note") is prompt.find_section(("outer", "note")) is inner[0]
    assert prompt.find_section("rules") is prompt.find_section(Rules) is rules
    assert prompt.find_section("note") is inner[0]
    wider = prompt.bind(sections=[other])
    assert wider.find_section("other.note") is other.children[0]
    with pytest.raises(KeyError, match=r"2 sections 'note'; .* outer\.note, other\.note"):
        wider.find_section("note")
    with pytest.raises(KeyError, match="5 sections of the class Section"):
        wider.find_section(Section)
    with pytest.raises(KeyError, match=r"no section 'nowhere'; it has: outer, outer\.note, outer\.rules"):
        prompt.find_section("nowhere")
