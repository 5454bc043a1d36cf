"""Every way a call can end, a row each: call and world in; reply, state, files, events and log lines out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from tests.world import UNDONE, Go, Note, World, change, make_tool, ok

from weakincentives.budget import Budget, BudgetTracker
from weakincentives.dbc import ensure, require
from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    ContractError,
    DeadlineExceededError,
    NoEffect,
    PromptEvaluationError,
    ResourcesClosedError,
    RollbackError,
    StaleCallError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import Decision, Tool, ToolAnnotations, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Heartbeat, RunContext, Session, ToolCall
from weakincentives.session import Append, SliceOp
from weakincentives.testing import FakeClock

READ_ONLY = ToolAnnotations(read_only=True)
INTERNAL = "Internal error: "
FIRST = ToolCall("call-1", "act", "{}")


@dataclass(frozen=True)
class Value:
    """A result with reducers."""

    text: str

    def render(self) -> str:
        return self.text


@dataclass(frozen=True)
class Broken:
    """A result that cannot be rendered."""

    def render(self) -> str:
        raise ValueError("no text")


@dataclass
class Row:
    """What goes in, and what must come out.

    `text` is the reply's text, whole; `kept` says whether what the handler changed stayed; `log` are level and
    beginning of each line of the engine's log; `raises` is what must reach the caller.
    """

    name: str
    outcome: str
    text: str
    handler: Callable[..., Any] | None = None
    call: ToolCall = FIRST
    before: Sequence[ToolCall] = ()
    kept: bool = False
    is_error: bool = False
    log: Sequence[tuple[str, str]] = ()
    raises: type[BaseException] | None = None
    tool: dict[str, Any] = field(default_factory=dict[str, Any])
    policies: Sequence[Any] = ()
    prepare: Callable[[World], object] | None = None
    executor: dict[str, Any] = field(default_factory=dict[str, Any])
    tools: Sequence[Tool[Any, Any]] = ()
    soon: float | None = None
    reply_id: str = "call-1"


def change_then(end: Callable[[], Any]) -> Callable[..., Any]:
    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return end()

    return handler


def just(end: Callable[[], Any]) -> Callable[..., Any]:
    def handler(params: Go) -> ToolResult[Any]:
        return end()

    return handler


def change_then_raise(error: BaseException) -> Callable[..., Any]:
    def fail() -> NoReturn:
        raise error

    return change_then(fail)


def never_called(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    pytest.fail("the handler ran")


def fine(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    return ok()


def write_only(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    context.session[Note].append(Note("during"))
    return ok()


@require(lambda params: params.number > 0, "number must be positive")
def guarded_before(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    return never_called(params, context=context)


@ensure(lambda result: result.value is not None, "there must be a value")
def guarded_after(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    return ok()


@require(lambda number: number > 0, "number must be positive")
def helper(number: int) -> int:
    return number


async def change_later(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    await asyncio.sleep(0)
    change(context)
    return ok()


async def change_and_sleep(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    await asyncio.sleep(10)
    return ok()


class Policy:
    """Says, or raises, what it is told to."""

    def __init__(self, verdict: Any = None, result: BaseException | None = None) -> None:
        self.verdict = verdict
        self.result = result

    def check(self, tool_name: str, params: Any, context: ToolContext) -> Any:
        if isinstance(self.verdict, BaseException):
            raise self.verdict
        return self.verdict

    def on_result(self, tool_name: str, params: Any, result: Any, context: ToolContext) -> None:
        if self.result is not None:
            raise self.result


class Writer(Policy):
    def check(self, tool_name: str, params: Any, context: ToolContext) -> Any:
        context.session[Note].append(Note("policy"))


def refuse_event(world: World) -> None:
    def subscriber(event: ToolInvoked) -> NoReturn:
        raise RuntimeError("the queue is down")

    world.session.dispatcher.subscribe(ToolInvoked, subscriber)


def reduce_value(world: World) -> None:
    def reducer(view: Sequence[Note], event: Value) -> SliceOp[Note]:
        return Append(Note(event.text))

    world.session[Note].register(Value, reducer)


def reduce_badly(world: World) -> None:
    def reducer(view: Sequence[Note], event: Value) -> SliceOp[Note]:
        raise RuntimeError("cannot reduce")

    world.session[Note].register(Value, reducer)


def log_reduced_badly(world: World) -> None:
    def reducer(view: Sequence[Note], event: ToolInvoked) -> SliceOp[Note]:
        raise RuntimeError("cannot reduce")

    world.session[Note].register(ToolInvoked, reducer)


def no_snapshot(world: World) -> None:
    def snapshot() -> NoReturn:
        raise OSError("no room for a snapshot")

    world.counter.snapshot = snapshot


def no_restore(world: World) -> None:
    def restore(snapshot: int, /) -> NoReturn:
        raise OSError("the counter is stuck")

    world.counter.restore = restore


PAST = FakeClock()
DEADLINE = Deadline.after(timedelta(seconds=1), clock=PAST)
PAST.advance(2)


def same(count: int) -> list[ToolCall]:
    return [ToolCall(f"before-{number}", "act", "{}") for number in range(count)]


REFUSED = ("INFO", "Call of act was not run")

ROWS = [
    # What works.
    Row("success", "succeeded", "done", change_then(ok), kept=True),
    Row("success with a value", "succeeded", "OK\n7", change_then(lambda: ToolResult.ok(7)), kept=True),
    Row("an async handler", "succeeded", "done", change_later, kept=True),
    Row("arguments as a mapping", "succeeded", "done", change_then(ok), ToolCall("call-1", "act", {}), kept=True),
    Row("no arguments at all", "succeeded", "done", change_then(ok), ToolCall("call-1", "act"), kept=True),
    Row("empty arguments", "succeeded", "done", change_then(ok), ToolCall("call-1", "act", ""), kept=True),
    Row("a policy that allows", "succeeded", "done", change_then(ok), policies=[Policy(Decision.allow())], kept=True),
    # Not a call of ours.
    Row("an unknown tool, near a known one", "unknown_tool",
        "Unknown tool 'acct'\nDid you mean: act?\nAvailable tools: act, watch",
        never_called, ToolCall("call-1", "acct", "{}"), tools=[make_tool(fine, "watch")],
        log=[("INFO", "Call of acct was not run (unknown_tool)")]),
    Row("an unknown tool, near none", "unknown_tool", "Unknown tool 'zzz'\nAvailable tools: act",
        never_called, ToolCall("call-1", "zzz", "{}"), log=[("INFO", "Call of zzz was not run")]),
    Row("no id", "invalid", "The call has no id, so it was not run.\nSend every call with an id of its own.",
        never_called, ToolCall("", "act", "{}"), reply_id="", log=[REFUSED]),
    Row("an id that is no text", "invalid",
        "The call has no id, so it was not run.\nSend every call with an id of its own.",
        never_called, ToolCall(None, "act", "{}"), reply_id="", log=[REFUSED]),  # pyright: ignore[reportArgumentType]
    Row("a tool without a handler", "refused",
        "Tool 'act' has no handler here, so it cannot be called.\nUse another tool.", None, log=[REFUSED]),
    # Arguments.
    Row("broken JSON", "invalid", "*Invalid JSON: ", never_called, ToolCall("call-1", "act", '{"how": '),
        log=[("INFO", "Call of act was not run (invalid)")]),
    Row("arguments that are no object", "invalid", "*Expected type object, got array", never_called,
        ToolCall("call-1", "act", "[]"), log=[REFUSED]),
    Row("everything wrong at once", "invalid", "*\"how\": \"Expected type string, got integer 1\"", never_called,
        ToolCall("call-1", "act", '{"how": 1, "number": "2", "more": 3}'), log=[REFUSED]),
    # The gate.
    Row("a policy that refuses with text", "refused", "Read it first.\nRefused by Policy.", never_called,
        policies=[Policy("Read it first.")], log=[REFUSED]),
    Row("a policy that refuses with a decision", "refused", "Not yet.\nRefused by Policy.", never_called,
        policies=[Policy(None), Policy(Decision.refuse("Not yet."))], log=[REFUSED]),
    Row("a policy that raises", "refused",
        "Cannot call 'act' - a policy could not be checked.\nRefused by Policy.", never_called,
        policies=[Policy(RuntimeError("broken"))], log=[("ERROR", "Policy Policy raised"), REFUSED]),
    Row("a policy that answers nonsense", "refused",
        "Cannot call 'act' - a policy gave no answer that is understood.\nRefused by Policy.", never_called,
        policies=[Policy(True)], log=[("ERROR", "Policy Policy returned True"), REFUSED]),
    Row("a policy that writes", "refused",
        "Cannot call 'act' - a policy could not be checked.\nRefused by Writer.", never_called,
        policies=[Writer()], log=[("ERROR", "Policy Writer raised"), REFUSED]),
    Row("a deadline that has passed", "deadline", "The deadline has passed, so 'act' was not run.", never_called,
        executor={"deadline": DEADLINE}, log=[REFUSED]),
    Row("the third identical call", "succeeded", "done\n[This is call number 3 in a row with the same arguments.]",
        fine, before=same(2)),
    Row("the fifth identical call", "refused",
        "This is call number 5 of 'act' in a row with the same arguments, so it was not run.\n"
        "Its result will not change. Do something else, or say why you cannot go on.",
        fine, before=same(4), log=[REFUSED]),
    Row("the fifth call of a tool that polls", "succeeded", "done", fine, before=same(4), tool={"max_repeats": None}),
    # The handler says no.
    Row("ToolResult.error", "failed", f"No such order.\n{UNDONE}",
        change_then(lambda: ToolResult.error("No such order.")), log=[("INFO", "Tool act failed: No such order.")]),
    Row("ToolResult.error that changed nothing", "failed", "No such order.",
        just(lambda: ToolResult.error("No such order.")), log=[("INFO", "Tool act failed")]),
    Row("ToolValidationError", "failed", f"Not a date.\n{UNDONE}",
        change_then_raise(ToolValidationError("Not a date.")), log=[("INFO", "Tool act failed: Not a date.")]),
    Row("NoEffect", "failed", f"The server is away.\n{UNDONE}",
        change_then_raise(NoEffect("The server is away.")), log=[("INFO", "Tool act failed: The server is away.")]),
    Row("a precondition", "failed", "Precondition failed: number must be positive", guarded_before,
        log=[("INFO", "Tool act failed: Precondition failed")]),
    Row("a postcondition", "failed", f"Postcondition failed: there must be a value\n{UNDONE}", guarded_after,
        log=[("INFO", "Tool act failed: Postcondition failed")]),
    # The handler breaks.
    Row("an unexpected exception", "crashed", f"{INTERNAL}no such column\n{UNDONE}",
        change_then_raise(RuntimeError("no such column")), is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("an exception without text", "crashed", f"{INTERNAL}RuntimeError\n{UNDONE}",
        change_then_raise(RuntimeError()), is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("an exception with a credential", "crashed", f"{INTERNAL}refused: password=[masked]\n{UNDONE}",
        change_then_raise(RuntimeError("refused: password=hunter2")), is_error=True,
        log=[("ERROR", "Tool act raised")]),
    Row("an exception that is hidden", "crashed", f"Internal error\n{UNDONE}",
        change_then_raise(RuntimeError("no such column")), is_error=True, executor={"hide_errors": True},
        log=[("ERROR", "Tool act raised")]),
    Row("a contract of a helper", "crashed", f"*{INTERNAL}", change_then(lambda: helper(0)), is_error=True,
        log=[("ERROR", "Tool act raised")]),
    Row("ContractError", "crashed", f"{INTERNAL}broken\n{UNDONE}", change_then_raise(ContractError("broken")),
        is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("TypeError", "crashed", f"{INTERNAL}TypeError: not callable\n{UNDONE}",
        change_then_raise(TypeError("not callable")), is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("no ToolResult", "crashed",
        f"{INTERNAL}TypeError: the handler of 'act' returned a str, not a ToolResult\n{UNDONE}",
        change_then(lambda: "text"), is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("nothing returned", "crashed",
        f"{INTERNAL}TypeError: the handler of 'act' returned a NoneType, not a ToolResult\n{UNDONE}",
        change_then(lambda: None), is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("a message that is no text", "crashed",
        f"{INTERNAL}TypeError: the message of a ToolResult must be a str, got int\n{UNDONE}",
        change_then(lambda: ToolResult[Any](7, None)), is_error=True,  # pyright: ignore[reportArgumentType]
        log=[("ERROR", "A call succeeded but could not be completed")]),
    # What must reach the caller.
    Row("an expansion", "expanded", f"Open 'details'.\n{UNDONE}",
        change_then_raise(VisibilityExpansionRequired("Open 'details'.", section_keys=["details"])),
        raises=VisibilityExpansionRequired),
    Row("PromptEvaluationError", "crashed", f"The evaluation ended: budget\n{UNDONE}",
        change_then_raise(PromptEvaluationError("budget")), raises=PromptEvaluationError),
    Row("DeadlineExceededError", "deadline", f"The deadline has passed.\n{UNDONE}",
        change_then_raise(DeadlineExceededError("late")), raises=PromptEvaluationError),
    Row("Ctrl-C", "cancelled", f"The call was interrupted.\n{UNDONE}", change_then_raise(KeyboardInterrupt()),
        raises=KeyboardInterrupt),
    Row("SystemExit", "cancelled", f"The call was interrupted.\n{UNDONE}", change_then_raise(SystemExit(2)),
        raises=SystemExit),
    Row("cancellation", "cancelled", f"The call was interrupted.\n{UNDONE}",
        change_then_raise(asyncio.CancelledError()), raises=asyncio.CancelledError),
    # After the handler.
    Row("a value for a reducer", "succeeded", "OK\nfor the reducer",
        just(lambda: ToolResult.ok(Value("for the reducer"))), prepare=reduce_value, kept=True),
    Row("a reducer that fails", "crashed",
        f"{INTERNAL}The reducer of Note for Value raised RuntimeError: cannot reduce. "
        f"Nothing of this dispatch was applied.\n{UNDONE}",
        change_then(lambda: ToolResult.ok(Value("x"))), prepare=reduce_badly, is_error=True,
        log=[("ERROR", "A call succeeded but could not be completed")]),
    Row("a failed result is not reduced", "failed", f"No.\nx\n{UNDONE}",
        change_then(lambda: ToolResult("No.", Value("x"), success=False)), prepare=reduce_badly,
        log=[("INFO", "Tool act failed: No.")]),
    Row("on_result that fails", "crashed", f"{INTERNAL}cannot note that\n{UNDONE}", change_then(ok),
        policies=[Policy(None, RuntimeError("cannot note that"))], is_error=True,
        log=[("ERROR", "A call succeeded but could not be completed")]),
    Row("render() that fails", "crashed", f"{INTERNAL}no text\n{UNDONE}", change_then(lambda: ToolResult.ok(Broken())),
        is_error=True, log=[("ERROR", "A call succeeded but could not be completed")]),
    Row("a subscriber that fails", "undone",
        f"The call was undone, because its event could not be delivered. {INTERNAL}the queue is down\n{UNDONE}",
        change_then(ok), prepare=refuse_event, is_error=True, log=[("ERROR", "Subscriber ")]),
    Row("a subscriber that fails on a failure", "failed", f"No.\n{UNDONE}",
        change_then(lambda: ToolResult.error("No.")), prepare=refuse_event,
        log=[("INFO", "Tool act failed"), ("ERROR", "Subscriber ")]),
    Row("a reducer of the log that fails", "succeeded", "done", change_then(ok), prepare=log_reduced_badly, kept=True,
        log=[("ERROR", "A reducer failed on ToolInvoked")]),
    Row("a participant that cannot be remembered", "crashed", f"{INTERNAL}no room for a snapshot", never_called,
        prepare=no_snapshot, is_error=True,
        log=[("ERROR", "A call of act could not be carried out"), REFUSED]),
    # Read-only tools.
    Row("a read-only tool", "succeeded", "done", fine, tool={"annotations": READ_ONLY}),
    Row("a read-only tool that writes", "crashed",
        f"{INTERNAL}The context of 'act' is read-only, so nothing was changed.",
        write_only, tool={"annotations": READ_ONLY}, is_error=True, log=[("ERROR", "Tool act raised")]),
    Row("a read-only tool whose participant cannot be remembered", "crashed", f"{INTERNAL}no room for a snapshot",
        fine, prepare=no_snapshot, tool={"annotations": READ_ONLY}, is_error=True,
        log=[("ERROR", "A read-only call of act could not be settled")]),
    # Limits.
    Row("a handler that takes too long", "timeout",
        f"Tool 'act' did not finish within 0.05 s and was stopped.\nTry a smaller step.\n{UNDONE}",
        change_then(lambda: time.sleep(0.4)), tool={"timeout": 0.05}),
    Row("an async handler that takes too long", "timeout",
        f"Tool 'act' did not finish within 0.05 s and was stopped.\nTry a smaller step.\n{UNDONE}",
        change_and_sleep, tool={"timeout": 0.05}),
    Row("a handler that ends in time", "succeeded", "done", change_then(ok), tool={"timeout": 10}, kept=True),
    Row("a worker thread", "succeeded", "done", change_then(ok), tool={"isolation": "thread"}, kept=True),
    Row("a deadline inside the handler", "deadline",
        f"The deadline passed while 'act' was running, so it was stopped.\n{UNDONE}",
        change_then(lambda: time.sleep(1.2)), soon=1.0),
    Row("a long result", "succeeded",
        f"{'x' * 1000}\n[Cut: 1000 of 1500 characters shown. "
        'Call read_tool_result(call_id="call-1", offset=1000) to read on.]',
        just(lambda: ok("x" * 1500)), tool={"max_result_chars": 1000}),
    Row("a long failure", "failed",
        f"{'x' * 1000}\n[Cut: 1000 of 1500 characters shown. "
        f'Call read_tool_result(call_id="call-1", offset=1000) to read on.]\n{UNDONE}',
        change_then(lambda: ToolResult.error("x" * 1500)), tool={"max_result_chars": 1000},
        log=[("INFO", "Tool act failed")]),
]  # fmt: skip


def world_of(row: Row) -> World:
    options = dict(row.executor)
    if row.soon is not None:
        options["deadline"] = Deadline.after(timedelta(seconds=row.soon))
    world = World(make_tool(row.handler, **row.tool), *row.tools, policies=row.policies, **options)
    for call in row.before:
        world.executor.execute(call)
    if row.prepare is not None:
        row.prepare(world)
    return world


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("way", ["execute", "aexecute", "execute_all"])
def test_a_call_ends(row: Row, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """A call ends as its row says: reply, outcome, state, files, one event and its log lines."""
    world = world_of(row)
    before, count = world.picture(), len(world.events)
    caplog.clear()

    def run() -> Any:
        if way == "aexecute":
            return asyncio.run(world.executor.aexecute(row.call))
        if way == "execute_all":
            return world.executor.execute_all([row.call])[0]
        return world.executor.execute(row.call)

    with caplog.at_level(logging.INFO, logger="weakincentives"):
        reply = None
        if row.raises is None:
            reply = run()
        else:
            with pytest.raises(row.raises):
                run()
    (event,) = world.events[count:]
    if reply is not None:
        assert (reply.call_id, reply.outcome, reply.is_error) == (row.reply_id, row.outcome, row.is_error)
        assert not reply.duplicate
        assert reply.success is (row.outcome == "succeeded")
        assert reply.text == event.rendered_output
        assert reply.result is event.result
    shown = event.rendered_output
    assert (shown.startswith(row.text[1:]) or row.text[1:] in shown) if row.text[0] == "*" else shown == row.text
    assert (event.outcome, event.success) == (row.outcome, row.outcome == "succeeded")
    assert event.tool_name == row.call.name
    assert event.call_id == row.reply_id
    assert (world.picture() != before) is row.kept
    assert bool(event.changes) == (row.kept or "\nRolled back: " in shown)
    assert world.counter.alive == 0
    assert world.heard[-1].call_id == row.reply_id
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "weakinc" in record.name]
    expected = [*row.log, *([("INFO", f"Call of {row.call.name} succeeded in ")] if event.success else [])]
    assert [level for level, _ in lines] == [level for level, _ in expected], lines
    for (_, line), (_, start) in zip(lines, expected, strict=True):
        assert line.startswith(start)
    for record in caplog.records:  # one line each: the traceback of what nobody expected is in the event
        assert record.exc_info is None
        assert record.levelname != "ERROR" or "\n" not in record.getMessage()


def test_a_call_that_cannot_be_undone(caplog: pytest.LogCaptureFixture) -> None:
    """A participant that cannot be restored ends the run with all causes, after the others are back."""
    world = World(make_tool(change_then(lambda: ToolResult.error("No."))))
    no_restore(world)
    before = world.picture()
    with pytest.raises(RollbackError) as caught:
        world.call()
    assert [str(error) for error in caught.value.causes.values()] == ["the counter is stuck"]
    assert world.picture()[:2] == before[:2]
    (event,) = world.events
    assert (event.outcome, event.success) == ("crashed", False)
    assert event.rendered_output == "The call failed and could not be undone completely."
    assert event.error is not None
    assert (event.error.type_name, event.error.text) == ("weakincentives.errors.RollbackError", str(caught.value))
    assert "could not be restored" in caplog.text


def test_the_table_has_every_outcome_of_this_step() -> None:
    """The table covers all outcomes but those of the ledger."""
    assert {row.outcome for row in ROWS} == {
        "succeeded", "failed", "unknown_tool", "invalid", "refused", "deadline", "cancelled", "crashed", "undone",
        "expanded", "timeout",
    }  # fmt: skip


def test_all_errors_of_the_arguments_are_told_at_once() -> None:
    """One reply names every wrong argument with its path, what was expected and what came."""
    world = World(make_tool(never_called))
    text = world.call(arguments='{"how": 1, "number": "2", "more": 3}').text
    assert json.loads(text)["details"] == {
        "how": "Expected type string, got integer 1",
        "number": "Expected type integer, got string '2'",
        "more": "Unknown field; known fields: how, number",
    }


def test_events_carry_what_was_undone_and_the_exception() -> None:
    """The event of an undone call carries the undone changes as data and the unmasked exception."""
    world = World(make_tool(change_then_raise(RuntimeError("password=hunter2"))))
    reply = world.call()
    (event,) = world.events
    assert "hunter2" not in reply.text
    assert str(event.error) == "password=[masked]"
    assert (event.changes.files.added, event.changes.files.changed) == (("new.txt",), ("kept.txt",))
    assert [delta.name for delta in event.changes.slices] == ["Note"]


def test_events_carry_what_a_success_changed() -> None:
    """The event of a success carries its changes, times and names."""
    clock = FakeClock()

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        clock.advance(2)
        return ok()

    world = World(make_tool(handler), session=Session(clock=clock), adapter="a string")
    began = clock.time()
    world.call(arguments='{"how": "well"}')
    (event,) = world.events
    assert event.changes.files.added == ("new.txt",)
    assert (event.timestamp, event.duration) == (began, 2.0)
    assert (event.prompt_name, event.adapter, event.session_id) == ("world", "str", world.session.session_id)
    assert event.params == Go("well")
    assert event is world.heard[0]


@pytest.mark.parametrize("how", ["ok", "error", "ctrl-c", "timeout"])
def test_handles_end_with_their_call(how: str) -> None:
    """Once a call is over, writes through its session, dispatcher and files raise, whichever way it ended."""
    kept: list[tuple[ToolContext, Any]] = []

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        kept.append((context, context.filesystem))
        _ = context.session
        if how == "ctrl-c":
            raise KeyboardInterrupt
        if how == "timeout":
            time.sleep(0.3)
        return ok() if how == "ok" else ToolResult.error("No.")

    world = World(make_tool(handler, timeout=0.05 if how == "timeout" else None))
    with contextlib.suppress(KeyboardInterrupt):
        world.call()
    before = world.picture()
    ((context, files),) = kept
    for write in (
        lambda: context.session[Note].append(Note("late")),
        lambda: context.session.dispatch(Note("late")),
        lambda: context.session.dispatcher.dispatch(Note("late")),
        lambda: files.write("kept.txt", "late"),
        lambda: files.delete("kept.txt"),
    ):
        with pytest.raises(StaleCallError, match="This call is over"):
            write()
    assert world.picture() == before


def test_handles_that_are_asked_for_late_have_ended_too() -> None:
    """A handle that a handler asks for only after its call is over never works."""
    kept: list[ToolContext] = []

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        kept.append(context)
        return ok()

    World(make_tool(handler)).call()
    with pytest.raises(StaleCallError):
        kept[0].session[Note].append(Note("late"))
    with pytest.raises(ResourcesClosedError):
        kept[0].resources.get(Filesystem)


def test_the_context_knows_its_call() -> None:
    """A handler finds the call's id and name, the prompt, the adapter and the run's limits in its context."""
    seen: list[ToolContext] = []

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        seen.append(context)
        context.beat()
        assert (context.call_id, context.tool_name, context.idempotency_key) == ("call-1", "act", None)
        return ok()

    heartbeat, run_context, tracker = Heartbeat(), RunContext(), BudgetTracker(Budget(max_total_tokens=10))
    world = World(
        make_tool(handler), adapter="adapter", heartbeat=heartbeat, run_context=run_context, budget_tracker=tracker
    )
    world.call()
    (context,) = seen
    assert heartbeat.count == 1
    assert context.run_context is run_context
    assert context.budget_tracker is tracker
    assert (context.adapter, context.deadline) == ("adapter", None)
    assert context.prompt is not None
    assert context.rendered_prompt is not None
    assert world.events[0].run_context is run_context
