"""Snapshots: any number, any order, constant time, freed by dropping them."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from dataclasses import dataclass
from typing import ClassVar

import pytest

from weakincentives.errors import SnapshotError
from weakincentives.session import Extend, Session, SlicePolicy, Vector, reducer, replace_latest
from weakincentives.session.snapshots import SliceChange


@dataclass(frozen=True)
class Happened:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    what: str


@dataclass(frozen=True)
class Count:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Count:
        return Count(self.value + event)


class Thing:
    """Something weak references can point at."""


def test_restoring_brings_state_back_and_leaves_logs() -> None:
    """A restore takes STATE slices back exactly, and no LOG slice."""
    session = Session()
    session[str].seed(["a", "b"])
    session.dispatch(Happened("before"))
    before = session.snapshot()
    session[str].clear()
    session[float].append(1.0)
    session.dispatch(Happened("after"))
    session.restore(before)
    assert session[str].all() == ["a", "b"]
    assert session[float].all() == []
    assert session[Happened].all() == [Happened("before"), Happened("after")]


def test_any_order_any_number_of_times() -> None:
    """Every snapshot alive can be restored in any order, again and again, forwards too."""
    session = Session()
    snapshots = [session.snapshot()]
    for number in range(100):
        session.dispatch(number)
        snapshots.append(session.snapshot())
    for size in [50, 100, 0, 99, 1, 50, 50]:
        session.restore(snapshots[size])
        assert session[int].all() == list(range(size))


def test_writes_after_a_restore_do_not_reach_other_snapshots() -> None:
    """Histories that branch from one snapshot do not mix."""
    session = Session()
    session[int].seed(range(31))
    base = session.snapshot()
    session.dispatch(-1)
    left = session.snapshot()
    session.restore(base)
    session.dispatch(-2)
    right = session.snapshot()
    session.restore(left)
    assert session[int].latest() == -1
    session.restore(right)
    assert session[int].latest() == -2
    assert session[int].count() == 32


def test_a_released_snapshot_cannot_be_restored() -> None:
    """Restoring or comparing with a released snapshot raises; releasing twice does nothing."""
    session = Session()
    snapshot = session.snapshot()
    session[int].append(1)
    session.release(snapshot)
    session.release(snapshot)
    assert repr(snapshot) == "<Snapshot, released>"
    with pytest.raises(SnapshotError, match="released"):
        session.restore(snapshot)
    with pytest.raises(SnapshotError, match="released"):
        session.changes(snapshot)
    assert session[int].all() == [1]


def test_a_foreign_snapshot_is_refused() -> None:
    """A snapshot of another session, of a parent or of a fork, raises and changes nothing."""
    session = Session()
    session[int].append(1)
    fork = session.fork()
    for other in (Session(), fork, session.clone()):
        with pytest.raises(SnapshotError, match="another session"):
            session.restore(other.snapshot())
    assert session[int].all() == [1]


def test_registrations_are_not_state() -> None:
    """Reducers and initial states registered after a snapshot stay registered when it is restored."""
    session = Session()
    before = session.snapshot()
    session.install(Count, initial=Count(10))
    session[str].register(str, replace_latest)
    session.dispatch(1)
    session.restore(before)
    assert session[Count].latest() == Count(10)
    session.dispatch(5)
    session.dispatch("a")
    session.dispatch("b")
    assert session[Count].latest() == Count(15)
    assert session[str].all() == ["b"]


def test_changes_names_the_slices_that_were_touched() -> None:
    """`changes` gives each touched STATE slice with its content before and after, and only those."""
    session = Session()
    session[int].seed([1, 2])
    session[str].seed("same")
    before = session.snapshot()
    assert session.changes(before) == ()
    session.dispatch(3)
    session.dispatch(1.5)
    session.dispatch(Happened("x"))
    changes = {change.slice_type: change for change in session.changes(before)}
    assert changes == {
        int: SliceChange(int, SlicePolicy.STATE, before=Vector([1, 2]), after=session[int].all()),
        float: SliceChange(float, SlicePolicy.STATE, before=Vector(), after=session[float].all()),
    }
    assert changes[int].added == 1
    assert [change.slice_type for change in session.changes(before, logs=True)][-1] is Happened
    session.restore(before)
    assert session.changes(before) == ()
    assert [change.policy for change in session.changes(before, logs=True)] == [SlicePolicy.LOG]


def test_log_slices_are_compared_whoever_looked_at_them_when() -> None:
    """What was logged counts from the snapshot on, whether or not the slice was read before, between or after."""
    for looks in itertools.product([False, True], repeat=3):
        session = Session()
        session.dispatch(Happened("before"))
        if looks[0]:
            session[Happened].all()
        snapshot = session.snapshot()
        if looks[1]:
            session[Happened].all()
        assert session.changes(snapshot, logs=True) == ()
        session.dispatch(Happened("after"))
        if looks[2]:
            session[Happened].all()
        for _ in range(2):
            (change,) = session.changes(snapshot, logs=True)
            assert (change.before, change.after, change.added) == (
                [Happened("before")], [Happened("before"), Happened("after")], 1,
            )  # fmt: skip


def test_changes_across_a_reset_and_an_initial_state() -> None:
    """A slice that was never written to counts with its initial content."""
    session = Session()
    session.install(Count, initial=Count(3))
    before = session.snapshot()
    session.dispatch(1)
    (change,) = session.changes(before)
    assert (change.before, change.after) == ([Count(3)], [Count(4)])
    later = session.snapshot()
    session.reset()
    (change,) = session.changes(later)
    assert (change.before, change.after) == ([Count(4)], [Count(3)])
    assert session.changes(before) == ()


def test_writes_without_effect_touch_nothing() -> None:
    """Clearing an empty slice, or removing no item, is no change."""
    session = Session()
    session[int].seed([1])
    session[int].register(bytes, lambda view, event: Extend([]))
    before = session.snapshot()
    session[str].clear()
    session[int].clear(lambda number: number > 1)
    session.dispatch(b"")
    assert session.changes(before) == ()


def test_reset_gives_initial_content_and_keeps_logs() -> None:
    """`reset` empties STATE slices or gives them their installed state; LOG slices go only when asked."""
    session = Session()
    session.install(Count)
    session.dispatch(2)
    session.dispatch("a")
    session.dispatch(Happened("x"))
    session.reset()
    assert session[Count].all() == [Count()]
    assert session[str].all() == []
    assert session[Happened].count() == 1
    session.reset(logs=True)
    assert session[Happened].count() == 0


def test_dropped_snapshots_free_what_they_held() -> None:
    """What only a snapshot holds dies with it, at once, without any bookkeeping."""
    session = Session()
    thing = Thing()
    alive = weakref.ref(thing)
    session[Thing].append(thing)
    del thing
    snapshot = session.snapshot()
    session[Thing].clear()
    assert alive() is not None
    del snapshot
    assert alive() is None


def test_releasing_frees_what_a_snapshot_held() -> None:
    """A released snapshot holds nothing, even while there are references to it."""
    session = Session()
    session[Thing].append(Thing())
    alive = weakref.ref(session[Thing].all()[0])
    snapshot = session.snapshot()
    session[Thing].clear()
    session.release(snapshot)
    assert alive() is None


@pytest.mark.slow
def test_ten_thousand_snapshots_leave_memory_where_it_was() -> None:
    """10,000 snapshots with writes and rollbacks, then dropped, leave the memory as it was before."""
    session = Session()
    session[int].seed(range(1000))

    def cycle(times: int) -> None:
        kept = [session.snapshot()]
        for number in range(times):
            session.dispatch(number)
            kept.append(session.snapshot())
            if number % 3 == 0:
                session.restore(kept[number // 2])
        session.restore(kept[0])

    cycle(100)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cycle(10_000)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 16_384


def test_notes_go_back_with_the_state() -> None:
    """A note is restored and forked like a STATE slice, forgotten by None and by a reset, and is in no account."""
    session = Session()
    session.note("key", 1)
    before = session.snapshot()
    fork = session.fork()
    session.note("key", 2)
    session.note("other", 3)
    assert session.changes(before) == ()
    assert (session.noted("key"), session.noted("other"), fork.noted("key")) == (2, 3, 1)
    session.restore(before)
    assert (session.noted("key"), session.noted("other")) == (1, None)
    session.note("key", None)
    session.note("never there", None)
    assert session.noted("key") is None
    session.note("key", 4)
    session.reset()
    assert session.noted("key") is None


def test_a_log_that_was_emptied_has_changed() -> None:
    """After a reset of the logs the same last event in a log of the same length is another log."""
    session = Session()
    last = Happened("b")
    session.dispatch(Happened("a"))
    session.dispatch(last)
    before = session.snapshot()
    session.reset(logs=True)
    session.dispatch(Happened("c"))
    session.dispatch(last)
    assert [change.slice_type for change in session.changes(before, logs=True)] == [Happened]
