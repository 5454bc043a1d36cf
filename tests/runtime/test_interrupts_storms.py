"""Storms of real signals at random moments: no lock, id, thread or file is left behind, and every next call works.

A timer sends SIGALRM, whose handler raises KeyboardInterrupt: our handlers stand in front of every Python-level one.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.interrupt_parts import assert_at_rest, assert_free, events_of, python_handler
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make

from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, ToolInvoked, ToolReply
from weakincentives.runtime.executor import ToolExecutor

pytestmark = pytest.mark.timeout(900, method="thread")  # the timer is ours


class Storm:
    """Interrupts one action after another, each once, after a random time: most of them while it is under way.

    How long an action takes is learnt from those that were not interrupted.
    """

    def __init__(self) -> None:
        self.longest = 0.001
        self.random = random.Random(7)
        self.fired = 0

    def _handle(self, _signum: int, _frame: Any) -> None:
        self.fired += 1
        raise KeyboardInterrupt

    @contextmanager
    def blowing(self) -> Generator[None]:
        gc.collect()
        gc.disable()  # in a callback of what other tests left behind, Python swallows the interrupt
        before = signal.signal(signal.SIGALRM, self._handle)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gc.enable()

    def strike(self, action: Callable[[], object]) -> bool:
        """Whether the interrupt left the action; each is delivered exactly once."""
        fired, ended = self.fired, False
        begun = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-6, self.longest))
            action()
            ended = True
            self.longest += 0.2 * (1.5 * (time.monotonic() - begun) - self.longest)
            until = time.monotonic() + 60
            while self.fired == fired and time.monotonic() < until:
                time.sleep(0.0002)
        except KeyboardInterrupt:
            assert self.fired == fired + 1
            if not ended:  # so it takes longer than this
                self.longest *= 1.02
            return not ended
        raise AssertionError("The interrupt was lost.")


def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    if context.filesystem is not None:
        context.filesystem.append("log", params.text)
        context.filesystem.write(f"dir/{params.text}", params.text)
    return ToolResult.error("no") if params.text == "x" else ToolResult.ok(params.text)


def read(params: Text, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(str(context.session[Count].count()))


def storm(times: int, fs: Filesystem | None, names: tuple[str, ...] = ("write",)) -> int:
    """Interrupt single calls; how many interrupts left `execute`."""
    session, left = Session(), 0
    storm = Storm()
    before = "" if fs is None else fs.read("log")
    expected, count = before, 0
    with storm.blowing(), executor_of(write, read, session=session, fs=fs) as executor:
        for number in range(times):
            text = "ax"[number % 2]
            one = call(names[number % len(names)], f"{number}", text=text)
            left += storm.strike(lambda one=one: executor.execute(one))
            assert_at_rest()
            events = events_of(session, one.id)
            assert len(events) == executor.has_seen(one.id), one
            kept = bool(events) and events[0].success and one.name == "write"
            count += kept
            assert session[Count].count() == count, (number, events)
            if fs is not None:
                expected += text if kept else ""
                assert fs.read("log") == expected, (number, events)
            assert_free(session, *(() if fs is None else (fs,)))
            if number % 100 == 99:
                session[Count].clear()
                count = 0
    return left


@pytest.mark.slow
def test_calls_in_memory() -> None:
    """Single calls, good and bad, written and refused."""
    assert storm(300, InMemoryFilesystem({"log": ""}), ("write", "read", "write", "missing")) > 30


@pytest.mark.slow
def test_calls_on_disk(tmp_path: Path) -> None:
    """The same with files on disk."""
    assert storm(60, disk(tmp_path)) > 5


def disk(root: Path, watch: Any = None) -> HostFilesystem:
    (root / "log").write_text("")
    return HostFilesystem(root) if watch is None else HostFilesystem(root, watch=watch)


@pytest.mark.torture
def test_many_calls_in_memory() -> None:
    """5,000 interrupts."""
    assert storm(5000, InMemoryFilesystem({"log": ""}), ("write", "read", "write", "missing")) > 1000


@pytest.mark.torture
@pytest.mark.parametrize("watch", [None, "scan"])
def test_many_calls_on_disk(tmp_path: Path, watch: Any) -> None:
    """1,000 interrupts on the journal, 1,000 with `watch="scan"`; nothing but our files is in the root afterwards."""
    fs = disk(tmp_path, watch)
    assert storm(1000, fs) > 250
    fs.close()
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} <= {"log", "dir"}


def turns(times: int) -> None:
    """Interrupt turns of writing calls and of overlapping ones."""
    storm = Storm()

    def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        time.sleep(0.001)
        return read(params, context=context)

    threads = 0
    tools = (write, make(slow, read_only=True, timeout=30.0), make(read, read_only=True))
    with storm.blowing():
        for number in range(times):
            session, seen = Session(), list[ToolReply]()
            names = ("write", "slow", "read", "slow", "write", "read", "read")
            calls = [call(name, f"{index}", text="a") for index, name in enumerate(names)]
            with executor_of(*tools, session=session) as executor:
                storm.strike(lambda calls=calls, to=executor, seen=seen: to.execute_all(calls, on_reply=seen.append))
                assert_at_rest()
                answered = [reply.call_id for reply in seen]
                assert answered in ([], [one.id for one in calls]), number
                recorded = [event.call_id for event in session[ToolInvoked].all()]
                assert recorded == answered, number
                kept = sum(event.success for event in session[ToolInvoked].all() if event.tool_name == "write")
                assert session[Count].count() == kept
                assert_free(session)
                assert executor.execute(call("write", "next", text="n")).outcome == "succeeded"
            if number == times // 2:
                threads = threading.active_count()
    assert threading.active_count() <= threads + 2


@pytest.mark.slow
def test_turns() -> None:
    """Every id of an interrupted turn is answered once and recorded once, in order."""
    turns(60)


@pytest.mark.torture
def test_many_turns() -> None:
    """1,000 turns."""
    turns(1000)


def waiting(times: int) -> None:
    """Interrupt calls that wait: for a worker thread, and for a lock that another thread holds."""
    session = Session()
    storm = Storm()

    def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
        time.sleep(0.002)
        return write(params, context=context)

    stop = threading.Event()
    with storm.blowing(), executor_of(make(slow, timeout=30.0), write, session=session) as executor:

        def elsewhere() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                executor.execute(call("write", f"other {number}", text="b"))
                time.sleep(0.0005)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        try:
            for number in range(times):
                one = call("slow", f"{number}", text="a")
                storm.strike(lambda one=one: executor.execute(one))
                assert_at_rest()
                assert len(events_of(session, one.id)) == executor.has_seen(one.id)
        finally:
            stop.set()
            thread.join()
        events = session[ToolInvoked].all()
        assert len({event.call_id for event in events}) == len(events)
        assert eventually(lambda: session[Count].count() == sum(event.success for event in events))
        assert_free(session)


@pytest.mark.slow
def test_waiting_calls() -> None:
    """An interrupt ends a wait in the main thread and leaves nothing locked."""
    waiting(60)


@pytest.mark.torture
def test_many_waiting_calls() -> None:
    """1,000 interrupts."""
    waiting(1000)


async def awrite(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    await asyncio.sleep(0)
    return ToolResult.ok(params.text)


def loops(times: int) -> None:
    """Interrupt `asyncio.run` while tasks make calls; SIGINT this time, because that is what it handles."""
    delays = random.Random(3)
    main = threading.main_thread().ident
    assert main is not None
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(times):
            session = Session()
            executor = executor_of(awrite, write, make(read, read_only=True), session=session)
            one_loop(executor, session, main, delays.uniform(0, 0.01), number)
    finally:
        sys.setswitchinterval(before)


def one_loop(executor: ToolExecutor, session: Session, main: int, delay: float, number: int) -> None:
    def send() -> None:
        time.sleep(delay)
        signal.pthread_kill(main, signal.SIGINT)

    async def worker(name: str) -> None:
        for index in itertools.count():  # until interrupted: on a busy machine that may be late
            tool = ("awrite", "write", "read")[index % 3]
            await executor.aexecute(call(tool, f"{name} {index}", text="a"))

    async def everything() -> None:
        thread.start()  # not sooner: before its handler is installed, an interrupt breaks `asyncio.run` itself
        async with executor:
            await asyncio.gather(*(worker(name) for name in "abc"))

    thread = threading.Thread(target=send)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(everything())
    thread.join()
    assert_at_rest(f"{number}")
    events = session[ToolInvoked].all()
    assert len({event.call_id for event in events}) == len(events)
    kept = sum(event.success for event in events if event.tool_name != "read")
    assert session[Count].count() == kept
    assert_free(session)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_event_loops() -> None:
    """`asyncio.run` cancels its main task; every call that began has one event, and nothing is locked."""
    with python_handler():
        loops(15)


@pytest.mark.torture
def test_many_event_loops() -> None:
    """1,000 interrupted loops."""
    with python_handler():
        loops(1000)
