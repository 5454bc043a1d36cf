"""Snapshots from the middle of a call: they show what was shown then, whatever was undone since."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Queue
from threading import Thread

from tests.session.own_parts import Line, failing
from tests.world import Note

from weakincentives.fence import Owner, enter_owner, leave_owner
from weakincentives.prompt import ToolContext
from weakincentives.session import Session, SlicePolicy, Snapshot, append_all, reducer
from weakincentives.session.savepoints import close_savepoint, open_savepoint, snapshot_at, undo_savepoint


@dataclass(frozen=True)
class Count:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Count:
        return Count(self.value + event)


def test_a_snapshot_of_a_call_that_was_undone_shows_what_the_call_had_written() -> None:
    """Items, notes, initial content and the items of a slice that it had made a LOG; but nothing that it registered."""
    taken: list[Snapshot] = []

    def work(context: ToolContext) -> None:
        session = context.session
        session[Note].append(Note("mine"))
        session.note("key", 1)
        session.install(Count, initial=Count(5))
        session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
        session.dispatch(Line("logged"))
        taken.append(session.snapshot())

    world = failing(work)
    world.call()
    session = world.session
    assert (session[Count].count(), session[Line].count(), session.noted("key")) == (0, 0, None)

    session.restore(taken[0])
    assert session[Note].latest() == Note("mine")
    assert session[Count].all() == [Count(5)]
    assert session[Line].all() == [Line("logged")]
    assert session.noted("key") == 1

    assert session[Line].policy is SlicePolicy.STATE
    session.dispatch(1)
    assert session[Count].all() == [Count(5)]
    assert session[int].all() == [1]
    session.reset()
    assert session[Count].count() == 0


def test_initial_content_that_was_replaced_is_shown_again() -> None:
    """The new initial content is what a reset gives, and what the slice has had in snapshots since."""
    session = Session()
    session.install(Count, initial=Count(1))
    before = session.snapshot()
    session.install(Count, initial=Count(2))
    after = session.snapshot()
    session.restore(before)
    assert session[Count].latest() == Count(1)
    session.restore(after)
    assert session[Count].latest() == Count(2)
    session.restore(before)
    session.reset()
    assert session[Count].latest() == Count(2)


def test_changes_are_what_a_restore_takes_back() -> None:
    """`changes` since a snapshot lists the slices that an undo has changed, with what they showed."""
    taken: list[Snapshot] = []

    def work(context: ToolContext) -> None:
        context.session.install(Count, initial=Count(5))
        context.session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
        context.session.dispatch(Line("logged"))
        taken.append(context.session.snapshot())
        assert context.session.changes(taken[0]) == ()

    world = failing(work)
    world.call()
    session = world.session
    changes = {change.slice_type: (change.before, change.after) for change in session.changes(taken[0])}
    assert changes == {Count: ([Count(5)], []), Line: ([Line("logged")], [])}
    session.restore(taken[0])
    assert session.changes(taken[0]) == ()


def test_the_snapshot_of_a_savepoint_is_of_its_opening() -> None:
    """A slice that the call made a LOG after that was none: restoring shows nothing of what the call logged."""
    session, owner = Session(), Owner()
    open_savepoint(session, owner)
    token = enter_owner(owner)
    owner.holder = session
    session.install(Count, initial=Count(5))
    session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
    session.dispatch(Line("logged"))
    owner.holder = None
    leave_owner(token)
    opening = snapshot_at(session, owner)
    undo_savepoint(session, owner)
    close_savepoint(session, owner)
    session[Line].append(Line("later"))
    session.restore(opening)
    assert session[Line].count() == 0
    assert session[Count].count() == 0


def test_a_snapshot_waits_for_a_change_under_way() -> None:
    """An undo replaces slices, notes and registrations one after another; a snapshot sees all of that or nothing."""
    session, taken = Session(), Queue[Snapshot]()
    with session._core.lock:  # pyright: ignore[reportPrivateUsage] - as an undo in another thread holds it
        thread = Thread(target=lambda: taken.put(session.snapshot()))
        thread.start()
        thread.join(0.1)
        assert taken.empty()
    thread.join(30)
    session.restore(taken.get_nowait())
