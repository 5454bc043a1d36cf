"""003: "Runtime Dispatch" and "Failure Semantics", row by row."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session, ToolCall
from weakincentives.testing import FakeClock, execute_tool, make_session, make_vfs


@dataclass(frozen=True)
class Params:
    path: str = ""


@dataclass(frozen=True)
class Note:
    text: str


def test_runtime_dispatch():
    """The numbered list, in its order: each step is seen to come after the one before it.

    But for the policies: they are asked inside the savepoint, under its locks, so that what they saw stays true.
    """
    order = []

    class Policy:
        def check(self, tool_name, params, context):
            order.append(f"policy check of {params}")
            return None

        def on_result(self, tool_name, params, result, context):
            order.append("policy update")

    class State:
        def snapshot(self):
            order.append("snapshot")
            return None

        def restore(self, snapshot):
            order.append("restore on failure")

        def release(self, snapshot):
            order.append("release")

    def handle(params: Params, *, context: ToolContext) -> ToolResult[Any]:
        order.append(f"handler execution with {type(context).__name__}")
        return ToolResult.error("no") if params.path == "fail" else ToolResult.ok("done")

    tool = Tool[Params, Any](name="work", description="Work.", handler=handle)
    section = MarkdownSection(title="S", template="", tools=[tool], policies=[Policy()])
    session = Session()
    session.dispatcher.subscribe(ToolInvoked, lambda event: order.append("telemetry"))
    prompt = Prompt(PromptTemplate(ns="t", key="k", sections=[section])).bind(resources={State: State()})
    executor = ToolExecutor(prompt=prompt, session=session)

    executor.execute(ToolCall("1", "work", '{"path": "x"}'))
    assert order == [
        "snapshot", "policy check of Params(path='x')", "handler execution with CallContext", "policy update",
        "telemetry", "release",
    ]
    order.clear()
    executor.execute(ToolCall("2", "work", '{"path": "fail"}'))
    assert order == [
        "snapshot", "policy check of Params(path='fail')", "handler execution with CallContext",
        "restore on failure", "telemetry", "release",
    ]
    order.clear()
    # What is refused early goes no further: unknown tool, wrong arguments.
    executor.execute(ToolCall("3", "other", "{}"))
    executor.execute(ToolCall("4", "work", '{"extra": 1}'))
    assert order == ["telemetry", "telemetry"]


def test_deadline_check():
    """Refused if elapsed, after the policies."""
    clock = FakeClock()
    deadline = Deadline.after(timedelta(seconds=1), clock=clock)
    clock.advance(2)
    section = MarkdownSection(
        title="S", template="", tools=[Tool[None, Any](name="work", description="W.", handler=lambda params: 1 / 0)]
    )
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="t", key="k", sections=[section])), session=Session(), deadline=deadline
    )
    assert executor.execute(ToolCall("1", "work", "{}")).outcome == "deadline"


EXCEPTIONS = [
    # Exception, what reaches the caller, what the model reads
    (ToolValidationError("not a date"), None, "not a date"),
    (VisibilityExpansionRequired("open it"), VisibilityExpansionRequired, None),
    (PromptEvaluationError("over"), PromptEvaluationError, None),
    (DeadlineExceededError("late"), PromptEvaluationError, None),
    (TypeError("'NoneType' object is not callable"), None, "Internal error: TypeError: 'NoneType' object"),
    (ValueError("other"), None, "Internal error: other"),
]


@pytest.mark.parametrize("raised,propagates,text", EXCEPTIONS, ids=lambda item: getattr(item, "__name__", None))
def test_exception_handling(raised, propagates, text):
    """The table; and all failure paths restore session and resource state before returning."""
    session, fs = make_session(), make_vfs()

    def handle(params: Params, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("during"))
        context.filesystem.write("during.txt", "x")
        raise raised

    tool = Tool[Params, Any](name="work", description="Work.", handler=handle)
    if propagates is None:
        reply = execute_tool(tool, {}, session=session, resources={Filesystem: fs})
        assert (reply.result.success, reply.result.value) == (False, None)
        assert reply.text.startswith(text)
    else:
        with pytest.raises(propagates):
            execute_tool(tool, {}, session=session, resources={Filesystem: fs})
    assert session[Note].count() == 0
    assert not fs.exists("during.txt")
    assert [event.success for event in session[ToolInvoked].all()] == [False]


def test_toolresult_contract():
    """`success=False` has no value unless it carries an error payload; that is shown, and never routed."""

    def handle(params: Params, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult(message="Conflict", value=Note("the other version"), success=False)

    session = make_session()
    seen = []
    session[Note].register(Note, lambda view, event: seen.append(event))
    reply = execute_tool(Tool[Params, Any](name="work", description="W.", handler=handle), {}, session=session)
    assert reply.result.value == Note("the other version")
    assert reply.text == 'Conflict\n{"text":"the other version"}'
    assert seen == []


def test_handler_validation():
    """TypeErrors at run time become failed results: here a handler that returns the wrong thing."""

    def handle(params):
        return "text"

    reply = execute_tool(Tool[Params, Any](name="work", description="W.", handler=handle), {})
    assert not reply.success
    assert "returned a str, not a ToolResult" in reply.text
