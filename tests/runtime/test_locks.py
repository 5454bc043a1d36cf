"""Locks belong to calls: fair, re-entrant through context variables, never left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import pytest
from tests.runtime.interrupt_parts import interrupted_when
from tests.runtime.limits_parts import (
    Count,
    Text,
    call,
    eventually,
    executor_of,
    make,
    outcomes,
    start,
    switching_often,
)

from weakincentives.filesystem import Filesystem, InMemoryFilesystem, SubFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, transaction
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.locks import CallLock, LockSet, in_order, lock_of
from weakincentives.waiting import OutOfTime, awaiting_here, blocking_here, drive


def free(*locks: CallLock) -> bool:
    """Whether no one holds or awaits any of them."""
    holding = LockSet(in_order(locks))
    if not holding.take_now(False):
        return False
    holding.release()
    return True


def test_one_writer_or_any_number_of_readers() -> None:
    """Readers share a lock; a writer has it alone."""
    lock = CallLock()
    assert lock.take_now(True)
    assert lock.take_now(True)
    assert not lock.take_now(False)
    lock.release(True)
    assert not lock.take_now(False)
    lock.release(True)
    assert lock.take_now(False)
    assert not lock.take_now(False)
    assert not lock.take_now(True)
    lock.release(False)
    assert free(lock)


def test_whoever_waits_longest_is_next() -> None:
    """Waiters are served in order: a reader does not overtake a writer, and readers in a row go together."""
    lock = CallLock()
    assert lock.take_now(True)
    writer, first, second, last = lock.take(False), lock.take(True), lock.take(True), lock.take(False)
    assert writer
    assert first
    assert second
    assert last
    assert not lock.take_now(True), "a reader that just came must not overtake the waiting writer"
    lock.release(True)
    assert writer.done()
    assert not first.done()
    lock.release(False)
    assert first.done()
    assert second.done()
    assert not last.done()
    lock.release(True)
    assert not last.done()
    lock.release(True)
    assert last.done()
    lock.release(False)
    assert free(lock)


def test_giving_up_leaves_nothing_taken() -> None:
    """Who stops waiting is passed over; one whose turn came in the meantime hands the lock on."""
    lock = CallLock()
    assert lock.take_now(False)
    first, second, third = lock.take(False), lock.take(True), lock.take(True)
    assert first
    assert second
    assert third
    lock.give_up(True, second)
    lock.release(False)
    assert first.done()
    assert not second.done()
    lock.give_up(False, first)
    assert third.done()
    lock.release(True)
    assert free(lock)


def test_a_writer_that_gives_up_lets_the_readers_behind_it_in() -> None:
    """Readers that waited only for a waiting writer go on when it stops waiting."""
    lock = CallLock()
    assert lock.take_now(True)
    writer, reader = lock.take(False), lock.take(True)
    assert writer
    assert reader
    lock.give_up(False, writer)
    assert reader.done()
    lock.release(True)
    lock.release(True)
    assert free(lock)


def test_taking_several_takes_all_or_none() -> None:
    """When one lock cannot be had at once, none is kept."""
    one, two = CallLock(), CallLock()
    assert two.take_now(False)
    assert not LockSet(in_order([one, two])).take_now(False)
    assert free(one)
    two.release(False)
    assert free(one, two)


def test_a_wait_can_have_a_limit() -> None:
    """A limited wait ends with OutOfTime and leaves nothing taken, blocking or awaiting."""
    one, two = CallLock(), CallLock()
    assert two.take_now(False)
    with pytest.raises(OutOfTime):
        drive(LockSet(in_order([one, two])).take(blocking_here(), False, 0.02))
    with pytest.raises(OutOfTime):
        asyncio.run(LockSet(in_order([one, two])).take(awaiting_here(), False, 0.02))
    assert free(one)
    two.release(False)
    assert free(one, two)


def test_an_interrupted_wait_leaves_nothing_taken() -> None:
    """Ctrl-C while a thread waits for a lock leaves all locks as they were."""
    one, two = CallLock(), CallLock()
    assert two.take_now(False)
    with interrupted_when(lambda: time.sleep(0.1)):
        drive(LockSet(in_order([one, two])).take(blocking_here(), False))
    assert free(one)
    two.release(False)
    assert free(one, two)


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_wait_leaves_nothing_taken(granted: bool) -> None:
    """Cancelling a task that waits leaves all locks free, also when its turn came at that very moment."""
    one, two = CallLock(), CallLock()

    async def main() -> None:
        assert two.take_now(False)
        task = asyncio.create_task(LockSet(in_order([one, two])).take(awaiting_here(), False))
        await asyncio.sleep(0.01)
        if granted:
            two.release(False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if not granted:
            two.release(False)

    asyncio.run(main())
    assert free(one, two)


def test_cancellations_and_grants_race_without_loss() -> None:
    """Whatever is cancelled when, in the end the lock is free and was never held twice."""
    lock = CallLock()
    inside = [0]

    async def worker(number: int) -> None:
        for _ in range(30):
            holding = LockSet((lock,))
            await holding.take(awaiting_here(), number % 3 == 0)
            try:
                inside[0] += 100 if number % 3 else 1
                assert inside[0] in {100, *range(1, 17)}
                await asyncio.sleep(0)
            finally:
                inside[0] -= 100 if number % 3 else 1
                holding.release()

    async def main() -> None:
        tasks = [asyncio.create_task(worker(number)) for number in range(8)]
        for step in range(60):
            await asyncio.sleep(0)
            if step % 20 == 19:
                tasks[step // 20].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [result for result in results if isinstance(result, AssertionError)], results

    with switching_often():
        threads = [start(lambda: asyncio.run(main())) for _ in range(2)]
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert free(lock)


def test_threads_exclude_one_another() -> None:
    """Eight threads that add without care lose nothing under the lock."""
    lock = CallLock()
    total = [0]

    def work() -> None:
        for _ in range(200):
            holding = LockSet((lock,))
            drive(holding.take(blocking_here(), False))
            seen = total[0]
            time.sleep(0)
            total[0] = seen + 1
            holding.release()

    with switching_often():
        threads = [start(work) for _ in range(8)]
        for thread in threads:
            thread.join(30)
    assert total == [1600]
    assert free(lock)


class Plain:
    """A participant."""


class NoWeakReference:
    __slots__ = ()

    def snapshot(self) -> int:
        return 0

    def restore(self, snapshot: int) -> None: ...
    def release(self, snapshot: int) -> None: ...


@dataclass
class Unhashable:
    value: int = 0


@dataclass(frozen=True)
class Equal:
    value: int = 0


def test_the_lock_of_a_participant_is_its_own() -> None:
    """A participant keeps its lock, two have two, and a lock ends with its participant."""
    one, two = Plain(), Plain()
    assert lock_of(one) is lock_of(one)
    assert lock_of(one) is not lock_of(two)
    assert lock_of(one).number != lock_of(two).number
    assert lock_of(NoWeakReference()) is lock_of(NoWeakReference()), "those that cannot be remembered share one"
    unhashable = Unhashable()
    assert lock_of(unhashable) is lock_of(unhashable)


def test_equal_participants_do_not_share_a_lock() -> None:
    """Equality says nothing about identity: two equal participants have two locks, whichever lives longer."""
    one, two = Equal(), Equal()
    lock = lock_of(two)
    assert lock_of(one) is not lock
    del one
    gc.collect()
    assert lock_of(two) is lock


def test_participants_without_weak_references_take_part() -> None:
    """A snapshotable resource that cannot be weakly referred to is locked and called like any other."""
    with executor_of(_add, resources={NoWeakReference: NoWeakReference()}) as executor:
        assert executor.execute(call("add", "1")).success
        assert executor.execute(call("add", "2")).success


def _add(params: Text, *, context: ToolContext) -> ToolResult[int]:
    context.session[Count].append(Count(1))
    return ToolResult.ok(1)


# Calls inside calls.


def nesting(make_call: Callable[[ToolExecutor], Any], **options: Any) -> tuple[ToolExecutor, Session]:
    """An executor whose tool `outer` makes a call of `add` on the same session, in the given way."""
    session = Session()
    held: list[ToolExecutor] = []

    def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(10))
        return ToolResult.ok(str(make_call(held[0])))

    executor = executor_of(make(outer, **options), _add, session=session)
    held.append(executor)
    return executor, session


def _directly(executor: ToolExecutor) -> bool:
    return executor.execute(call("add", "2")).success


def _in_thread(executor: ToolExecutor) -> bool:
    found: list[bool] = []
    context = copy_context()
    thread = start(lambda: context.run(lambda: found.append(executor.execute(call("add", "2")).success)))
    thread.join(60)
    return found[0]


@pytest.mark.parametrize("timeout", [None, 5.0], ids=["in the caller's thread", "in a worker thread"])
@pytest.mark.parametrize("make_call", [_directly, _in_thread], ids=["same thread", "copied context"])
def test_a_call_inside_a_call_does_not_wait_for_itself(
    make_call: Callable[[ToolExecutor], Any], timeout: float | None
) -> None:
    """A handler may make a call on its own session, also from a thread that has its context variables."""
    executor, session = nesting(make_call, timeout=timeout)
    with executor:
        reply = executor.execute(call("outer"))
    assert reply.message == "OK"
    assert reply.result.value == "True"
    assert [item.value for item in session[Count].all()] == [10, 1]
    assert free(lock_of(session))


def test_a_task_inside_an_async_call_does_not_wait_for_it() -> None:
    """A child task of an async handler may make calls on the same session."""
    session = Session()
    held: list[ToolExecutor] = []

    async def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
        replies = await asyncio.gather(*(held[0].aexecute(call("add", str(number))) for number in range(5, 9)))
        return ToolResult.ok(" ".join(reply.outcome for reply in replies))

    async def main() -> None:
        async with executor_of(outer, _add, session=session) as executor:
            held.append(executor)
            reply = await asyncio.wait_for(executor.aexecute(call("outer")), 5)
            assert reply.result.value == "succeeded succeeded succeeded succeeded"

    asyncio.run(main())
    assert session[Count].count() == 4
    assert free(lock_of(session))


def test_calls_made_inside_one_call_are_serialised_among_themselves() -> None:
    """Two tasks of one handler that call at once do not mix: one that fails takes nothing of the other with it."""
    session = Session()
    held: list[ToolExecutor] = []

    async def slow(params: Text, *, context: ToolContext) -> ToolResult[int]:
        context.session[Count].append(Count(100))
        await asyncio.sleep(0.05)
        return ToolResult.error("too slow")

    async def quick(params: Text, *, context: ToolContext) -> ToolResult[int]:
        context.session[Count].append(Count(1))
        return ToolResult.ok(1)

    async def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
        calls = [held[0].aexecute(call("slow", "2")), held[0].aexecute(call("quick", "3"))]
        replies = await asyncio.gather(*calls)
        return ToolResult.ok(" ".join(reply.outcome for reply in replies))

    async def main() -> None:
        async with executor_of(outer, slow, quick, session=session) as executor:
            held.append(executor)
            assert (await executor.aexecute(call("outer"))).result.value == "failed succeeded"

    asyncio.run(main())
    assert [item.value for item in session[Count].all()] == [1]


def test_a_failing_call_takes_back_the_calls_made_inside_it() -> None:
    """What a nested call changed belongs to the call around it; the log keeps both."""
    session = Session()
    held: list[ToolExecutor] = []

    def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert held[0].execute(call("add", "2")).success
        return ToolResult.error("no")

    with executor_of(outer, _add, session=session) as executor:
        held.append(executor)
        assert executor.execute(call("outer")).outcome == "failed"
    assert session[Count].count() == 0
    assert outcomes(session) == ["succeeded", "failed"]


def test_a_task_that_outlives_its_call_does_not_hold_its_lock() -> None:
    """A task started by a handler waits like anybody else once the call is over."""
    session = Session()
    held: list[ToolExecutor] = []
    tasks: list[asyncio.Task[Any]] = []
    order: list[str] = []

    async def starter(params: Text, *, context: ToolContext) -> ToolResult[str]:
        async def later() -> None:
            await asyncio.sleep(0.05)
            await held[0].aexecute(call("add", "late"))
            order.append("late")

        tasks.append(asyncio.create_task(later()))
        return ToolResult.ok("started")

    async def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        await asyncio.sleep(0.15)
        order.append("slow")
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(starter, slow, _add, session=session) as executor:
            held.append(executor)
            await executor.aexecute(call("starter", "1"))
            await executor.aexecute(call("slow", "2"))
            await tasks[0]

    asyncio.run(main())
    assert order == ["slow", "late"]
    assert free(lock_of(session))


def test_a_nested_call_in_progress_is_over_when_its_caller_is() -> None:
    """When a call times out, a call made inside it can change nothing any more and brings nothing back."""
    session = Session()
    held: list[ToolExecutor] = []
    go, gone = threading.Event(), threading.Event()
    replies: list[Any] = []
    problems: list[str] = []

    def inner(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(20))
        go.wait(60)
        try:
            context.session[Count].append(Count(30))
        except Exception as error:
            problems.append(type(error).__name__)
        return ToolResult.error("failed late") if params.text == "fail" else ToolResult.ok("late")

    def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(10))
        replies.append(held[0].execute(call("inner", f"in {params.text}", text=params.text)))
        gone.set()
        return ToolResult.ok("")

    with executor_of(make(outer, timeout=0.1), inner, _add, session=session) as executor:
        held.append(executor)
        for number, text in enumerate(["fail", "succeed"]):
            go.clear()
            gone.clear()
            assert executor.execute(call("outer", f"out {text}", text=text)).outcome == "timeout"
            assert executor.execute(call("add", f"between {text}")).success
            go.set()
            assert gone.wait(60)
            assert [item.value for item in session[Count].all()] == [1] * (number + 1)
    assert problems == ["StaleCallError", "StaleCallError"]
    assert [reply.outcome for reply in replies] == ["cancelled", "cancelled"]


def test_a_transaction_holds_the_lock_for_the_calls_inside_it() -> None:
    """Calls inside `transaction` run at once; others wait until it is over."""
    session = Session()
    done: list[str] = []
    with executor_of(_add, session=session) as executor:
        with transaction(session):
            assert executor.execute(call("add", "1")).success
            other = start(lambda: (executor.execute(call("add", "2")), done.append("other")))
            time.sleep(0.05)
            assert not done
        other.join(60)
    assert done == ["other"]
    assert session[Count].count() == 2


def test_two_sessions_that_share_files_never_wait_for_each_other() -> None:
    """Whatever was made first, sessions that share a filesystem take turns and lose nothing."""
    fs = InMemoryFilesystem({"n": "0"})

    def bump(params: Text, *, context: ToolContext) -> ToolResult[int]:
        files = context.filesystem
        assert files is not None
        value = int(files.read("n"))
        time.sleep(0)
        files.write("n", str(value + 1))
        return ToolResult.ok(value) if value % 5 else ToolResult.error("no")

    early = Session()
    lock_of(early)
    lock_of(fs)
    late = Session()
    executors = [executor_of(bump, session=session, fs=fs) for session in (early, late)]

    def work(executor: ToolExecutor, name: str) -> None:
        for number in range(50):
            executor.execute(call("bump", f"{name} {number}"))

    fs.write("n", "1")
    with switching_often():
        threads = [start(lambda e=e, n=n: work(e, str(n))) for n, e in enumerate(executors * 2)]
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "deadlock"
    succeeded = sum(outcomes(session).count("succeeded") for session in (early, late))
    assert int(fs.read("n")) == 1 + succeeded
    assert sum(len(outcomes(session)) for session in (early, late)) == 200
    assert succeeded == 4, "the fifth value is never passed, since its call is undone each time"


@pytest.mark.slow
def test_nothing_is_left_after_many_sessions() -> None:
    """Locks go with their sessions."""
    from weakincentives.runtime import locks

    def used() -> int:
        gc.collect()
        return len(locks._locks)  # pyright: ignore[reportPrivateUsage]

    before = used()

    def work() -> None:
        with executor_of(_add) as executor:
            executor.execute(call("add"))

    for _ in range(20):
        work()
    assert eventually(lambda: used() <= before)


def test_views_of_one_filesystem_have_its_lock() -> None:
    """Calls that reach the same files through different views wait for each other."""
    fs = InMemoryFilesystem()
    fs.mkdir("sub/deep")
    inside, go = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        inside.set()
        go.wait(60)
        order.append("slow")
        return ToolResult.ok("")

    def quick(params: Text, *, context: ToolContext) -> ToolResult[str]:
        order.append("quick")
        return ToolResult.ok("")

    view = SubFilesystem(SubFilesystem(fs, "sub"), "deep")
    with executor_of(slow, resources={Filesystem: fs}) as one, executor_of(quick, resources={Filesystem: view}) as two:
        threads = [threading.Thread(target=one.execute, args=[call("slow", "1")])]
        threads[0].start()
        assert inside.wait(60)
        threads.append(threading.Thread(target=two.execute, args=[call("quick", "2")]))
        threads[1].start()
        threads[1].join(0.1)
        go.set()
        for thread in threads:
            thread.join(10)
    assert order == ["slow", "quick"]
