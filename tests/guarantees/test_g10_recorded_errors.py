"""G10, bounded: what the log keeps of a call that failed is text, and not much of it."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

import pytest
from tests.world import Go, World, fine, make_tool, ok

from weakincentives.errors import PromptEvaluationError, ToolValidationError
from weakincentives.prompt import RecordedError, ToolInvoked, ToolResult
from weakincentives.prompt.events import MAX_ERROR_CHARS
from weakincentives.runtime import PendingToolTracker, Session
from weakincentives.runtime.redaction import MAX_TRACE_CHARS, recorded


class Big:
    """A large local variable of a handler."""


BIG: list[weakref.ref[Big]] = []


def crash(params: Go) -> ToolResult[Any]:
    big = Big()
    BIG.append(weakref.ref(big))
    match params.how:
        case "tool error":
            raise ToolValidationError("not like this")
        case "end":
            raise PromptEvaluationError("over")
        case "ctrl-c":
            raise KeyboardInterrupt
        case "cause":
            try:
                raise LookupError("inner")
            except LookupError as error:
                raise RuntimeError("outer") from error
        case "group":
            raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
        case "wrong":
            return big  # pyright: ignore[reportReturnType]
        case _:
            raise RuntimeError("broken")


def hear(world: World) -> None:
    """A subscriber that raises."""

    def raising(event: ToolInvoked) -> None:
        raise ConnectionError("gone")

    world.session.dispatcher.subscribe(ToolInvoked, raising)


def in_log(session: Session) -> set[int]:
    """The ids of everything that can be reached from the log without passing through code or classes."""
    seen: set[int] = set()
    todo: list[Any] = list(session[ToolInvoked].all())
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type | Callable):  # pyright: ignore[reportArgumentType]
            continue
        assert not isinstance(item, FrameType | TracebackType | BaseException), item
        seen.add(id(item))
        todo += gc.get_referents(item)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", "tool error", "end", "ctrl-c", "cause", "group", "wrong", "undone"])
def test_nothing_of_a_failed_call_stays_alive(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once a call that raised is over, its local variables are free: the log holds no exception and no frame."""
    world = World(make_tool(fine if how == "undone" else crash))
    if how == "undone":
        hear(world)
    caplog.set_level(logging.CRITICAL)  # what pytest keeps of a log has the traceback
    BIG.clear()
    with suppress(PromptEvaluationError, KeyboardInterrupt):
        world.call(arguments={"how": how})
    gc.collect()
    assert [ref() for ref in BIG if ref() is not None] == []
    assert in_log(world.session)
    assert len(world.events) == 1
    assert isinstance(world.events[0].error, RecordedError)


def test_a_crashed_call_keeps_its_trace_as_text() -> None:
    """The event of a crash has the exception's type and text, and a trace that names the line, without credentials."""

    def connect(params: Go) -> ToolResult[Any]:
        try:
            raise ConnectionError("postgres://app:hunter22@db refused")
        except ConnectionError as error:
            raise RuntimeError("password=hunter22") from error

    world = World(make_tool(connect))
    world.call()
    error = world.events[0].error
    assert error is not None
    assert (error.type_name, error.text) == ("RuntimeError", "password=[masked]")
    assert "in connect" in error.trace
    assert f'File "{__file__}"' in error.trace
    assert "ConnectionError: postgres://[masked]@db refused" in error.trace
    assert error.trace.rstrip().endswith("RuntimeError: password=[masked]")
    assert "hunter22" not in error.trace


def test_an_expected_failure_has_no_trace() -> None:
    """A handler that raises `ToolError` has said what is wrong: type and text are enough."""
    world = World(make_tool(crash))
    world.call(arguments={"how": "tool error"})
    assert world.events[0].error == RecordedError("weakincentives.errors.ToolValidationError", "not like this")


@pytest.mark.parametrize("how", ["text", "frames", "cause", "unprintable", "notes"])
def test_what_is_kept_of_an_exception_is_capped(how: str) -> None:
    """However long its text, its traceback or its chain of causes, an exception takes a few kilobytes of the log."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1) if depth % 2 else deeper(int(depth) - 1)
        raise ValueError("deep")

    def act(params: Go) -> ToolResult[Any]:
        match how:
            case "text":
                raise RuntimeError("x" * 5_000_000)
            case "frames":
                deeper(600)
            case "unprintable":
                raise Unprintable
            case "notes":
                error = RuntimeError("noted")
                for _ in range(5_000):
                    error.add_note("n" * 1_000)
                raise error
            case _:
                error = RuntimeError("first")
                for number in range(500):
                    later = RuntimeError(f"{number}" * 100)
                    later.__cause__ = error
                    error = later
                raise error
        return ok()

    world = World(make_tool(act))
    world.call()
    error = world.events[0].error
    assert error is not None
    assert len(error.text) <= MAX_ERROR_CHARS
    assert 0 < len(error.trace) <= MAX_TRACE_CHARS
    assert "in act" in error.trace or how in {"frames", "cause"}


def test_an_event_made_by_hand_keeps_no_exception() -> None:
    """`ToolInvoked(error=...)` takes an exception and keeps what is recorded of one."""
    event = ToolInvoked("act", error=ValueError("by hand"))
    assert event.error == RecordedError("ValueError", "by hand")
    assert ToolInvoked("act", error=event.error).error is event.error
    assert ToolInvoked("act").error is None


def test_a_native_tool_that_is_stopped_keeps_nothing() -> None:
    """The same holds for tools that a harness runs."""
    session = Session()
    tracker = PendingToolTracker(session=session)
    tracker.begin_tool_execution(tool_use_id="1", tool_name="Bash", arguments={"command": "ls"})
    tracker.end_tool_execution(tool_use_id="1", success=False)
    assert in_log(session)


def test_an_exception_whose_trace_cannot_be_formatted_is_recorded() -> None:
    """An exception class that breaks the formatting of tracebacks is recorded with what it has."""

    class Odd(Exception):
        @property
        def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
            raise RuntimeError("no notes")

    try:
        raise Odd("odd")
    except Odd as error:
        kept = recorded(error)
    assert (kept.text, kept.type_name.rpartition(".")[2]) == ("odd", "Odd")
    assert "test_an_exception_whose_trace" in kept.trace
