"""What runs when objects of ours go: C code, in which no interrupt is raised, or Python code that notes interrupts."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.runtime.interrupt_parts import assert_free, interruptions
from tests.runtime.interrupt_parts import sigint as sigint  # noqa: PLC0414 - a fixture of every test here

from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.filesystem.disk import private_dir
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.interrupts import MAIN, WeakTable
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import Session, transaction
from weakincentives.runtime.ledger.memory import session_ledger
from weakincentives.runtime.ledger.sqlite_file import WriterQueue
from weakincentives.runtime.locks import lock_of
from weakincentives.signals import shielded_run

INT = signal.SIGINT


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was raised where it could not be caught."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    return lost


def waiting_queue(tmp_path: Path) -> WriterQueue:
    queue = WriterQueue(tmp_path)
    queue.join()
    return queue


def ledger_of_a_session(tmp_path: Path) -> Session:
    session = Session()
    session_ledger(session)
    return session


def savepoint_in_memory(tmp_path: Path) -> Any:
    fs = InMemoryFilesystem()
    savepoint = fs.savepoint()
    fs.write("a.txt", "x")
    kept.append(fs)
    return savepoint


def snapshot_on_disk(tmp_path: Path) -> Any:
    fs = HostFilesystem(tmp_path)
    kept.append(fs)
    return fs.snapshot()


def locked_participant(tmp_path: Path) -> InMemoryFilesystem:
    fs = InMemoryFilesystem()
    lock_of(fs)
    return fs


kept: list[Any] = []
C_LEVEL = [waiting_queue, ledger_of_a_session, savepoint_in_memory, snapshot_on_disk, locked_participant]


@pytest.mark.parametrize("make", C_LEVEL)
def test_what_runs_when_it_goes_is_c_code(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """No function written in Python is called, so there is no place where an interrupt could be raised and lost."""
    things, calls = [make(tmp_path)], list[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        things.clear()
    finally:
        sys.setprofile(before)
        gc.enable()
        for fs in kept:
            getattr(fs, "close", int)()
        kept.clear()
    assert calls == []


def open_files() -> int:
    """Besides the user's private directory, which stays open once it was used."""
    private_dir.make(private_dir.location(None))
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


@pytest.mark.slow
@pytest.mark.parametrize("cyclic", [False, True])
def test_a_queue_that_goes_closes_its_directory(tmp_path: Path, cyclic: bool) -> None:
    """Its descriptor is closed with it, also by the garbage collector, and its number is free for the next."""
    gc.collect()
    before = open_files()
    for _ in range(3):
        things: list[Any] = [waiting_queue(tmp_path)]
        if cyclic:
            things.append(things)
        del things
        gc.collect()
    assert open_files() == before
    queue = waiting_queue(tmp_path)
    queue.wrote()
    queue.close()
    queue.close()
    assert open_files() == before


@pytest.mark.slow
def test_a_queue_that_is_closed_while_it_goes_closes_its_directory_once(tmp_path: Path) -> None:
    """The garbage collector closes it before it runs finalizers; what has its number by then is not theirs to close."""
    gc.collect()
    taken: list[int] = []

    class Owner:
        def __init__(self) -> None:
            self.queue, self.itself = waiting_queue(tmp_path), self

        def __del__(self) -> None:
            taken.append(os.open(os.devnull, os.O_RDONLY))
            self.queue.close()

    Owner()
    (number,) = [fd for fd in range(3, 1024) if _is(fd, tmp_path)]
    gc.collect()
    assert taken == [number]
    os.close(number)  # it is still open


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_closes_nothing_of_its_parent(tmp_path: Path) -> None:
    """Closing or dropping a queue in a child leaves alone what has the descriptor's number there by then."""
    queue = waiting_queue(tmp_path)
    (number,) = [fd for fd in range(3, 1024) if _is(fd, tmp_path)]
    child = os.fork()
    if not child:  # pragma: no cover - another process
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), number)
            queue.close()
            del queue
            os.fstat(number)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.close()


def _is(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def as_in_a_handler(function: Callable[[], object]) -> None:
    """Call it in a run, where interrupts are raised at once."""
    with shielded_run():
        MAIN.depth -= 1
        try:
            function()
        finally:
            MAIN.depth += 1


class Signalling(Syscalls):
    """Sends Ctrl-C while a descriptor is closed."""

    armed = False

    def close(self, fd: int) -> None:
        if self.armed:
            self.armed = False
            signal.raise_signal(INT)
        super().close(fd)


def test_an_interrupt_while_a_filesystem_goes_is_not_lost(tmp_path: Path, unraisable: list[Any]) -> None:
    """Dropping the last reference closes it to the end; the interrupt comes with the next code of ours."""
    before = open_files()
    calls = Signalling()
    filesystems = [HostFilesystem(tmp_path, syscalls=calls)]

    def drop() -> None:
        calls.armed = True
        filesystems.clear()
        assert not calls.armed
        assert len(MAIN.noted) == 1

    with pytest.raises(KeyboardInterrupt):
        as_in_a_handler(drop)
    assert unraisable == []
    assert open_files() == before


@pytest.mark.slow
def test_an_interrupt_anywhere_while_a_filesystem_goes_is_not_lost(tmp_path: Path, unraisable: list[Any]) -> None:
    """At each place where Python looks for signals: it is raised once it can be, and what was open is closed."""
    with HostFilesystem(tmp_path) as first:  # the private directory stays open once a process has used it
        first.snapshot()
        first.write("a.txt", "x")
    before = open_files()

    def make() -> tuple[Callable[[], object], Callable[[Any, bool], None]]:
        filesystems = [HostFilesystem(tmp_path)]
        filesystems[0].snapshot()
        filesystems[0].write("a.txt", "x")

        def drop() -> None:
            as_in_a_handler(filesystems.clear)

        def check(injection: Any, raised: bool) -> None:
            filesystems.clear()
            assert raised is injection.done, injection.place
            assert unraisable == [], injection.place
            assert open_files() == before, injection.place

        return drop, check

    assert interruptions(make) > 50


def test_an_interrupt_while_a_transaction_is_dropped_is_not_lost(unraisable: list[Any]) -> None:
    """A block that was never left is closed when it goes, and the interrupt in it comes afterwards."""
    session = Session()

    class Part:
        def snapshot(self) -> int:
            return 1

        def restore(self, snapshot: int, /) -> None:
            signal.raise_signal(INT)

        def release(self, snapshot: int, /) -> None:
            pass

    blocks = [transaction(session, ResourceRegistry.build({Part: Part()}))]

    def drop() -> None:
        blocks[0].__enter__()
        session[int].append(1)
        blocks.clear()

    with pytest.raises(KeyboardInterrupt):
        as_in_a_handler(drop)
    assert unraisable == []
    assert session[int].count() == 0
    assert_free(session)


@pytest.mark.slow
def test_a_table_forgets_what_is_gone() -> None:
    """Values go with their keys; keys are told apart by identity, and may be event loops or sets."""
    table: WeakTable[Any, str] = WeakTable()
    loop = asyncio.new_event_loop()
    try:
        table.put(loop, "loop")
        assert (table.get(loop), table.living()) == ("loop", [loop])
    finally:
        loop.close()
    first, second = {1}, frozenset({1})
    table.put(second, "second")
    assert table.get(first) is None
    assert table.get(second) == "second"
    del second, loop
    gc.collect()
    assert table.living() == []
