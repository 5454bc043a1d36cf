"""Locks know who holds them: when the thread, task or event loop of a call is gone, the next one takes over."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest
from tests.runtime.interrupt_parts import assert_free
from tests.runtime.limits_parts import Count, Text, call, executor_of, outcomes

from weakincentives.errors import SessionBusyError, StaleCallError
from weakincentives.fence import current_owner
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import PendingToolTracker, Session, ToolReply, locks, places, transaction
from weakincentives.runtime.locks import CallLock, LockSet, lock_of
from weakincentives.session.session import root_of
from weakincentives.waiting import OutOfTime, awaiting_here, blocking_here, drive


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters look after 50 ms, not after 5 s."""
    monkeypatch.setattr(locks, "_LOOK", 0.05)


def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    return ToolResult.ok(params.text)


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, name="short-lived")
    thread.start()
    thread.join()


def taken(lock: CallLock) -> LockSet:
    holding = LockSet((lock,))
    holding.place_here()
    assert holding.take_now(False)
    return holding


@pytest.mark.parametrize("shared", [True, False])
def test_a_lock_of_a_thread_that_ended_is_taken_over(shared: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits gets it, with one log line; what the thread left behind can release nothing any more."""
    lock, left = CallLock(), list[LockSet]()

    def take() -> None:
        holding = LockSet((lock,))
        holding.place_here()
        assert holding.take_now(shared)
        left.append(holding)

    in_thread(take)
    with caplog.at_level(logging.ERROR):
        mine = LockSet((lock,))
        drive(mine.take(blocking_here(), False, 20))
    assert [record.message for record in caplog.records] == [
        "A call in thread short-lived ended without releasing its locks; they were taken over"
    ]
    left[0].release()
    assert lock.writer is mine
    mine.release()
    assert lock.take_now(False)


def test_a_call_whose_loop_was_closed_is_undone_and_taken_over() -> None:
    """A call that hangs in a closed event loop is undone; its handles are revoked, and other calls go on."""
    session, contexts = Session(), list[ToolContext]()

    async def stuck(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(100))
        contexts.append(context)
        await asyncio.get_running_loop().create_future()
        return ToolResult.ok("")

    executor = executor_of(stuck, write, session=session)
    loop = asyncio.new_event_loop()
    task = loop.create_task(executor.aexecute(call("stuck", "1", text="a")))
    loop.run_until_complete(asyncio.sleep(0.02))
    loop.close()
    assert contexts
    assert executor.execute(call("write", "2", text="a")).outcome == "succeeded"
    assert session[Count].all() == (Count(1),)
    with pytest.raises(StaleCallError):
        contexts[0].session[Count].append(Count(3))
    assert session[Count].all() == (Count(1),)
    task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert session[Count].all() == (Count(1),)
    assert outcomes(session) == ["succeeded", "cancelled"]
    assert_free(session)
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]


def test_a_lock_of_a_task_that_is_done_is_taken_over_by_a_task() -> None:
    """Awaiting takes over as blocking does."""
    lock = CallLock()

    async def main() -> None:
        async def take() -> None:
            taken(lock)

        await asyncio.create_task(take())
        mine = LockSet((lock,))
        await mine.take(awaiting_here(), False, 20)
        mine.release()

    asyncio.run(main())
    assert lock.take_now(False)


def test_taking_over_leaves_the_waiters_own_context_alone() -> None:
    """A call that waits inside another keeps its owner when it takes over a lock."""
    lock, other = CallLock(), CallLock()
    in_thread(lambda: taken(lock))

    def wait() -> None:
        outer = LockSet((other,))
        drive(outer.take(blocking_here(), False))
        inner = LockSet((lock,))
        drive(inner.take(blocking_here(), False, 20))
        assert current_owner() is inner.owner
        inner.release()
        assert current_owner() is outer.owner
        outer.release()
        assert current_owner() is None

    Context().run(wait)


def test_a_release_passes_over_waiters_that_are_gone() -> None:
    """A lock is not handed to a task of a closed event loop, but to the next in line."""
    lock = CallLock()
    assert lock.take_now(False)
    loop = asyncio.new_event_loop()
    holding = LockSet((lock,))
    task = loop.create_task(holding.take(awaiting_here(), False))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    got = list[bool]()

    def wait() -> None:
        mine = LockSet((lock,))
        drive(mine.take(blocking_here(), False, 20))
        got.append(True)
        mine.release()

    thread = threading.Thread(target=wait)
    thread.start()
    lock.release(False)
    assert lock.writer is not holding  # else it would take the seconds until somebody looks after it
    thread.join(20)
    assert got == [True]
    assert lock.take_now(False)
    task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]


def test_a_holder_that_lives_keeps_its_lock() -> None:
    """However long a call takes, no other call takes its lock while it can still end."""
    lock, go, held = CallLock(), threading.Event(), threading.Event()

    def hold() -> None:
        holding = taken(lock)
        held.set()
        go.wait(60)
        holding.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    with pytest.raises(OutOfTime):
        drive(LockSet((lock,)).take(blocking_here(), False, 0.3))
    go.set()
    thread.join()
    assert lock.take_now(False)


def test_native_tools_and_transactions_outlive_the_task_that_began_them() -> None:
    """Hooks of a harness run in tasks of their own: what one of them began is not an orphan when it is done."""
    session, other = Session(), Session()

    async def main() -> Any:
        tracker = PendingToolTracker(session=session)
        block = transaction(other)

        async def begin() -> None:
            assert tracker.begin_tool_execution(tool_use_id="1", tool_name="native") is None
            await block.__aenter__()

        await asyncio.create_task(begin())
        for owner in (session, other):
            with pytest.raises(OutOfTime):
                await LockSet((lock_of(root_of(owner)),)).take(awaiting_here(), False, 0.2)
        await block.__aexit__(None, None, None)
        return tracker.end_tool_execution(tool_use_id="1", success=True)

    assert asyncio.run(main()).success
    assert_free(session, other)


class Interrupted:
    """A participant whose snapshots cannot be released without an interrupt."""

    def __init__(self) -> None:
        self.released = 0

    def snapshot(self) -> int:
        return 1

    def restore(self, snapshot: int, /) -> None:
        pass

    def release(self, snapshot: int, /) -> None:
        self.released += 1
        raise KeyboardInterrupt


class AlsoInterrupted(Interrupted):
    """Another one."""


def test_every_snapshot_is_released_whatever_the_others_do() -> None:
    """An interrupt in one release stops neither the others nor the release of the locks."""
    session, one, two = Session(), Interrupted(), AlsoInterrupted()
    executor = executor_of(write, session=session, resources={Interrupted: one, AlsoInterrupted: two})
    with executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("write", "1", text="a"))
    assert (one.released, two.released, outcomes(session)) == (1, 1, ["succeeded"])
    assert_free(session, one, two)


# Event loops that stand still. They may be run again, so nothing is taken from them.


class Stopped:
    """A call that hangs in an event loop which was stopped, but not closed."""

    def __init__(self, session: Session) -> None:
        self.go = asyncio.Event()
        self.executor = executor_of(self.hang, write, session=session)
        self.loop = asyncio.new_event_loop()
        self.task = self.loop.create_task(self.executor.aexecute(call("hang", "1", text="a")))
        self.loop.run_until_complete(asyncio.sleep(0.02))
        assert session[Count].all() == (Count(100),)

    async def hang(self, params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(100))
        await self.go.wait()
        return ToolResult.ok("")

    def finish(self) -> ToolReply:
        self.go.set()
        try:
            return self.loop.run_until_complete(self.task)
        finally:
            self.loop.close()


NOT_RUNNING = (
    "The session or the files are held by the call of the tool 'hang' that cannot end, because its event loop is not "
    "running: run it on, or close it and the call is undone."
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of other threads may stand still for 0.2 s, not for 30 s."""
    monkeypatch.setattr(places, "_STANDSTILL", 0.2)


def test_a_call_behind_a_stopped_loop_of_its_own_thread_is_refused() -> None:
    """It could never go on, as the thread that would run the loop waits; the call in the loop can still end."""
    session = Session()
    stopped = Stopped(session)
    reply = stopped.executor.execute(call("write", "2", text="a"))
    assert (reply.outcome, reply.text) == ("refused", f"{NOT_RUNNING}\nTherefore 'write' was not run.")
    with pytest.raises(SessionBusyError, match="its event loop is not running"), transaction(session):
        pass
    assert stopped.finish().success
    assert stopped.executor.execute(call("write", "3", text="a")).success
    assert session[Count].all() == (Count(100), Count(1))
    assert outcomes(session) == ["refused", "succeeded", "succeeded"]
    assert_free(session)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["blocking", "awaiting"])
def test_a_call_behind_a_stopped_loop_of_another_thread_is_refused(way: str) -> None:
    """Who waits for it in another thread is told so when the loop has not run for a while."""
    session, replies = Session(), list[ToolReply]()
    stopped = Stopped(session)
    executor = executor_of(write, session=session)

    def wait() -> None:
        asked = call("write", "2", text="a")
        replies.append(executor.execute(asked) if way == "blocking" else asyncio.run(executor.aexecute(asked)))

    in_thread(wait)
    assert [reply.text.partition("\n")[0] for reply in replies] == [NOT_RUNNING]
    assert stopped.finish().success
    assert session[Count].all() == (Count(100),)
    assert_free(session)


@pytest.mark.usefixtures("impatient")
def test_a_loop_that_runs_in_steps_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is run for a moment now and then is waited for, however seldom it is seen running."""
    session, replies = Session(), list[ToolReply]()
    stopped = Stopped(session)
    executor = executor_of(write, session=session)
    now, looks = 0.0, 0

    def time_of_steps() -> float:  # by the steps, so that a busy machine makes none of them late
        nonlocal looks
        looks += 1
        return now

    monkeypatch.setattr(places, "monotonic", time_of_steps)
    thread = threading.Thread(target=lambda: replies.append(executor.execute(call("write", "2", text="a"))))
    thread.start()
    until = time.monotonic() + 60
    while looks < 10 and not replies and time.monotonic() < until:
        stopped.loop.run_until_complete(asyncio.sleep(0))
        now += 0.15
        time.sleep(0.01)
    replied_early = bool(replies)
    assert stopped.finish().success
    thread.join(20)
    assert not replied_early
    assert looks >= 10
    assert [reply.outcome for reply in replies] == ["succeeded"]
    assert_free(session)


def test_a_call_that_blocks_the_loop_it_waits_for_is_refused() -> None:
    """Blocking in an event loop for a call of the same loop would last for ever; the error says to await."""
    session, go = Session(), asyncio.Event()

    async def hang(params: Text) -> ToolResult[str]:
        await go.wait()
        return ToolResult.ok("")

    executor = executor_of(hang, write, session=session)

    async def main() -> tuple[ToolReply, ToolReply]:
        task = asyncio.create_task(executor.aexecute(call("hang", "1", text="a")))
        await asyncio.sleep(0.02)
        blocked = executor.execute(call("write", "2", text="a"))
        waiting = asyncio.create_task(executor.aexecute(call("write", "3", text="a")))
        await asyncio.sleep(0.3)  # awaiting is fine, however long it takes
        assert not waiting.done()
        go.set()
        await task
        return blocked, await waiting

    blocked, awaited = asyncio.run(main())
    assert (blocked.outcome, awaited.outcome) == ("refused", "succeeded")
    assert "because this thread blocks its event loop: await here instead of blocking." in blocked.text
    assert_free(session)


@pytest.mark.parametrize("shared", [True, False])
def test_a_lock_granted_to_a_task_that_never_ran_again_is_taken_over(shared: bool) -> None:
    """A waiter that got the lock while its loop stood still, and was then closed, does not keep it for ever."""
    lock = CallLock()
    assert lock.take_now(False)
    loop = asyncio.new_event_loop()
    holding = LockSet((lock,))
    task = loop.create_task(holding.take(awaiting_here(), shared))
    loop.run_until_complete(asyncio.sleep(0.01))
    lock.release(False)
    assert not lock.take_now(False)  # granted, but the task has not run since
    loop.close()
    mine = LockSet((lock,))
    drive(mine.take(blocking_here(), False, 20))
    task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert lock.writer is mine
    assert not lock.take_now(False)
    mine.release()
    assert lock.take_now(False)
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
