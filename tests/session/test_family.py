"""Ids, tags, parents, children, forks and clones."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest

from weakincentives.clock import SYSTEM_CLOCK, SystemClock
from weakincentives.session import InProcessDispatcher, Session, SlicePolicy, replace_latest


@dataclass(frozen=True)
class Happened:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    what: str


def test_an_id_is_made_once() -> None:
    """A session without an id makes one when first asked and keeps it; a given one is used."""
    session = Session()
    assert session.session_id == session.session_id
    assert session.session_id != Session().session_id
    assert Session(session_id="mine").session_id == "mine"
    assert "mine" in repr(Session(session_id="mine"))


def test_tags_are_copied_and_read_only() -> None:
    """Later changes to the mapping that was passed do not reach the session."""
    tags = {"user": "u1"}
    session = Session(tags=tags)
    tags["user"] = "u2"
    assert session.tags == {"user": "u1"}
    with pytest.raises(TypeError):
        cast("Any", session.tags)["user"] = "u3"
    assert Session().tags == {}


def test_parents_and_children() -> None:
    """A child knows its parent, a parent its living children in order of birth."""
    parent = Session()
    first, second = Session(parent=parent), Session(parent=parent)
    assert first.parent is parent
    assert parent.children == (first, second)
    assert parent.parent is None
    assert first.children == ()


@pytest.mark.slow
def test_a_parent_does_not_keep_children_alive() -> None:
    """Children without references are gone at once, and the parent's book of them does not grow."""
    parent = Session()
    for _ in range(1000):
        parent.fork()
    gc.collect()
    assert parent.children == ()


def test_the_clock_comes_from_the_parent() -> None:
    """A session takes the clock it is given, its parent's, or the system's."""
    clock = SystemClock()
    parent = Session(clock=clock)
    assert parent.clock is clock
    assert Session(parent=parent).clock is clock
    assert parent.fork().clock is clock
    assert Session().clock is SYSTEM_CLOCK


def test_a_fork_starts_equal_and_goes_its_own_way() -> None:
    """A fork has the parent's STATE, LOG and registrations; afterwards neither sees the other's changes."""
    parent = Session(tags={"a": "b"})
    parent[str].register(str, replace_latest)
    parent[int].seed(range(40))
    parent.dispatch(Happened("before"))
    fork = parent.fork()
    assert fork[int].all() == list(range(40))
    fork.dispatch(-1)
    fork.dispatch(Happened("fork"))
    fork.dispatch("x")
    fork.dispatch("y")
    parent.dispatch(Happened("parent"))
    parent[int].clear()
    fork[float].register(bytes, lambda view, event: replace_latest(view, 1.0))
    parent.dispatch(b"")
    assert fork[str].all() == ["y"]
    assert fork[int].count() == 41
    assert fork[Happened].all() == [Happened("before"), Happened("fork")]
    assert parent[Happened].all() == [Happened("before"), Happened("parent")]
    assert parent[int].count() == parent[str].count() == parent[float].count() == 0
    assert fork.parent is parent
    assert fork.tags == parent.tags
    assert fork.session_id != parent.session_id


def test_a_clone_stands_beside_its_original() -> None:
    """A clone is an equal, independent session under the same parent."""
    parent = Session()
    original = Session(parent=parent)
    original.dispatch(1)
    clone = original.clone(session_id="c", tags={"t": "1"})
    clone.dispatch(2)
    assert original[int].all() == [1]
    assert clone[int].all() == [1, 2]
    assert clone.parent is parent
    assert (clone.session_id, clone.tags) == ("c", {"t": "1"})
    assert parent.children == (original, clone)


def test_subscribers_do_not_come_along() -> None:
    """A fork's events are heard on its own bus, or on the one it is given."""
    bus = InProcessDispatcher()
    heard: list[object] = []
    bus.subscribe(object, heard.append)
    session = Session(bus)
    session.fork().dispatch(1)
    session.clone().dispatch(2)
    assert heard == []
    session.fork(bus).dispatch(3)
    assert heard == [3]
