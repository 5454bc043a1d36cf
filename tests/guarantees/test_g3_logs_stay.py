"""G3, logs stay: LOG slices are never rolled back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.world import Go, Note, World, change, make_tool, ok, outcomes

from weakincentives.errors import SessionError
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import create_snapshot, restore_snapshot, transaction
from weakincentives.session import SlicePolicy, append_all


class Entry:
    """A LOG slice by its class."""

    slice_policy = SlicePolicy.LOG


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    context.session.dispatch(Entry())
    context.session[Entry].append(Entry())
    match params.how:
        case "error":
            return ToolResult.error("No.")
        case "raise":
            raise RuntimeError("broken")
        case "ctrl-c":
            raise KeyboardInterrupt
        case "cancel":
            raise asyncio.CancelledError
        case _:
            return ok()


@pytest.mark.parametrize("how", ["", "error", "raise", "ctrl-c", "cancel"])
def test_log_entries_stay_however_the_call_ends(how: str) -> None:
    """What a handler wrote to a LOG slice is there after the call, whether or not the rest was undone."""
    world = World(make_tool(act))
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        world.call(arguments={"how": how})
    assert world.session[Entry].count() == 2
    assert world.session[Note].count() == (1 if how else 2)


def test_a_slice_that_was_registered_as_a_log_stays() -> None:
    """A slice whose registration says LOG is not rolled back either."""
    world = World(make_tool(act))

    class Line(str):
        __slots__ = ()

    world.session[Line].register(Line, append_all, policy=SlicePolicy.LOG)

    def write(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session.dispatch(Line("said"))
        return ToolResult.error("No.")

    other = World(make_tool(write), session=world.session)
    other.call()
    assert world.session[Line].all() == ("said",)


def test_events_of_inner_calls_stay_when_the_outer_call_is_undone() -> None:
    """A call inside a call that fails is undone with it; its event stays, true for the moment it tells of."""

    def inner(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return ok()

    def outer(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        world.call("inner")
        return ToolResult.error("No.")

    world = World(make_tool(inner, "inner"), make_tool(outer, "outer"))
    before = world.picture()
    world.call("outer")
    assert world.picture() == before
    assert [(event.tool_name, event.outcome) for event in world.events] == [("inner", "succeeded"), ("outer", "failed")]


def test_events_stay_in_a_transaction_that_is_undone() -> None:
    """Events of calls inside a transaction stay when the transaction is undone or a snapshot restored."""
    world = World(make_tool(act))
    with transaction(world.session, validate=lambda: False):
        world.call()
    assert (world.session[Note].count(), outcomes(world.events)) == (1, ["succeeded"])
    snapshot = create_snapshot(world.session)
    world.call()
    restore_snapshot(world.session, None, snapshot)
    assert (world.session[Note].count(), outcomes(world.events)) == (1, ["succeeded", "succeeded"])


def test_a_handler_cannot_empty_the_log() -> None:
    """A handler that tries to clear or rewrite the log fails, and the log is as it was."""

    def clear(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        match params.how:
            case "clear":
                context.session[ToolInvoked].clear()
            case "seed":
                context.session[ToolInvoked].seed([])
            case _:
                context.session.reset(logs=True)  # pyright: ignore[reportCallIssue]
        return ok()

    world = World(make_tool(act), make_tool(clear, "clear"))
    world.call()
    for how in ("clear", "seed", "reset"):
        assert world.call("clear", {"how": how}).outcome == "crashed"
    assert len(world.events) == 4
    with pytest.raises(SessionError):
        world.session[ToolInvoked].clear()


def test_the_log_is_in_order_of_settling() -> None:
    """The log has the events in the order in which their calls were settled."""
    world = World(make_tool(act))
    for how in ("", "error", "raise", ""):
        world.call(arguments={"how": how})
    assert outcomes(world.events) == ["succeeded", "failed", "crashed", "succeeded"]
    assert [event.call_id for event in world.events] == ["call-1", "call-2", "call-3", "call-4"]
