"""Worker threads: reused, given up on, counted while they are stuck, and refused when too many are."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make, ok, outcomes, tell

from weakincentives import threads
from weakincentives.interrupts import wait_until_done
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session
from weakincentives.threads import MAX_ABANDONED, ThreadCall, abandoned_count

variable: ContextVar[str] = ContextVar("variable", default="")


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    assert eventually(lambda: abandoned_count() == 0, seconds=120)  # what other tests left stuck
    yield
    assert eventually(lambda: abandoned_count() == 0)


def result_of(work: ThreadCall, seconds: float) -> Any:
    assert wait_until_done(work, seconds)
    return work.result()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "wink-handler"]


def test_work_runs_in_another_thread_with_the_callers_context_variables() -> None:
    """A worker sees the caller's context variables; what it sets there stays there."""
    variable.set("caller")

    def work() -> tuple[str, int]:
        seen = variable.get()
        variable.set("worker")
        return seen, threading.get_ident()

    seen, ident = result_of(ThreadCall(work), 5)
    assert seen == "caller"
    assert ident != threading.get_ident()
    assert variable.get() == "caller"
    variable.set("")


def test_what_the_work_raises_travels() -> None:
    """Exceptions arrive, also those that end programs, and the worker goes on."""
    for kind in (ValueError, KeyboardInterrupt, SystemExit):

        def work(kind: type[BaseException] = kind) -> None:
            raise kind("as asked")

        with pytest.raises(kind, match="as asked"):
            result_of(ThreadCall(work), 5)
    assert result_of(ThreadCall(lambda: 7), 5) == 7


def test_workers_are_used_again() -> None:
    """Calls one after the other need no more than a few threads."""
    before = len(names())
    with executor_of(make(ok, timeout=5.0)) as executor:
        for number in range(100):
            assert executor.execute(call("ok", str(number), text=str(number))).success
    assert len(names()) <= before + 3


@pytest.mark.slow
def test_idle_workers_are_limited() -> None:
    """After a burst at most sixteen threads stay."""
    barrier = threading.Barrier(30)
    works = [ThreadCall(lambda: barrier.wait(60)) for _ in range(30)]
    for work in works:
        result_of(work, 10)
    assert eventually(lambda: len(names()) <= 16)


@pytest.mark.slow
def test_calls_that_run_at_once_again_and_again_use_the_same_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """More workers than are kept for good stay for a while: the next burst starts no threads, and then they go."""
    monkeypatch.setattr(threads, "_KEEP", 5.0)
    barrier = threading.Barrier(30)

    def meet() -> int:
        barrier.wait(60)
        return threading.get_ident()

    def burst() -> set[int]:
        return {result_of(work, 60) for work in [ThreadCall(meet) for _ in range(30)]}

    assert len(burst()) == 30
    assert burst() == burst()
    assert eventually(lambda: len(names()) <= 16, seconds=60)


def test_an_idle_worker_keeps_nothing_alive() -> None:
    """What the work held is freed when it is done."""
    import weakref

    class Big: ...

    big = Big()
    gone = weakref.ref(big)
    result_of(ThreadCall(lambda big=big: id(big)), 5)
    del big
    assert eventually(lambda: gone() is None)


def test_work_that_ends_in_the_last_moment_is_not_abandoned() -> None:
    """Giving up on finished work is refused, so that its result counts and no handler is counted as stuck."""
    work = ThreadCall(lambda: 1)
    assert result_of(work, 5) == 1
    assert not work.abandon()
    assert abandoned_count() == 0


def test_cancelling_a_wait_does_not_break_the_worker() -> None:
    """A task that stops waiting leaves the worker able to finish; it is counted until then and no longer."""
    go = threading.Event()
    problems: list[Any] = []
    hook, threading.excepthook = threading.excepthook, problems.append

    def waits(params: Text, *, context: ToolContext) -> ToolResult[str]:
        go.wait(60)
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(make(waits, timeout=5.0)) as executor:
            task = asyncio.create_task(executor.aexecute(call("waits")))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert abandoned_count() == 1

    try:
        asyncio.run(main())
        go.set()
        assert eventually(lambda: abandoned_count() == 0)
    finally:
        threading.excepthook = hook
    assert not problems


@pytest.mark.slow  # threads that are stuck
def test_stuck_threads_are_counted_capped_and_gone_when_they_return() -> None:
    """Eight handlers may be stuck; then threaded calls are refused, others are not, until they return."""
    go = threading.Event()
    session = Session()

    def waits(params: Text, *, context: ToolContext) -> ToolResult[str]:
        go.wait(60)
        context.session[Count].append(Count(1))
        return ToolResult.ok("")

    threads = len(names())
    stuck, limited = make(waits, "stuck", timeout=0.02), make(ok, "limited", timeout=1.0)
    in_thread, in_process = make(ok, "in_thread", isolation="thread"), make(tell, isolation="process", timeout=20.0)
    with executor_of(stuck, limited, in_thread, in_process, ok, session=session) as executor:
        for number in range(MAX_ABANDONED):
            assert executor.execute(call("stuck", f"stuck {number}")).outcome == "timeout"
            assert abandoned_count() == number + 1
        for name in ("stuck", "limited", "in_thread"):
            reply = executor.execute(call(name, f"refused {name}"))
            assert reply.outcome == "refused"
            assert "8 earlier calls ran out of time and are still stuck" in reply.text
        assert executor.execute(call("ok", "plain")).success, "a call in the caller's thread needs no worker"
        assert executor.execute(call("tell", "process")).success, "nor does one in a process of its own"
        go.set()
        assert eventually(lambda: abandoned_count() == 0)
        assert executor.execute(call("limited", "again")).success
    assert session[Count].count() == 0
    assert outcomes(session) == ["timeout"] * 8 + ["refused"] * 3 + ["succeeded"] * 3
    assert eventually(lambda: len(names()) <= threads + 3), "abandoned workers end when their handler returns"


def test_a_forked_child_has_workers_of_its_own() -> None:
    """After a fork the child does not wait for threads that only its parent has."""
    assert result_of(ThreadCall(lambda: 1), 5) == 1
    assert eventually(lambda: bool(names()))
    reader, writer = os.pipe()
    gc.collect()  # what other tests left behind is not for the child to end
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        gc.disable()
        try:
            os.write(writer, str(result_of(ThreadCall(lambda: 2), 60)).encode())
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        assert answers.read() == b"2"
    assert os.waitpid(pid, 0)[1] == 0


def test_a_handler_that_only_returns_something_awaitable_may_have_a_timeout() -> None:
    """A plain function that returns a coroutine is waited for in its thread, within the limit."""

    async def work() -> ToolResult[str]:
        await asyncio.sleep(0)
        return ToolResult.ok("awaited")

    def returns(params: Text) -> ToolResult[str]:
        return work()  # pyright: ignore[reportReturnType] - that is the point

    with executor_of(make(returns, timeout=5.0), make(returns, "plain")) as executor:
        assert executor.execute(call("returns", "1")).result.value == "awaited"
        assert executor.execute(call("plain", "2")).result.value == "awaited"

    async def main() -> None:
        async with executor_of(make(returns, timeout=5.0), make(returns, "plain")) as executor:
            assert (await executor.aexecute(call("returns", "1"))).result.value == "awaited"
            assert (await executor.aexecute(call("plain", "2"))).result.value == "awaited"

    asyncio.run(main())


def test_limits_of_centuries_are_no_problem() -> None:
    """A timeout that no clock can wait for is as good as none."""
    with executor_of(make(ok, timeout=1e15)) as executor:
        started = time.monotonic()
        assert executor.execute(call("ok")).success
        assert time.monotonic() - started < 60
