"""Async: both kinds of handlers from both kinds of code, and what cancelling does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make, outcomes, stuck_sleep

from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.resources import Binding
from weakincentives.runtime import Session, ToolInvoked, ToolReply
from weakincentives.threads import abandoned_count


async def async_add(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    await asyncio.sleep(0)
    return ToolResult.ok(params.text)


def sync_add(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    return ToolResult.ok(params.text)


async def async_fail(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    await asyncio.sleep(0)
    raise ValueError("broken")


TOOLS = [
    async_add,
    sync_add,
    make(async_add, "limited_async", timeout=5.0),
    make(sync_add, "limited_sync", timeout=5.0),
]
NAMES = ["async_add", "sync_add", "limited_async", "limited_sync"]


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_handler_runs_from_every_kind_of_code(name: str) -> None:
    """Plain code, a coroutine, plain code inside a running loop: the handler runs and its change stays."""
    session = Session()
    executor = executor_of(*TOOLS, session=session)

    async def awaiting() -> ToolReply:
        return await executor.aexecute(call(name, "2", text="b"))

    async def blocking() -> ToolReply:
        return executor.execute(call(name, "3", text="c"))

    with executor:
        replies = [executor.execute(call(name, "1", text="a")), asyncio.run(awaiting()), asyncio.run(blocking())]
    assert [reply.result.value for reply in replies] == ["a", "b", "c"]
    assert session[Count].count() == 3
    assert outcomes(session) == ["succeeded"] * 3


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_async_handler_that_raises_is_undone(timeout: float | None) -> None:
    """Sync or async, limited or not: a failed async handler leaves nothing."""
    session = Session()
    with executor_of(make(async_fail, timeout=timeout), session=session) as executor:
        assert executor.execute(call("async_fail", "1")).text.startswith("Internal error: broken")

    async def main() -> None:
        async with executor_of(make(async_fail, timeout=timeout), session=session) as executor:
            assert (await executor.aexecute(call("async_fail", "2"))).outcome == "crashed"

    asyncio.run(main())
    assert session[Count].count() == 0
    assert outcomes(session) == ["crashed", "crashed"]


def test_a_sync_handler_with_a_limit_does_not_block_the_loop() -> None:
    """While a limited sync handler runs in its thread, other tasks go on."""
    go = threading.Event()

    def waits(params: Text) -> ToolResult[str]:
        return ToolResult.ok(str(go.wait(60)))

    async def main() -> None:
        async with executor_of(make(waits, timeout=60.0)) as executor:
            task = asyncio.create_task(executor.aexecute(call("waits")))
            await asyncio.sleep(0.02)
            go.set()
            assert (await task).result.value == "True"

    asyncio.run(main())


def test_many_executors_run_at_once_on_different_sessions() -> None:
    """Calls on different sessions overlap: a hundred that all wait for one another finish."""

    async def main() -> None:
        arrived, everyone = [0], asyncio.Event()

        async def meet(params: Text, *, context: ToolContext) -> ToolResult[str]:
            context.session[Count].append(Count(arrived[0]))
            arrived[0] += 1
            if arrived[0] == 100:
                everyone.set()
            await everyone.wait()
            return ToolResult.ok("")

        sessions = [Session() for _ in range(100)]
        executors = [executor_of(meet, session=session) for session in sessions]
        calls = [executor.aexecute(call("meet")) for executor in executors]
        replies = await asyncio.wait_for(asyncio.gather(*calls), 20)
        assert all(reply.success for reply in replies)
        assert [session[Count].count() for session in sessions] == [1] * 100

    asyncio.run(main())


def test_tasks_on_one_session_take_turns() -> None:
    """Async calls on one session do not mix, in the order in which they came."""
    session, order = Session(), list[str]()

    async def step(params: Text, *, context: ToolContext) -> ToolResult[str]:
        order.append(f"+{params.text}")
        await asyncio.sleep(0.001)
        order.append(f"-{params.text}")
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(step, session=session) as executor:
            await asyncio.gather(*(executor.aexecute(call("step", str(n), text=str(n))) for n in range(20)))

    asyncio.run(main())
    assert order == [f"{sign}{n}" for n in range(20) for sign in "+-"]


def test_a_first_call_from_two_tasks_enters_the_resources_once() -> None:
    """What the resources built is closed by one close, whichever was first."""
    closed: list[str] = []

    class Thing:
        def close(self) -> None:
            closed.append("closed")

    async def use(params: Text, *, context: ToolContext) -> ToolResult[str]:
        await context.resources.aget(Thing)
        return ToolResult.ok("")

    async def main() -> None:
        executor = executor_of(use, resources={Thing: Binding(Thing, lambda resolver: Thing())})
        await asyncio.gather(*(executor.aexecute(call("use", str(n))) for n in range(5)))
        await executor.aclose()

    asyncio.run(main())
    assert closed == ["closed"]


# Cancelling.


async def async_stuck(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(5))
    files = context.filesystem
    assert files is not None
    files.write("made.txt", "made")
    await asyncio.sleep(3600)
    return ToolResult.ok("")


go = threading.Event()


def thread_stuck(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(5))
    files = context.filesystem
    assert files is not None
    files.write("made.txt", "made")
    go.wait(60)
    context.session[Count].append(Count(6))
    return ToolResult.ok("")


CANCELLED = {
    "an async handler": make(async_stuck, "stuck"),
    "a limited async handler": make(async_stuck, "stuck", timeout=60.0),
    "a worker thread": make(thread_stuck, "stuck", timeout=60.0),
    "a worker thread without a limit": make(thread_stuck, "stuck", isolation="thread"),
    "a process": make(stuck_sleep, "stuck", isolation="process"),
}


async def cancelled_after(seconds: float, work: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("tool", CANCELLED.values(), ids=CANCELLED)
def test_cancelling_undoes_the_call_and_records_one_event(tool: Any) -> None:
    """Wherever the handler runs, cancelling its task undoes it, records it once, and lets the next call in."""
    session, fs = Session(), InMemoryFilesystem({"kept.txt": "kept"})
    go.clear()

    async def main() -> None:
        async with executor_of(tool, sync_add, session=session, fs=fs) as executor:
            started = time.monotonic()
            await cancelled_after(0.1, executor.aexecute(call("stuck", "1")))
            assert time.monotonic() - started < 15
            assert session[Count].count() == 0
            assert [stat.path for stat in fs.list()] == ["kept.txt"]
            assert (await executor.aexecute(call("sync_add", "2"))).success

    asyncio.run(main())
    go.set()
    assert eventually(lambda: abandoned_count() == 0)
    assert outcomes(session) == ["cancelled", "succeeded"]
    assert [item.value for item in session[Count].all()] == [1]
    first = session[ToolInvoked].all()[0]
    assert first.call_id == "1"
    assert first.error is not None
    assert first.error.type_name == "asyncio.exceptions.CancelledError"


def test_cancelling_while_waiting_for_the_lock_records_one_event() -> None:
    """A call that never began is recorded once as cancelled and leaves the others alone."""
    session = Session()
    began, release = asyncio.Event(), asyncio.Event()

    async def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        began.set()
        await release.wait()
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(slow, sync_add, session=session) as executor:
            first = asyncio.create_task(executor.aexecute(call("slow", "1")))
            await began.wait()
            await cancelled_after(0.02, executor.aexecute(call("sync_add", "2")))
            release.set()
            assert (await first).success
            assert (await executor.aexecute(call("sync_add", "3"))).success

    asyncio.run(main())
    assert outcomes(session) == ["cancelled", "succeeded", "succeeded"]
    assert session[Count].count() == 1


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_handler_that_swallows_its_cancellation_is_undone_all_the_same(timeout: float | None) -> None:
    """Catching CancelledError does not save a call: its task was cancelled, so it is undone."""
    session = Session()

    async def swallows(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(1))
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            context.session[Count].append(Count(2))
        return ToolResult.ok("as if nothing had happened")

    async def main() -> None:
        async with executor_of(make(swallows, timeout=timeout), session=session) as executor:
            await cancelled_after(0.05, executor.aexecute(call("swallows")))

    asyncio.run(main())
    assert session[Count].count() == 0
    assert outcomes(session) == ["cancelled"]


def test_a_handler_may_use_timeouts_and_task_groups_of_its_own() -> None:
    """Cancellations that stay inside the handler are its own business."""

    async def careful(params: Text) -> ToolResult[str]:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            pass
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(10))
                raise ValueError
        except* ValueError:
            pass
        return ToolResult.ok("fine")

    async def main() -> None:
        async with executor_of(careful) as executor:
            assert (await executor.aexecute(call("careful"))).result.value == "fine"

    asyncio.run(main())


def test_cancelling_at_every_step_leaves_nothing_half_done() -> None:
    """Cancelled after any number of steps of the loop, the call has happened completely or not at all."""

    async def steps(params: Text, *, context: ToolContext) -> ToolResult[str]:
        for number in range(5):
            context.session[Count].append(Count(number))
            await asyncio.sleep(0)
        return ToolResult.ok("")

    async def run(after: int, build: Callable[[], Any]) -> tuple[int, list[str]]:
        session = Session()
        async with executor_of(build(), session=session) as executor:
            task = asyncio.create_task(executor.aexecute(call("steps")))
            for _ in range(after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return session[Count].count(), outcomes(session)

    seen: set[tuple[int, str]] = set()
    for build in (lambda: make(steps), lambda: make(steps, timeout=60.0)):
        for after in range(1, 15):
            count, ended = asyncio.run(run(after, build))
            assert len(ended) == 1, (after, ended)
            seen.add((count, ended[0]))
    assert seen == {(0, "cancelled"), (5, "succeeded")}
