"""Many threads on one session lose nothing and see nothing half done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import getswitchinterval, setswitchinterval
from threading import Barrier, Thread
from typing import NamedTuple

import pytest

from weakincentives.session import Append, InProcessDispatcher, Replace, Session, SliceOp, Vector, reducer

THREADS = 8


@dataclass(frozen=True)
class Total:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Total:
        return Total(self.value + event)


class Stamp(NamedTuple):
    who: int
    turn: int


@pytest.fixture(autouse=True)
def _hasty_switches() -> object:  # pyright: ignore[reportUnusedFunction]
    """Switch threads as often as possible."""
    usual = getswitchinterval()
    setswitchinterval(1e-6)
    yield None
    setswitchinterval(usual)


def _together(work: Callable[[int], None], threads: int = THREADS) -> None:
    start = Barrier(threads)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


@pytest.mark.slow  # eight threads
def test_eight_threads_lose_no_event() -> None:
    """8 threads x 10,000 concurrent dispatches to one reducer are all counted."""
    session = Session()
    session.install(Total)

    def work(_: int) -> None:
        for _ in range(10_000):
            session.dispatch(1)

    _together(work)
    assert session[Total].all() == [Total(THREADS * 10_000)]


def test_concurrent_appends_keep_each_threads_order() -> None:
    """Appends from several threads interleave, but nothing is lost and each thread's stay in order."""
    session = Session()

    def work(number: int) -> None:
        for index in range(1000):
            session[Stamp].append(Stamp(number, index))

    _together(work)
    items = session[Stamp].all()
    assert len(items) == THREADS * 1000
    for number in range(THREADS):
        assert [turn for who, turn in items if who == number] == list(range(1000))


def test_readers_never_see_half_a_dispatch() -> None:
    """Two slices that one event changes together are always equal in a snapshot."""
    session = Session()

    def count(view: Vector[int], event: str) -> SliceOp[int]:
        return Replace(((view.latest() or 0) + 1,))

    def count_too(view: Vector[float], event: str) -> SliceOp[float]:
        return Replace(((view.latest() or 0.0) + 1.0,))

    session[int].register(str, count)
    session[float].register(str, count_too)

    def work(number: int) -> None:
        for _ in range(500):
            if number % 2:
                session.dispatch("tick")
            else:
                fork = session.fork()
                assert (fork[int].latest() or 0) == (fork[float].latest() or 0.0)

    _together(work)
    assert session[int].latest() == 500 * THREADS // 2


def test_concurrent_first_uses_of_the_id_agree() -> None:
    """All threads that ask for the id at once get the same one."""
    session = Session()
    ids: set[str] = set()
    _together(lambda _: ids.add(session.session_id))
    assert len(ids) == 1


def test_subscribing_while_dispatching() -> None:
    """Subscribing, unsubscribing and dispatching at once fail nowhere and lose no call of a steady subscriber."""
    bus = InProcessDispatcher()
    heard: list[int] = []
    bus.subscribe(int, heard.append)

    def work(number: int) -> None:
        def other(event: int) -> None:
            del event

        for _ in range(500):
            if number % 2:
                bus.subscribe(int, other)
                assert bus.unsubscribe(int, other)
            else:
                bus.dispatch(number)

    _together(work)
    assert len(heard) == 500 * THREADS // 2


def test_registering_while_dispatching() -> None:
    """Reducers registered from one thread while others dispatch are never run for half an event."""
    session = Session()

    def work(number: int) -> None:
        for index in range(200):
            if number == 0:
                key = index
                session[float].register(bytes, lambda view, event, key=key: Append(float(key)))
            else:
                session.dispatch(number)

    _together(work)
    assert session[int].count() == 200 * (THREADS - 1)
    session.dispatch(b"")
    assert session[float].count() == 200
