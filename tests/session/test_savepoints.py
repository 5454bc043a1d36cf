"""Savepoints of a session that overlap: nested, side by side, and with the log of writes made shorter in between."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.session.own_parts import Tick, core_of

from weakincentives.fence import Fence, Owner
from weakincentives.session import Replace, Session, reducer
from weakincentives.session.savepoints import changes_in, close_savepoint, open_savepoint, undo_savepoint


@dataclass(frozen=True)
class Total:
    value: int

    @reducer(on=int)
    def unused(self, event: int) -> Total:
        return self


class Writer:
    """An open savepoint and the handle of the call that it is around."""

    def __init__(self, session: Session, around: Writer | None = None, *, for_all: bool = False) -> None:
        self.root = session
        self.owner = Owner()
        self.owner.around = None if around is None else around.owner
        self.owner.holder = self
        self.session = session.guarded(Fence(None, self.owner))
        open_savepoint(session, self.owner, for_all)

    def undo(self) -> None:
        undo_savepoint(self.root, self.owner)

    def close(self) -> None:
        close_savepoint(self.root, self.owner)
        self.owner.holder = None


def numbers(session: Session) -> list[int]:
    return list(session[int].all())


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_savepoints_side_by_side_are_undone_one_by_one(first: int, compact: bool) -> None:
    """Whichever is undone first, the other's writes stay until it is undone too, and nothing comes back then."""
    session = Session()
    session[int].append(0)
    writers: list[Writer] = []
    for number in (1, 2):
        writers.append(Writer(session))
        writers[-1].session[int].append(number)
    writers[0].session[int].append(1)
    if compact:
        core_of(session).compact()
    one, other = writers[first], writers[1 - first]
    one.undo()
    assert numbers(session) == ([0, 2] if first == 0 else [0, 1, 1])
    other.undo()
    assert numbers(session) == [0]


@pytest.mark.parametrize("compact", [False, True])
def test_an_inner_savepoint_that_outlives_an_undo_of_the_outer_one_brings_nothing_back(compact: bool) -> None:
    """What the outer one had written before the inner one was opened is gone from what the inner one remembers."""
    session = Session()
    outer = Writer(session)
    outer.session[int].append(1)
    inner = Writer(session, outer)
    inner.session[int].append(2)
    session[int].append(3)
    if compact:
        core_of(session).compact()
    outer.undo()
    assert numbers(session) == [3]
    inner.session[int].append(4)
    inner.undo()
    assert numbers(session) == [3]


@pytest.mark.parametrize("compact", [False, True])
def test_an_inner_savepoint_for_all_leaves_the_outer_one_what_was_written_before_it(compact: bool) -> None:
    """Both own what code outside of all calls writes, but each only since it was opened."""
    session = Session()
    outer = Writer(session, for_all=True)
    session[int].append(1)
    inner = Writer(session, outer, for_all=True)
    session[int].append(2)
    if compact:
        core_of(session).compact()
    inner.undo()
    assert numbers(session) == [1]
    outer.undo()
    assert numbers(session) == []


def test_an_undo_takes_its_writes_out_of_the_log() -> None:
    """A savepoint that starts over has changed nothing, and keeps nothing of what it wrote before."""
    session = Session()
    writer = Writer(session)
    writer.session[int].append(1)
    session[int].append(2)
    writer.undo()
    assert changes_in(session, writer.owner) == ()
    assert len(core_of(session).writes) == 1


def test_a_write_is_repeated_on_the_initial_content_of_its_time() -> None:
    """What others install before they write is what their write starts from."""
    session = Session()
    session[Total].register(Tick, lambda view, event: Replace([Total(sum(total.value for total in view) + 1)]))
    writer = Writer(session)
    session.dispatch(Tick())
    writer.session[Total].clear()
    writer.session.restore(session.snapshot())
    session.reset()
    session.install(Total, initial=Total(5))
    writer.session[Total].append(Total(100))
    session.dispatch(Tick())
    assert session[Total].latest() == Total(106)
    writer.undo()
    assert list(session[Total].all()) == [Total(6)]


def test_the_log_ends_with_the_last_savepoint() -> None:
    """Writes that were noted for a savepoint that has ended are forgotten with the one that has written nothing."""
    session = Session()
    first = Writer(session)
    session[int].append(1)
    second = Writer(session)
    first.close()
    second.close()
    core = core_of(session)
    assert (core.calls, core.writes, core.marks) == ([], [], {})
