"""Timeouts and deadlines: given up on in time, undone, and told apart. Heartbeats and run contexts on the way."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.runtime.limits_parts import (
    SLACK,
    Count,
    Text,
    call,
    eventually,
    executor_of,
    make,
    ok,
    outcomes,
    start,
)
from tests.runtime.ways import both_ways, run_sync

from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    RollbackError,
    StaleCallError,
    ToolValidationError,
)
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Heartbeat, RunContext, Session, ToolCall, ToolInvoked, ToolReply
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import FakeClock
from weakincentives.threads import abandoned_count

LIMIT = 0.15
go = threading.Event()


def sync_stuck(params: Text, *, context: ToolContext) -> ToolResult[str]:
    _change(context)
    go.wait(60)
    return ToolResult.ok("")


async def async_stuck(params: Text, *, context: ToolContext) -> ToolResult[str]:
    _change(context)
    await asyncio.sleep(3600)
    return ToolResult.ok("")


def _change(context: ToolContext) -> None:
    context.session[Count].append(Count(5))
    if context.filesystem is not None:
        context.filesystem.write("kept.txt", "changed")


kinds = pytest.mark.parametrize("handler", [sync_stuck, async_stuck])


def timed(run: Callable[..., ToolReply], executor: ToolExecutor, request: ToolCall) -> tuple[ToolReply, float]:
    go.clear()
    started = time.monotonic()
    try:
        return run(executor, request), time.monotonic() - started
    finally:
        go.set()
        assert eventually(lambda: abandoned_count() == 0)


@both_ways
@kinds
@pytest.mark.parametrize("timeout", [LIMIT, timedelta(seconds=LIMIT)], ids=["float", "timedelta"])
def test_a_tools_timeout_ends_its_call(run: Any, handler: Any, timeout: Any) -> None:
    """A handler beyond its timeout is failed and undone in time, and told so; the run goes on."""
    session, fs = Session(), InMemoryFilesystem({"kept.txt": "kept"})
    executor = executor_of(make(handler, "stuck", timeout=timeout), session=session, fs=fs)
    reply, took = timed(run, executor, call("stuck"))
    assert reply.outcome == "timeout"
    assert not reply.is_error
    assert reply.text.startswith("Tool 'stuck' did not finish within 0.15 s and was stopped.\nTry a smaller step.")
    assert reply.text.splitlines()[-1].startswith("Rolled back: ")
    assert LIMIT <= took < LIMIT + SLACK
    assert session[Count].count() == 0
    assert fs.read("kept.txt") == "kept"
    assert outcomes(session) == ["timeout"]


@both_ways
@kinds
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_the_runs_deadline_ends_a_call(run: Any, handler: Any, timeout: float | None) -> None:
    """A handler beyond the deadline is undone in time; the outcome says it was the run's time, not the tool's."""
    session, fs = Session(), InMemoryFilesystem({"kept.txt": "kept"})
    deadline = Deadline.after(timedelta(seconds=LIMIT))
    tool = make(handler, "stuck", timeout=timeout)
    reply, took = timed(run, executor_of(tool, session=session, fs=fs, deadline=deadline), call("stuck"))
    assert reply.outcome == "deadline"
    assert reply.text.startswith("The deadline passed while 'stuck' was running, so it was stopped.")
    assert took < LIMIT + SLACK
    assert session[Count].count() == 0
    assert fs.read("kept.txt") == "kept"
    assert outcomes(session) == ["deadline"]


@both_ways
@kinds
def test_the_earlier_limit_counts(run: Any, handler: Any) -> None:
    """With a timeout before the deadline the call times out and the run has time left."""
    session, deadline = Session(), Deadline.after(timedelta(seconds=60))
    reply, took = timed(
        run, executor_of(make(handler, "stuck", timeout=LIMIT), session=session, deadline=deadline), call("stuck")
    )
    assert reply.outcome == "timeout"
    assert took < LIMIT + SLACK


@both_ways
def test_a_deadline_that_has_passed_refuses_the_call(run: Any) -> None:
    """Elapsed before the handler: it does not run, and the reply and the event say why."""
    clock, session, ran = FakeClock(), Session(), list[int]()
    deadline = Deadline.after(timedelta(seconds=30), clock=clock)

    def notes(params: Text) -> ToolResult[str]:
        ran.append(1)
        clock.advance(40)
        return ToolResult.ok("")

    executor = executor_of(notes, session=session, deadline=deadline)
    assert run(executor, call("notes", "1")).success, "what ended in real time counts"
    reply = run(executor, call("notes", "2"))
    assert reply.outcome == "deadline"
    assert not reply.is_error
    assert reply.text == "The deadline has passed, so 'notes' was not run."
    assert ran == [1]
    assert outcomes(session) == ["succeeded", "deadline"]


@both_ways
@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_meets_the_deadline_itself_ends_the_evaluation(
    run: Any, timeout: float | None, is_async: bool
) -> None:
    """DeadlineExceededError from a handler is undone and recorded, then raised as PromptEvaluationError."""
    session = Session()

    def checks(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(5))
        raise DeadlineExceededError("half a second too late")

    async def checks_async(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return checks(params, context=context)

    tool = make(checks_async if is_async else checks, "checks", timeout=timeout)
    with pytest.raises(PromptEvaluationError, match="inside tool 'checks': half a second too late") as caught:
        run(executor_of(tool, session=session), call("checks"))
    assert caught.value.phase == "deadline"
    assert isinstance(caught.value.__cause__, DeadlineExceededError)
    assert session[Count].count() == 0
    assert outcomes(session) == ["deadline"]


@both_ways
def test_a_timeout_error_of_the_handlers_own_is_just_an_error(run: Any) -> None:
    """TimeoutError raised by a handler is not taken for its limit."""

    def impatient(params: Text) -> ToolResult[str]:
        raise TimeoutError("the server did not answer")

    reply = run(executor_of(make(impatient, timeout=5.0)), call("impatient"))
    assert reply.outcome == "crashed"
    assert "the server did not answer" in reply.text
    assert abandoned_count() == 0


@both_ways
@pytest.mark.parametrize("read_only", [False, True])
def test_waiting_for_other_calls_ends_at_the_deadline(run: Any, read_only: bool) -> None:
    """A call that waits for a busy session is answered at its deadline; its handler never begins."""
    session, ran = Session(), list[int]()
    go.clear()
    busy = executor_of(make(sync_stuck), session=session)
    thread = start(lambda: busy.execute(call("sync_stuck", "busy")))
    assert eventually(lambda: session[Count].count() == 1)

    def late(params: Text) -> ToolResult[str]:
        ran.append(1)
        return ToolResult.ok("")

    deadline = Deadline.after(timedelta(seconds=LIMIT))
    started = time.monotonic()
    reply = run(executor_of(make(late, read_only=read_only), session=session, deadline=deadline), call("late"))
    assert time.monotonic() - started < LIMIT + SLACK
    assert reply.outcome == "deadline"
    assert reply.text == "The deadline passed while 'late' waited for other calls, so it had no effect."
    go.set()
    thread.join(60)
    assert not ran
    assert outcomes(session) == ["deadline", "succeeded"]


@both_ways
def test_a_reader_that_times_out_does_not_wait_for_other_readers(run: Any) -> None:
    """A read-only call that failed has nothing to keep, so it is answered while others still read."""
    session = Session()
    go.clear()
    other = executor_of(make(sync_stuck_reader, read_only=True), session=session)
    thread = start(lambda: other.execute(call("sync_stuck_reader", "other")))
    time.sleep(0.05)
    tool = make(sync_stuck_reader, "stuck", read_only=True, timeout=LIMIT)
    started = time.monotonic()
    reply = run(executor_of(tool, session=session), call("stuck"))
    assert time.monotonic() - started < LIMIT + SLACK
    assert reply.outcome == "timeout"
    go.set()
    thread.join(60)
    assert outcomes(session) == ["timeout", "succeeded"]


def sync_stuck_reader(params: Text, *, context: ToolContext) -> ToolResult[str]:
    go.wait(60)
    return ToolResult.ok("")


@both_ways
def test_a_deadline_that_passes_while_waiting_does_not_start_the_handler(run: Any) -> None:
    """When the lock comes after the deadline, by whatever clock, the handler is not started for nothing."""
    clock, session, ran = FakeClock(), Session(), list[int]()
    deadline = Deadline.after(timedelta(seconds=30), clock=clock)
    go.clear()
    busy = executor_of(make(sync_stuck), session=session)
    thread = start(lambda: busy.execute(call("sync_stuck", "busy")))
    assert eventually(lambda: session[Count].count() == 1)
    timer = threading.Timer(0.1, lambda: (clock.advance(60), go.set()))
    timer.start()

    def late(params: Text) -> ToolResult[str]:
        ran.append(1)
        return ToolResult.ok("")

    reply = run(executor_of(late, session=session, deadline=deadline), call("late"))
    thread.join(60)
    assert reply.outcome == "deadline"
    assert not ran


def test_an_async_handler_that_times_out_is_cancelled_also_in_plain_code() -> None:
    """In plain code too an async handler is cancelled at its limit: it can clean up, and no thread stays behind."""
    unwound: list[str] = []

    async def careful(params: Text, *, context: ToolContext) -> ToolResult[str]:
        try:
            await asyncio.sleep(3600)
        finally:
            unwound.append("cleaned up")
        return ToolResult.ok("")

    with executor_of(make(careful, timeout=LIMIT)) as executor:
        assert executor.execute(call("careful")).outcome == "timeout"
    assert eventually(lambda: abandoned_count() == 0, 1.0)
    assert unwound == ["cleaned up"]


@pytest.mark.slow  # waits for a time limit
@both_ways
def test_an_async_handler_that_will_not_end_is_left_alone(run: Any) -> None:
    """One that swallows its cancellation is not waited for, and its late write changes nothing."""
    session, late = Session(), list[str]()

    async def stubborn(params: Text, *, context: ToolContext) -> ToolResult[str]:
        kept = context.session
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        try:
            kept[Count].append(Count(9))
        except StaleCallError:
            late.append("refused")
        return ToolResult.ok("")

    started = time.monotonic()
    if run is run_sync:
        reply = run(executor_of(make(stubborn, timeout=LIMIT), session=session), call("stubborn"))
        took = time.monotonic() - started
    else:

        async def main() -> tuple[ToolReply, float]:
            async with executor_of(make(stubborn, timeout=LIMIT), session=session) as executor:
                reply = await executor.aexecute(call("stubborn"))
                took = time.monotonic() - started
                await asyncio.sleep(0.8)
                return reply, took

        reply, took = asyncio.run(main())
    assert reply.outcome == "timeout"
    assert took < LIMIT + SLACK
    assert eventually(lambda: late == ["refused"])
    assert eventually(lambda: abandoned_count() == 0)
    assert session[Count].count() == 0


@both_ways
def test_a_deadline_at_the_end_of_time_is_no_limit(run: Any) -> None:
    """The last moment that a datetime can name does not break waiting."""
    deadline = Deadline(datetime.max.replace(tzinfo=UTC))
    assert run(executor_of(ok, deadline=deadline), call("ok")).success


def test_expected_failures_within_limits_stay_what_they_are() -> None:
    """A limit changes only how long a handler may run, not what its own failures mean."""

    def refuses(params: Text) -> ToolResult[str]:
        raise ToolValidationError("say it otherwise")

    with executor_of(make(refuses, timeout=5.0)) as executor:
        reply = executor.execute(call("refuses"))
    assert reply.outcome == "failed"
    assert reply.text == "say it otherwise"


# Heartbeats and run contexts.


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_beats_extend_a_lease_and_are_seen_by_a_watcher(timeout: float | None) -> None:
    """`context.beat()` in a handler is visible outside while the handler still runs."""
    clock = FakeClock()
    heartbeat, lease = Heartbeat(clock=clock), [clock.monotonic() + 10]
    remove = heartbeat.add_listener(lambda: lease.__setitem__(0, clock.monotonic() + 10))
    seen: list[tuple[int, float, float]] = []

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        for _ in range(3):
            clock.advance(6)
            before = heartbeat.elapsed()
            context.beat()
            seen.append((heartbeat.count, before, lease[0] - clock.monotonic()))
        return ToolResult.ok("")

    with executor_of(make(works, timeout=timeout), heartbeat=heartbeat) as executor:
        assert executor.execute(call("works")).success
    assert seen == [(1, 6.0, 10.0), (2, 6.0, 10.0), (3, 6.0, 10.0)]
    remove()
    heartbeat.beat()
    assert lease[0] == clock.monotonic() + 10


def test_a_lost_lease_stops_the_work() -> None:
    """A listener that raises makes `beat` raise in the handler, and the call is undone."""
    session, heartbeat = Session(), Heartbeat()

    def lost() -> None:
        raise RuntimeError("the lease is somebody else's")

    heartbeat.add_listener(lost)

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(1))
        context.beat()
        return ToolResult.ok("")

    with executor_of(works, session=session, heartbeat=heartbeat) as executor:
        assert "somebody else's" in executor.execute(call("works")).text
    assert session[Count].count() == 0


def test_a_call_that_is_over_does_not_beat() -> None:
    """A handler that was given up on cannot keep the run's lease alive through its context."""
    go.clear()
    heartbeat, late = Heartbeat(), list[str]()

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        go.wait(60)
        try:
            context.beat()
        except StaleCallError as error:
            late.append(str(error))
        return ToolResult.ok("")

    with executor_of(make(works, timeout=0.05), heartbeat=heartbeat) as executor:
        assert executor.execute(call("works")).outcome == "timeout"
    go.set()
    assert eventually(lambda: len(late) == 1)
    assert "it ran out of time" in late[0]
    assert heartbeat.count == 0


def test_beating_without_a_heartbeat_does_nothing() -> None:
    """A handler that beats works in a run without a watcher."""

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.beat()
        return ToolResult.ok("")

    with executor_of(works) as executor:
        assert executor.execute(call("works")).success


def test_a_run_context_reaches_handlers_events_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    """The ids of the run are in the handler's context, on every event and on every log record of its calls."""
    session = Session()
    run = RunContext(run_id="r", request_id="q", session_id="s", attempt=2, worker_id="w", trace_id="t", span_id="p")
    seen: list[RunContext | None] = []

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        seen.append(context.run_context)
        match params.text:
            case "error":
                return ToolResult.error("no")
            case "raise":
                raise ValueError("broken")
            case "refuse":
                raise ToolValidationError("otherwise")
            case _:
                return ToolResult.ok("")

    with executor_of(works, session=session, run_context=run) as executor, caplog.at_level(logging.DEBUG):
        for text in ("ok", "error", "raise", "refuse"):
            executor.execute(call("works", text, text=text))
        executor.execute(call("missing", "unknown"))
        executor.execute(ToolCall("invalid", "works", "{"))
    assert seen == [run] * 4
    assert [event.run_context for event in session[ToolInvoked].all()] == [run] * 6
    records = [record for record in caplog.records if record.name.startswith("weakincentives")]
    assert len(records) == 6
    for record in records:
        assert {key: record.__dict__.get(key) for key in run.log_extra()} == run.log_extra()


class Unrestorable:
    """A participant that cannot be restored, and cannot tell what changed."""

    def snapshot(self) -> int:
        return 0

    def restore(self, taken: int) -> None:
        raise RuntimeError("gone")

    def changes(self, taken: int) -> None:
        raise RuntimeError("who knows")

    def release(self, taken: int) -> None:
        raise RuntimeError("still gone")


def test_a_failed_undo_is_logged_with_the_ids_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """What participants do wrong while a call is undone is logged with the run's ids, like all else."""
    run = RunContext(run_id="r", request_id="q")

    def fails(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.error("no")

    options: dict[str, Any] = {"resources": {Unrestorable: Unrestorable()}, "run_context": run}
    with executor_of(fails, **options) as executor, caplog.at_level(logging.DEBUG), pytest.raises(RollbackError):
        executor.execute(call("fails", text="x"))
    records = [record for record in caplog.records if record.name.startswith("weakincentives.runtime")]
    assert [record.getMessage() for record in records] == [
        "Tool fails failed: no",
        "The changes of Unrestorable could not be told: RuntimeError: who knows (request_id=q, run_id=r)",
        "The Unrestorable could not be restored: RuntimeError: gone (request_id=q, run_id=r)",
    ]
    assert [record.__dict__.get("run_id") for record in records] == ["r"] * 3
