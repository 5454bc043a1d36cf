"""What Ctrl-C and other signals do: at once in a tool's handler, after the call elsewhere, as their handlers say."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.runtime.interrupt_parts import assert_free, events_of, python_handler
from tests.runtime.interrupt_parts import sigint as sigint  # noqa: PLC0414 - a fixture of every test here
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make, outcomes

from weakincentives.deadlines import Deadline
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.interrupts import MAIN, current_shield, shielded, unshielded, wait_until_done
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import PendingToolTracker, Session, ToolReply
from weakincentives.signals import SignalHandler

INT = signal.SIGINT


def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    return ToolResult.ok(params.text)


@dataclass(frozen=True)
class Late(Text):
    """Sends Ctrl-C while it is made of the arguments."""

    def __post_init__(self) -> None:
        signal.raise_signal(INT)


def signalling(number: int = INT, after: Callable[[], object] | None = None) -> Any:
    """A handler that sends a signal to this process; the name is its tool's."""

    def act(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(1))
        signal.raise_signal(number)
        if after is not None:
            after()
        return ToolResult.ok(params.text)

    return act


def test_a_handler_is_interrupted_at_once() -> None:
    """Ctrl-C in a handler does not wait: the call is cancelled, undone and recorded."""
    session, after = Session(), list[str]()
    act = signalling(after=lambda: after.append("!"))
    with executor_of(act, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("act", "1", text="a"))
    assert (outcomes(session), after, session[Count].count()) == (["cancelled"], [], 0)


@pytest.mark.parametrize("inside", [True, False], ids=["with", "alone"])
def test_an_interrupt_after_the_handler_waits_until_the_call_is_settled(inside: bool) -> None:
    """Ctrl-C while subscribers are told: the call has succeeded and says so, then KeyboardInterrupt is raised."""
    session, heard = Session(), list[str]()

    def subscriber(event: ToolInvoked) -> None:
        signal.raise_signal(INT)
        heard.append(event.outcome)

    session.dispatcher.subscribe(ToolInvoked, subscriber)
    executor = executor_of(write, session=session)
    if inside:
        executor.__enter__()
    with pytest.raises(KeyboardInterrupt):
        executor.execute(call("write", "1", text="a"))
    executor.close()
    assert (outcomes(session), heard, session[Count].count()) == (["succeeded"], ["succeeded"], 1)


def test_an_interrupt_before_the_handler_begins_cancels_the_call() -> None:
    """Ctrl-C while the arguments are read: the handler does not begin."""
    session, begun = Session(), list[str]()

    def act(params: Late) -> ToolResult[str]:
        begun.append(params.text)
        return ToolResult.ok("")

    with executor_of(act, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("act", "1", text="a"))
    assert (outcomes(session), begun) == (["cancelled"], [])


def test_a_write_in_a_handler_is_not_interrupted() -> None:
    """Ctrl-C in the middle of a write to the files is raised when the write is done."""
    session, seen = Session(), list[int]()

    class Files(InMemoryFilesystem):
        def write(self, path: str, content: str | bytes) -> None:
            signal.raise_signal(INT)
            super().write(path, content)
            seen.append(MAIN.depth)

    def act(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("a", "b")
        seen.append(-1)
        return ToolResult.ok("")

    fs = Files()
    with executor_of(act, session=session, fs=fs) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("act", "1", text="a"))
    assert (seen, outcomes(session), fs.exists("a")) == ([1], ["cancelled"], False)


@pytest.mark.slow  # waits for a time limit
def test_a_second_signal_does_not_wait_for_code_that_hangs() -> None:
    """A subscriber that hangs is interrupted by the second Ctrl-C, a second after the first."""
    session = Session()

    def hangs(event: ToolInvoked) -> None:
        signal.raise_signal(INT)
        time.sleep(1.1)
        signal.raise_signal(INT)
        raise AssertionError("not reached")

    session.dispatcher.subscribe(ToolInvoked, hangs)
    with executor_of(write, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("write", "1", text="a"))
    assert (outcomes(session), session[Count].count()) == (["cancelled"], 0)


def test_a_users_own_handler_is_kept_and_called() -> None:
    """Another signal's handler runs at once in a tool's handler, and after the call otherwise; both keep the call."""
    session, heard = Session(), list[tuple[int, int]]()
    session.dispatcher.subscribe(ToolInvoked, lambda _event: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append((number, len(outcomes(session)))))
    try:
        with executor_of(signalling(signal.SIGUSR1), session=session) as executor:
            assert isinstance(signal.getsignal(signal.SIGUSR1), SignalHandler)
            assert executor.execute(call("act", "1", text="a")).success
            assert not isinstance(before, SignalHandler)
        assert heard == [(signal.SIGUSR1, 0), (signal.SIGUSR1, 1)]
        assert not isinstance(signal.getsignal(signal.SIGUSR1), SignalHandler)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_ignored_signal_stays_ignored() -> None:
    """With SIGINT ignored, as under `nohup`, nothing is installed and calls work."""
    signal.signal(INT, signal.SIG_IGN)
    session = Session()
    with executor_of(write, session=session) as executor:
        assert signal.getsignal(INT) is signal.SIG_IGN
        assert executor.execute(call("write", "1", text="a")).success
    assert executor.execute(call("write", "2", text="a")).success
    assert signal.getsignal(INT) is signal.SIG_IGN
    signal.signal(INT, signal.default_int_handler)


def test_a_handler_installed_during_the_run_is_respected() -> None:
    """Who calls `signal.signal` in the middle is behind ours from the next turn on, and stays when the run ends."""
    session, heard = Session(), list[int]()

    def mine(number: int, _frame: Any) -> None:
        heard.append(number)

    def act(params: Text) -> ToolResult[str]:
        signal.signal(INT, mine)
        return ToolResult.ok("")

    session.dispatcher.subscribe(ToolInvoked, lambda _event: signal.raise_signal(INT))
    with executor_of(act, write, session=session) as executor:
        executor.execute_all([call("act", "1", text="a")])
        executor.execute_all([call("write", "2", text="a")])
        assert isinstance(signal.getsignal(INT), SignalHandler)
        assert len(heard) == 2
    assert signal.getsignal(INT) is mine
    signal.signal(INT, signal.default_int_handler)


def test_a_handler_that_calls_the_one_before_it() -> None:
    """A user's handler that passes signals on to the handler it replaced reaches Python's own, through ours."""
    session, heard = Session(), list[str]()

    def act(params: Text) -> ToolResult[str]:
        before = signal.getsignal(INT)
        assert callable(before)

        def mine(number: int, frame: Any) -> None:
            heard.append("mine")
            before(number, frame)

        signal.signal(INT, mine)
        return ToolResult.ok("")

    with executor_of(act, session=session) as executor:
        executor.execute_all([call("act", "1", text="a")])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
        executor.execute_all([call("missing", "3")])  # ours is in front again
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
    assert heard == ["mine", "mine"]
    signal.signal(INT, signal.default_int_handler)


def test_runs_may_be_nested() -> None:
    """Ours is removed with the last of the runs that are open, in whatever order they are closed."""
    one, two = executor_of(write), executor_of(write)
    with one:
        first = signal.getsignal(INT)
        two.__enter__()
        assert signal.getsignal(INT) is first
    assert signal.getsignal(INT) is first
    two.close()


def test_a_run_that_is_closed_elsewhere_is_removed_with_the_next() -> None:
    """Only the main thread may change signal handlers: what another one closes is removed later."""
    executor = executor_of(write).__enter__()
    thread = threading.Thread(target=executor.close)
    thread.start()
    thread.join()
    assert isinstance(signal.getsignal(INT), SignalHandler)
    with executor_of(write):
        pass
    assert signal.getsignal(INT) is signal.default_int_handler


def test_a_run_in_another_thread_installs_nothing() -> None:
    """No signal handler ever runs there."""
    found = list[object]()

    def work() -> None:
        with executor_of(write) as executor:
            found.extend((signal.getsignal(INT), executor.execute(call("write", "1", text="a")).success))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, True]


def test_asyncio_run_cancels_its_main_task() -> None:
    """A run entered inside `asyncio.run`: Ctrl-C cancels the main task, whose call is undone and recorded."""
    session, unwound = Session(), list[str]()

    async def act(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(1))
        signal.raise_signal(INT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            unwound.append("cancelled")
            raise
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(act, session=session) as executor:
            await executor.aexecute(call("act", "1", text="a"))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert (outcomes(session), unwound, session[Count].count()) == (["cancelled"], ["cancelled"], 0)


def test_an_async_handler_in_synchronous_code_is_cancelled() -> None:
    """The event loop that is run for it cancels it, as `asyncio.run` would; it can clean up."""
    session, unwound = Session(), list[str]()

    async def act(params: Text) -> ToolResult[str]:
        signal.raise_signal(INT)
        try:
            await asyncio.sleep(60)
        finally:
            unwound.append("done")
        return ToolResult.ok("")

    with executor_of(act, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("act", "1", text="a"))
    assert (outcomes(session), unwound) == (["cancelled"], ["done"])


def test_a_handler_that_runs_an_event_loop_of_its_own() -> None:
    """`asyncio.run` in a handler does not install its own handler, so Ctrl-C is a KeyboardInterrupt there."""
    session = Session()

    def act(params: Text) -> ToolResult[str]:
        async def main() -> None:
            signal.raise_signal(INT)

        asyncio.run(main())
        return ToolResult.ok("")

    with executor_of(act, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute(call("act", "1", text="a"))
    assert outcomes(session) == ["cancelled"]


def test_asyncio_run_after_a_call_alone() -> None:
    """A call outside of a `with` leaves Python's own handler in its place, so `asyncio.run` handles Ctrl-C after it."""
    executor = executor_of(write)
    executor.execute(call("write", "1", text="a"))
    seen = list[str]()

    async def main() -> None:
        signal.raise_signal(INT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert seen == ["cancelled"]
    executor.close()


def test_a_signal_handler_of_the_event_loop() -> None:
    """`loop.add_signal_handler` is called by its loop; nothing is raised and no call is lost."""
    session, heard = Session(), list[str]()

    async def act(params: Text) -> ToolResult[str]:
        signal.raise_signal(INT)
        while not heard:  # noqa: ASYNC110 - the callback is the loop's
            await asyncio.sleep(0.001)
        return ToolResult.ok("")

    async def main() -> ToolReply:
        async with executor_of(act, session=session) as executor:
            asyncio.get_running_loop().add_signal_handler(INT, heard.append, "heard")
            reply = await executor.aexecute(call("act", "1", text="a"))
            asyncio.get_running_loop().remove_signal_handler(INT)
            return reply

    assert asyncio.run(main()).success
    assert heard == ["heard"]


def test_overlapping_tasks_begin_and_end_each_step_unshielded() -> None:
    """While calls of several tasks are suspended, code of the loop between them is interruptible."""
    session, depths = Session(), set[int]()

    async def act(params: Text, *, context: ToolContext) -> ToolResult[str]:
        await asyncio.sleep(0.001)
        context.session[Count].append(Count(1))
        return ToolResult.ok("")

    async def watch() -> None:
        while True:
            depths.add(MAIN.depth)
            await asyncio.sleep(0)

    async def main() -> None:
        async with executor_of(act, make(write, read_only=True), session=session) as executor:
            watcher = asyncio.create_task(watch())
            await asyncio.gather(*(executor.aexecute(call("act", f"{n}", text="a")) for n in range(10)))
            await executor.aexecute_all([call("write", f"{n}", text="a") for n in range(20, 25)])
            watcher.cancel()

    asyncio.run(main())
    assert depths == {0}


def test_a_coroutine_that_is_dropped_does_not_lower_the_shield() -> None:
    """A suspended call that is closed while our own code runs leaves that code as protected as before."""

    async def suspended() -> None:
        with shielded():
            await unshielded(asyncio.get_running_loop().create_future())

    async def main() -> None:
        coroutine = suspended()
        coroutine.send(None)
        with shielded():
            coroutine.close()
            assert MAIN.depth == 1

    asyncio.run(main())


def test_a_wait_in_the_main_thread_ends_with_the_signal() -> None:
    """A handler in a worker thread is given up on at once; the call is cancelled and undone."""
    session, go = Session(), threading.Event()

    def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        timer.start()
        go.wait(60)
        return ToolResult.ok("")

    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, INT))
    with executor_of(make(slow, timeout=60.0), session=session) as executor:
        with pytest.raises(KeyboardInterrupt):
            executor.execute(call("slow", "1", text="a"))
        go.set()
        timer.join()
        assert outcomes(session) == ["cancelled"]
        assert_free(session)


def test_a_turn_is_ended_between_two_calls() -> None:
    """Ctrl-C while the first call of a turn is settled: it counts, the others are answered as not run."""
    session, seen = Session(), list[ToolReply]()
    once = iter([True])
    session.dispatcher.subscribe(ToolInvoked, lambda _event: next(once, False) and signal.raise_signal(INT))
    with executor_of(write, session=session) as executor, pytest.raises(KeyboardInterrupt):
        executor.execute_all([call("write", f"{n}", text="a") for n in range(3)], on_reply=seen.append)
    assert [reply.outcome for reply in seen] == outcomes(session) == ["succeeded", "cancelled", "cancelled"]
    assert [reply.text[:21] for reply in seen[1:]] == ["This call was not run"] * 2
    assert session[Count].count() == 1


def test_several_signals_are_all_delivered() -> None:
    """Signals that came while our code ran are delivered in order; the first exception is raised after the last."""
    session, heard = Session(), list[str]()

    def subscriber(_event: ToolInvoked) -> None:
        signal.raise_signal(INT)
        signal.raise_signal(signal.SIGUSR1)

    session.dispatcher.subscribe(ToolInvoked, subscriber)
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: heard.append("user"))
    try:
        with executor_of(write, session=session) as executor:
            with pytest.raises(KeyboardInterrupt):
                executor.execute(call("write", "1", text="a"))
            assert heard == ["user"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_native_tools_are_settled_before_an_interrupt() -> None:
    """The tracker of a harness's own tools records the end of a tool before Ctrl-C is raised."""
    session = Session()
    session.dispatcher.subscribe(ToolInvoked, lambda _event: signal.raise_signal(INT))
    tracker = PendingToolTracker(session=session)
    assert tracker.begin_tool_execution(tool_use_id="1", tool_name="native") is None
    with pytest.raises(KeyboardInterrupt):
        tracker.end_tool_execution(tool_use_id="1", success=True)
    assert [event.outcome for event in events_of(session, "1")] == ["succeeded"]
    assert_free(session)


def test_a_forked_child_has_a_main_thread_of_its_own() -> None:
    """A child forked by another thread is protected in that thread, which is its main one."""
    codes = list[int]()

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if current_shield() is MAIN and MAIN.depth == 0 else 1)
            finally:
                os._exit(2)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with shielded():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert codes == [0]


def test_waiting_has_a_limit_and_looks_around() -> None:
    """A wait ends in time, and what is to be done meanwhile is done."""
    future, looked = Future[None](), list[int]()
    started = time.monotonic()
    assert not wait_until_done(future, 0.3, meanwhile=lambda: looked.append(1), period=0.05)
    assert 0.25 < time.monotonic() - started < 20
    assert looked
    future.set_result(None)
    assert wait_until_done(future, 0)
    assert eventually(lambda: MAIN.wake is None)


@pytest.mark.slow  # hundreds of waits
def test_a_signal_that_comes_when_a_wait_begins_is_seen() -> None:
    """CPython misses one that falls between its last look and the wait. It does not stay unseen until the wait ends."""
    longest = 0.0
    with executor_of(write):
        for _ in range(300):
            begins = threading.Event()
            sender = threading.Thread(target=_send_after, args=(begins,))
            sender.start()
            started = time.monotonic()
            with shielded():
                begins.set()
                with pytest.raises(KeyboardInterrupt):
                    wait_until_done(Future[None](), 120)
                sender.join()
            longest = max(longest, time.monotonic() - started)
    assert longest < 100


def _send_after(begins: threading.Event) -> None:
    begins.wait()
    os.kill(os.getpid(), INT)


def test_a_run_that_is_never_closed_does_not_hide_newer_handlers() -> None:
    """An executor that is open elsewhere does not keep a later one from standing in front of a newer handler."""
    with python_handler():
        left_open = executor_of(write)
        left_open.__enter__()
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with executor_of(write):
                assert type(signal.getsignal(signal.SIGALRM)) is SignalHandler
        finally:
            left_open.close()
            signal.signal(signal.SIGALRM, before)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_executor_that_is_dropped_counts_as_closed() -> None:
    """Our handlers are removed with the next run, although the one before was not closed."""
    with python_handler():
        dropped = executor_of(write)
        dropped.__enter__()
        del dropped
        gc.collect()
        with executor_of(write):
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def interrupting(session: Session, *, sends: bool = True) -> threading.Event:
    """Subscribe a function that sends Ctrl-C at the first event, unless told not to, and takes two seconds for it."""
    told = threading.Event()

    def hang(event: ToolInvoked) -> None:
        if not told.is_set():
            told.set()
            if sends:
                os.kill(os.getpid(), INT)
            time.sleep(2)

    session.dispatcher.subscribe(ToolInvoked, hang)
    return told


def test_an_interrupt_while_subscribers_hear_of_a_refused_call() -> None:
    """The wait ends at once, and every id of the turn has one event and one answer."""
    session, replies = Session(), list[ToolReply]()
    told = interrupting(session)
    calls = [call("write", "1", wrong="a"), call("write", "2", text="b"), call("nothing", "3")]
    executor = executor_of(write, session=session, deadline=Deadline.after(timedelta(seconds=60)))
    with executor, pytest.raises(KeyboardInterrupt):
        executor.execute_all(calls, on_reply=replies.append)
    assert told.is_set()
    assert [(reply.call_id, reply.outcome) for reply in replies] == [
        ("1", "invalid"), ("2", "cancelled"), ("3", "cancelled")
    ]  # fmt: skip
    assert outcomes(session) == ["invalid", "cancelled", "cancelled"]
    assert_free(session)


@pytest.mark.slow  # waits for a time limit
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_interrupt_waits_until_a_declined_call_is_answered(when: str) -> None:
    """What ends a conversation is not cut short: the interrupt comes when the call is recorded and answered."""
    session = Session()
    told = interrupting(session, sends=when == "meanwhile")
    executor = executor_of(write, session=session, deadline=Deadline.after(timedelta(seconds=60)))
    with executor, shielded():
        if when == "before":
            signal.raise_signal(INT)  # noted, so that every wait finds it when it begins
        try:
            reply = executor.decline(call("write", "1", text="a"), "Not now.")
        except KeyboardInterrupt:
            pytest.fail("the end of the call was interrupted")  # else it would end all tests, not fail this one
        assert told.is_set()
        assert (reply.outcome, outcomes(session)) == ("cancelled", ["cancelled"])
        with pytest.raises(KeyboardInterrupt):
            current_shield().deliver()


def test_a_cancelled_turn_while_subscribers_hear_of_a_refused_call() -> None:
    """As above in an event loop, where the wait is cancelled."""
    session, replies, told = Session(), list[ToolReply](), threading.Event()

    def hang(event: ToolInvoked) -> None:
        if event.call_id == "1":
            told.set()
            time.sleep(2)

    session.dispatcher.subscribe(ToolInvoked, hang)
    executor = executor_of(write, session=session, deadline=Deadline.after(timedelta(seconds=60)))

    async def main() -> None:
        async with executor:
            calls = [call("write", "1", wrong="a"), call("write", "2", text="b")]
            turn = asyncio.create_task(executor.aexecute_all(calls, on_reply=replies.append))
            assert await asyncio.to_thread(told.wait, 20)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn

    asyncio.run(main())
    assert [(reply.call_id, reply.outcome) for reply in replies] == [("1", "invalid"), ("2", "cancelled")]
    assert outcomes(session) == ["invalid", "cancelled"]
    assert_free(session)
