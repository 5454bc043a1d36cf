"""`weakincentives.testing`: contexts for calling handlers directly, and single calls through the engine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.world import Counter, Go, Note, change, make_tool, ok

from weakincentives.errors import UnboundResourceError
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session
from weakincentives.testing import (
    FakeClock,
    execute_tool,
    make_context,
    make_context_with_files,
    make_session,
    make_vfs,
    transactional,
)


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    return ToolResult.error("No.") if params.how == "error" else ok(params.how or "done")


class Never:
    def check(self, tool_name: str, params: Any, context: ToolContext) -> str:
        return "Never."


def test_a_context_has_a_session_and_files() -> None:
    """`make_context()` gives a session and an empty filesystem, each its own."""
    one, other = make_context(), make_context()
    assert one.filesystem is not None
    one.filesystem.write("a.txt", "x")
    one.session[Note].append(Note("x"))
    assert other.filesystem is not None
    assert not other.filesystem.exists("a.txt")
    assert other.session[Note].count() == 0
    with pytest.raises(UnboundResourceError):
        one.resources.get(Counter)


def test_a_context_takes_what_it_is_given() -> None:
    """Session, files, resources and any field of `ToolContext` can be given."""
    session, fs, counter = make_session(session_id="mine"), make_vfs({"a.txt": "x"}), Counter()
    context = make_context(session=session, fs=fs, resources={Counter: counter}, call_id="c1", tool_name="act")
    assert context.session is session
    assert context.filesystem is fs
    assert context.resources.get(Counter) is counter
    assert (context.call_id, context.tool_name, session.session_id) == ("c1", "act", "mine")


def test_a_context_with_files() -> None:
    """`make_context_with_files` holds the files that are named."""
    context = make_context_with_files(["a.txt", "src/b.py"])
    assert context.filesystem is not None
    assert context.filesystem.glob("**/*.*") == ["a.txt", "src/b.py"]


@pytest.mark.parametrize("arguments", [Go("x"), {"how": "x"}, '{"how": "x"}'])
def test_execute_tool_takes_arguments_in_any_form(arguments: Any) -> None:
    """Params, a mapping and JSON text are the same call."""
    reply = execute_tool(make_tool(act), arguments, resources={Filesystem: make_vfs(), Counter: Counter()})
    assert (reply.text, reply.success, reply.call_id) == ("x", True, "call_1")


def test_execute_tool_goes_through_the_whole_engine() -> None:
    """A call is checked, asked for, undone on failure and recorded, as in an evaluation."""
    session, fs = make_session(), make_vfs()
    bound: dict[Any, object] = {Filesystem: fs, Counter: Counter()}
    tool = make_tool(act)
    assert execute_tool(tool, {"how": 1}, session=session).outcome == "invalid"
    assert execute_tool(tool, session=session, policies=[Never()]).text == "Never.\nRefused by Never."
    assert execute_tool(tool, {"how": "error"}, session=session, resources=bound).outcome == "failed"
    assert not fs.exists("new.txt")
    assert execute_tool(tool, session=session, resources=bound, call_id="mine").call_id == "mine"
    assert fs.exists("new.txt")
    assert [event.outcome for event in session[ToolInvoked].all()] == ["invalid", "refused", "failed", "succeeded"]


def test_execute_tool_without_params() -> None:
    """A tool without parameters needs no arguments."""

    def now(params: None) -> ToolResult[Any]:
        return ok("now")

    assert execute_tool(Tool[None, Any](name="now", description="Now.", handler=now)).text == "now"


def test_a_handler_called_directly_has_no_transaction() -> None:
    """What a handler changes before it fails stays when it is called directly; `transactional` undoes it."""
    context = make_context(resources={Counter: Counter()})
    assert not act(Go("error"), context=context).success
    assert context.session[Note].count() == 1
    undone = make_context(resources={Counter: Counter()})
    result = transactional(make_tool(act))(Go("error"), context=undone)
    assert (result.success, result.message) == (False, "No.")
    assert undone.session[Note].count() == 0
    assert [event.outcome for event in undone.session[ToolInvoked].all()] == ["failed"]


def test_transactional_keeps_a_success() -> None:
    """A success called through `transactional` stays and is recorded."""
    context = make_context(resources={Counter: Counter()})
    assert transactional(make_tool(act))(Go("fine"), context=context).message == "fine"
    assert context.session[Note].count() == 1
    assert context.resources.get(Counter).value == 1


def test_a_clock_that_moves_when_told() -> None:
    """A session with a `FakeClock` stamps its events by it."""
    clock = FakeClock()
    session = make_session(clock=clock)
    execute_tool(Tool[None, Any](name="now", description="Now.", handler=lambda params: ok()), session=session)
    clock.advance(60)
    execute_tool(Tool[None, Any](name="now", description="Now.", handler=lambda params: ok()), session=session)
    first, second = session[ToolInvoked].all()
    assert second.timestamp - first.timestamp == 60


def test_sessions_are_sessions() -> None:
    """`make_session` gives the real thing."""
    assert isinstance(make_session(), Session)
