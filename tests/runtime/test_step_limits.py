"""Time limits hold for everything a call does: policies, reducers, `on_result`, `render` and subscribers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.runtime import limits_parts
from tests.runtime.ways import both_ways

from weakincentives.deadlines import Deadline
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime import finish as settle
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.session import Append

TIMEOUT = 0.1


@dataclass(frozen=True)
class Go:
    pass


@dataclass(frozen=True)
class Count:
    value: int


@dataclass(frozen=True)
class Value:
    seconds: float = 0.0

    def render(self) -> str:
        stuck.wait(self.seconds)
        return "rendered"


stuck = threading.Event()


@pytest.fixture(autouse=True)
def _free(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What is stuck in a test ends with it, and what must be waited for is short."""
    monkeypatch.setattr(settle, "AFTER_HANDLER", TIMEOUT)
    stuck.clear()
    yield
    stuck.set()


def change(value: Value | None) -> Callable[..., ToolResult[Any]]:
    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Count].append(Count(1))
        return ToolResult.ok(value, message="done")

    return handler


class Slow:
    """A policy that takes long at one of its two ends."""

    def __init__(self, *, check: float = 0.0, on_result: float = 0.0) -> None:
        self.check_seconds = check
        self.on_result_seconds = on_result

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        stuck.wait(self.check_seconds)
        return None

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        stuck.wait(self.on_result_seconds)


class SlowAsync:
    """The same for a policy that awaits."""

    def __init__(self, *, check: float = 0.0, on_result: float = 0.0) -> None:
        self.check_seconds = check
        self.on_result_seconds = on_result

    async def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        await asyncio.sleep(self.check_seconds)
        return None

    async def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        await asyncio.sleep(self.on_result_seconds)


def executor_of(session: Session, value: Value | None = None, *policies: Any, deadline: Deadline | None = None,
                timeout: float | None = None) -> ToolExecutor:  # fmt: skip
    tool = limits_parts.make(change(value), "act", timeout=timeout)
    return limits_parts.executor_of(tool, session=session, policies=policies, deadline=deadline)


LONG = 60.0


@both_ways
@pytest.mark.parametrize("policy", [Slow(check=LONG), SlowAsync(check=LONG)], ids=["plain", "async"])
def test_a_policy_that_does_not_answer_refuses(run: Callable[[ToolExecutor], ToolReply], policy: Any) -> None:
    """A policy that takes longer than the tool's timeout refuses the call, like one that raises."""
    session = Session()
    started = time.monotonic()
    reply = run(executor_of(session, None, policy, timeout=TIMEOUT))
    assert reply.outcome == "refused"
    assert "could not be checked" in reply.text
    assert time.monotonic() - started < LONG / 2
    assert session[Count].count() == 0


@both_ways
@pytest.mark.parametrize("policy", [Slow(check=LONG), SlowAsync(check=LONG)], ids=["plain", "async"])
def test_a_policy_that_outlasts_the_deadline(run: Callable[[ToolExecutor], ToolReply], policy: Any) -> None:
    """The deadline that passes while a policy is asked is the reason that the model reads."""
    session = Session()
    deadline = Deadline.after(timedelta(seconds=TIMEOUT))
    reply = run(executor_of(session, None, policy, deadline=deadline))
    assert reply.outcome == "deadline"
    assert session[Count].count() == 0


@both_ways
@pytest.mark.parametrize("policy", [Slow(on_result=LONG), SlowAsync(on_result=LONG)], ids=["plain", "async"])
def test_an_on_result_that_takes_too_long_undoes_the_call(
    run: Callable[[ToolExecutor], ToolReply], policy: Any
) -> None:
    """The call has not succeeded before its policies have learned of it."""
    session = Session()
    reply = run(executor_of(session, None, policy, timeout=TIMEOUT))
    assert reply.outcome == "timeout"
    assert "completing it took too long" in reply.text
    assert session[Count].count() == 0


@both_ways
def test_a_render_that_takes_too_long_undoes_the_call(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """What cannot be told to the model in time has not happened."""
    session = Session()
    assert run(executor_of(session, Value(LONG), timeout=TIMEOUT)).outcome == "timeout"
    assert session[Count].count() == 0
    assert run(executor_of(session, Value(0.0), timeout=30.0)).success
    assert session[Count].count() == 1


@both_ways
def test_a_render_of_a_failed_result_has_the_same_limit(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """A call that failed may have a value as well: rendering that does not hold up the run."""

    def fail(params: Go, *, context: ToolContext) -> ToolResult[Value]:
        context.session[Count].append(Count(1))
        return ToolResult(message="no", value=Value(LONG), success=False)

    session = Session()
    tool = limits_parts.make(fail, "act", timeout=TIMEOUT)
    reply = run(limits_parts.executor_of(tool, session=session))
    assert reply.outcome == "timeout"
    assert "rendering its result took too long" in reply.text
    assert session[Count].count() == 0


@both_ways
def test_a_subscriber_that_takes_too_long_undoes_the_call(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """A subscriber that hangs is given up on, and the call is undone as if it had failed."""
    session = Session()
    session.dispatcher.subscribe(ToolInvoked, lambda event: stuck.wait(LONG) and None)
    reply = run(executor_of(session, timeout=TIMEOUT))
    assert reply.outcome == "timeout"
    assert "telling its subscribers took too long" in reply.text
    assert session[Count].count() == 0
    assert session[ToolInvoked].latest() is not None


@both_ways
def test_a_reducer_that_takes_too_long_undoes_the_call(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """A reducer is not given up on, since it holds the session's lock, but the call is undone afterwards."""
    session = Session()

    def slow(view: Any, event: Value) -> Append[Count]:
        time.sleep(2 * TIMEOUT)
        return Append(Count(2))

    session[Count].register(Value, slow)
    assert run(executor_of(session, Value(), timeout=TIMEOUT)).outcome == "timeout"
    assert session[Count].count() == 0
    assert session[ToolInvoked].count() == 1


@both_ways
def test_a_deadline_holds_for_what_follows_the_handler(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """Rendering may exceed the run's deadline by a second at the most; then the call is undone."""
    session = Session()
    started = time.monotonic()
    reply = run(executor_of(session, Value(LONG), deadline=Deadline.after(timedelta(seconds=TIMEOUT))))
    assert reply.outcome == "deadline"
    assert time.monotonic() - started < LONG / 2
    assert session[Count].count() == 0


# Calls that are not run.


def run_unknown(executor: ToolExecutor) -> ToolReply:
    with executor:
        return executor.execute(ToolCall("1", "nothing", "{}"))


def run_invalid(executor: ToolExecutor) -> ToolReply:
    with executor:
        return executor.execute(ToolCall("1", "act", '{"extra": 1}'))


def run_invalid_async(executor: ToolExecutor) -> ToolReply:
    async def main() -> ToolReply:
        async with executor:
            beating = asyncio.create_task(asyncio.sleep(0))
            reply = await executor.aexecute(ToolCall("1", "act", '{"extra": 1}'))
            assert beating.done()  # the event loop went on meanwhile
            return reply

    return asyncio.run(main())


def run_declined(executor: ToolExecutor) -> ToolReply:
    with executor:
        return executor.decline(ToolCall("1", "act", "{}"), "Not now.")


def run_open(executor: ToolExecutor) -> ToolReply:
    with executor:
        return executor.answer_open(ToolCall("1", "act", "{}"))


REFUSALS: list[tuple[Callable[[ToolExecutor], ToolReply], str]] = [
    (run_unknown, "unknown_tool"),
    (run_invalid, "invalid"),
    (run_invalid_async, "invalid"),
    (run_declined, "cancelled"),
    (run_open, "unknown"),
]


@pytest.mark.parametrize(("run", "outcome"), REFUSALS)
@pytest.mark.parametrize("limit", ["timeout", pytest.param("deadline", marks=pytest.mark.slow)])  # a second each
@pytest.mark.slow
def test_a_subscriber_of_a_refused_call_is_given_up_on(
    run: Callable[[ToolExecutor], ToolReply], outcome: str, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool's timeout and the deadline hold for who is told that a call was not run; answer and event stay."""
    session, told = Session(), list[str]()

    def hang(event: ToolInvoked) -> None:
        told.append(event.outcome)
        stuck.wait(LONG)

    session.dispatcher.subscribe(ToolInvoked, hang)
    started = time.monotonic()
    # An unknown tool has no timeout of its own.
    if limit == "timeout" and outcome != "unknown_tool":
        reply = run(executor_of(session, timeout=TIMEOUT))
    else:
        reply = run(executor_of(session, deadline=Deadline.after(timedelta(seconds=10 * TIMEOUT))))
    assert time.monotonic() - started < LONG / 2
    assert (reply.outcome, told) == (outcome, [outcome])
    assert [event.outcome for event in session[ToolInvoked].all()] == [outcome]
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("An event could not be dispatched: ")


def test_a_subscriber_of_a_refused_call_without_limits_runs_in_the_caller() -> None:
    """Without limits a subscriber is simply called, whatever became of the call."""
    session, threads = Session(), list[threading.Thread]()
    session.dispatcher.subscribe(ToolInvoked, lambda event: threads.append(threading.current_thread()))
    run_invalid(executor_of(session))
    run_declined(executor_of(session))
    assert threads == [threading.current_thread()] * 2


class Hanging(str):
    """A text that takes long to format."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        stuck.wait(LONG)
        return "formatted"


@both_ways
@pytest.mark.parametrize("result", [ToolResult.ok("text", message=Hanging()), ToolResult.ok(Hanging("x"))])
def test_a_text_of_a_users_class_has_limits_too(run: Callable[[ToolExecutor], ToolReply], result: Any) -> None:
    """Only what is certain to run no code of a user is rendered without a worker."""
    session = Session()

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Count].append(Count(1))
        return result

    started = time.monotonic()
    reply = run(limits_parts.executor_of(limits_parts.make(handler, "act", timeout=TIMEOUT), session=session))
    assert reply.outcome == "timeout"
    assert session[Count].count() == 0
    assert time.monotonic() - started < LONG / 2


@both_ways
def test_a_subscriber_that_comes_inside_the_call_has_limits_too(run: Callable[[ToolExecutor], ToolReply]) -> None:
    """Whether an event has subscribers is looked at when it is told, not before."""
    session = Session()

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        session.dispatcher.subscribe(ToolInvoked, lambda _: stuck.wait(LONG))
        return ToolResult.ok(None, message="done")

    reply = run(limits_parts.executor_of(limits_parts.make(handler, "act", timeout=TIMEOUT), session=session))
    assert reply.outcome == "timeout"
    assert "telling its subscribers took too long" in reply.text
