"""Typed slices: reading, writing, policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import pytest

from weakincentives.errors import SessionError
from weakincentives.session import Session, SessionProtocol, SlicePolicy, Snapshot, append_all, replace_latest
from weakincentives.types import Snapshotable


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Urgent(Note):
    level: int = 1


@dataclass(frozen=True)
class Audit:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    text: str


@dataclass(frozen=True)
class DeepAudit(Audit):
    pass


class Point(NamedTuple):
    x: int
    y: int


def test_an_empty_slice() -> None:
    """A slice that was never written to is empty, of any type."""
    notes = Session()[Note]
    assert notes.latest() is None
    assert notes.count() == 0
    assert notes.all() == ()
    assert notes.where(lambda note: True) == ()
    assert notes.policy is SlicePolicy.STATE


def test_the_latest_of_a_log() -> None:
    """It is the newest of exactly its class, whatever was logged last, and gone when the log is emptied."""
    session = Session()
    audits, deep = session[Audit], session[DeepAudit]
    expected: dict[type[Any], list[Any]] = {Audit: [], DeepAudit: []}
    for step in "adaaraadcadxdala":
        event = {"a": Audit(f"{step}{len(expected[Audit])}"), "d": DeepAudit(f"d{len(expected[DeepAudit])}")}.get(step)
        if event is not None:
            session.dispatch(event)
            expected[type(event)].append(event)
        elif step == "r":  # a reader moves what is fresh to the slices
            assert audits.all() == expected[Audit]
        elif step == "c":
            session.clear_log(Audit)
            expected[Audit].clear()
        elif step == "x":
            session.reset(logs=True)
            expected = {Audit: [], DeepAudit: []}
        else:
            audits.append(Audit("last"))
            expected[Audit].append(Audit("last"))
        assert audits.latest() == next(reversed(expected[Audit]), None)
        assert deep.latest() == next(reversed(expected[DeepAudit]), None)


def test_the_latest_of_a_slice_that_became_a_log() -> None:
    """A restore keeps its items and its registration, and so its latest item."""
    session = Session()
    session.dispatch(Note("before"))
    before = session.snapshot()
    session[Urgent].register(Urgent, append_all, policy=SlicePolicy.LOG)
    session.dispatch(Urgent("meanwhile"))
    session.restore(before)
    assert session[Urgent].latest() == Urgent("meanwhile")
    assert session[Urgent].latest() == session[Urgent].all()[-1]
    assert session[Note].latest() == Note("before")


def test_reading_what_was_written() -> None:
    """Items come back oldest first; `latest` is the newest; `where` filters."""
    session = Session()
    session[Note].seed([Note("a"), Note("b")])
    session[Note].append(Note("c"))
    assert session[Note].all() == [Note("a"), Note("b"), Note("c")]
    assert session[Note].latest() == Note("c")
    assert session[Note].count() == 3
    assert session[Note].where(lambda note: note.text > "a") == (Note("b"), Note("c"))
    assert repr(session[Note]) == "<STATE slice of Note: 3 items>"


def test_seeding_one_or_several_replaces_the_content() -> None:
    """`seed` takes an item, even an iterable one, or an iterable of items, and replaces what was there."""
    session = Session()
    session[Note].seed(Note("a"))
    session[Note].seed(note for note in [Note("b"), Note("c")])
    assert session[Note].all() == [Note("b"), Note("c")]
    session[Point].seed(Point(1, 2))
    assert session[Point].all() == [Point(1, 2)]
    session[str].seed("word")
    assert session[str].all() == ["word"]


@pytest.mark.parametrize("wrong", ["text", 5, [Note("a"), "b"], b"x"])
def test_other_types_are_refused(wrong: Any) -> None:
    """A slice holds instances of its type; anything else raises TypeError and changes nothing."""
    session = Session()
    session[Note].seed(Note("kept"))
    with pytest.raises(TypeError, match="Note"):
        session[Note].seed(wrong)
    with pytest.raises(TypeError, match="Note"):
        session[Note].append(wrong)
    assert session[Note].all() == [Note("kept")]


def test_a_subclass_may_stand_in_the_slice_of_its_base_but_has_its_own() -> None:
    """The slice of an event is that of its exact class; a base's slice takes subclass items by hand."""
    session = Session()
    session.dispatch(Urgent("x"))
    assert session[Note].count() == 0
    assert session[Urgent].count() == 1
    session[Note].append(Urgent("y"))
    assert session[Note].latest() == Urgent("y")


def test_a_view_never_changes() -> None:
    """What `all` returned stays as it was, also while one thread iterates over it and others write."""
    session = Session()
    session[int].seed(range(1000))
    view = session[int].all()
    seen: list[int] = []
    for number in view:
        session[int].append(-number)
        if number == 500:
            session[int].clear()
        seen.append(number)
    assert seen == list(range(1000))
    assert isinstance(view, Sequence)
    with pytest.raises((AttributeError, TypeError)):
        cast("Any", view)[0] = 1


def test_clearing_some_or_all() -> None:
    """`clear` removes what the predicate says, or everything."""
    session = Session()
    session[int].seed(range(10))
    session[int].clear(lambda number: number % 2)
    assert session[int].all() == [0, 2, 4, 6, 8]
    session[int].clear()
    assert session[int].all() == []


def test_a_predicate_that_raises_removes_nothing() -> None:
    """What a predicate raises reaches the caller, and the slice is as before."""
    session = Session()
    session[int].seed([1, 0, 2])
    with pytest.raises(ZeroDivisionError):
        session[int].clear(lambda number: 1 // number)
    assert session[int].all() == [1, 0, 2]
    session[int].append(3)
    assert session[int].count() == 4


def test_a_predicate_that_writes_is_refused() -> None:
    """A predicate runs inside the session's lock, so its own writes raise instead of getting lost."""
    session = Session()
    session[int].seed([1])
    with pytest.raises(SessionError, match="pure"):
        session[int].clear(lambda number: session[int].append(2))
    assert session[int].all() == [1]


def test_a_class_names_its_policy_and_passes_it_on() -> None:
    """`slice_policy` on an event class, or on its base, makes its slice a LOG."""
    session = Session()
    assert session[Audit].policy is SlicePolicy.LOG
    assert session[DeepAudit].policy is SlicePolicy.LOG


def test_a_log_only_grows() -> None:
    """A LOG slice can be seeded while empty and appended to; clearing or replacing it raises."""
    session = Session()
    session[Audit].seed([Audit("a")])
    session[Audit].append(Audit("b"))
    with pytest.raises(SessionError, match="LOG"):
        session[Audit].clear()
    with pytest.raises(SessionError, match="LOG"):
        session[Audit].clear(lambda audit: False)
    with pytest.raises(SessionError, match="LOG"):
        session[Audit].seed(Audit("c"))
    assert session[Audit].all() == [Audit("a"), Audit("b")]


def test_a_policy_can_be_registered() -> None:
    """`register(policy=LOG)` makes a slice a LOG whose class does not say so, once, before it has items."""
    session = Session()
    session[Note].register(Note, append_all, policy=SlicePolicy.LOG)
    session[Note].register(Note, append_all, policy=SlicePolicy.LOG)
    session.dispatch(Note("a"))
    assert session[Note].policy is SlicePolicy.LOG
    assert session[Note].all() == [Note("a")]


def test_contradicting_policies_are_refused() -> None:
    """A policy cannot contradict the class, an earlier registration, or items that are there."""
    session = Session()
    with pytest.raises(SessionError, match="LOG slice already"):
        session[Audit].register(Audit, append_all, policy=SlicePolicy.STATE)
    session[Note].append(Note("a"))
    with pytest.raises(SessionError, match="STATE slice already"):
        session[Note].register(Note, append_all, policy=SlicePolicy.LOG)
    session[int].register(str, lambda view, event: append_all(view, len(event)), policy=SlicePolicy.LOG)
    with pytest.raises(SessionError, match="LOG slice already"):
        session[int].register(int, append_all, policy=SlicePolicy.STATE)


def test_a_log_event_cannot_be_swallowed_by_a_reducer_of_its_own_slice() -> None:
    """Only recording as it is may be registered for a LOG event on its own slice."""
    session = Session()
    with pytest.raises(SessionError, match="recorded as they are"):
        session[Audit].register(Audit, replace_latest)
    session[Audit].register(Audit, append_all)
    session.dispatch(Audit("a"))
    assert session[Audit].all() == [Audit("a")]


def test_a_slice_is_named_by_a_class() -> None:
    """`session[list[int]]` raises TypeError: instances do not know such a type."""
    with pytest.raises(TypeError, match="one slice for each class"):
        Session()[cast("Any", list[int])]
    with pytest.raises(TypeError, match="event class"):
        Session()[int].register(cast("Any", "int"), append_all)


def test_a_session_is_what_the_protocols_say() -> None:
    """A session satisfies SessionProtocol and Snapshotable."""
    session: SessionProtocol = Session()
    state: Snapshotable[Snapshot] = session
    assert isinstance(session, SessionProtocol)
    assert isinstance(state, Snapshotable)
