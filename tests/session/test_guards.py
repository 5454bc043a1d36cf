"""Guarded handles: every write inside the guard, no subscriber inside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import pytest

from weakincentives.errors import ReadOnlyError, SessionError, StaleCallError
from weakincentives.fence import Fence, ReadOnlyGuard
from weakincentives.session import Session, append_all, reducer


@dataclass(frozen=True)
class Count:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Count:
        return Count(self.value + event)


class Watched:
    """A guard that knows whether it is held."""

    def __init__(self) -> None:
        self.held = 0
        self.entered = 0

    def __enter__(self) -> None:
        self.held += 1
        self.entered += 1

    def __exit__(self, *exc: object) -> None:
        self.held -= 1


def _parent(session: Session) -> Session:
    assert session.parent is not None
    return session.parent


WRITES: dict[str, Callable[[Session], object]] = {
    "dispatch": lambda s: s.dispatch("x"),
    "record": lambda s: s.record("x"),
    "seed": lambda s: s[str].seed("x"),
    "append": lambda s: s[str].append("x"),
    "clear": lambda s: s[str].clear(),
    "clear some": lambda s: s[str].clear(lambda item: True),
    "register": lambda s: s[str].register(str, append_all),
    "install": lambda s: s.install(Count),
    "restore": lambda s: s.restore(s.snapshot()),
    "reset": lambda s: s.reset(),
    "publish": lambda s: s.dispatcher.dispatch("x"),
    "publish on the bus": lambda s: s.event_bus.dispatch("x"),
    "subscribe": lambda s: s.dispatcher.subscribe(str, print),
    "unsubscribe": lambda s: s.dispatcher.unsubscribe(str, print),
    "to its parent": lambda s: _parent(s).dispatch("x"),
    "to its child": lambda s: s.children[0].dispatch("x"),
    "by its fork's parent": lambda s: _parent(s.fork()).dispatch("x"),
    "by its clone's parent": lambda s: _parent(s.clone()).dispatch("x"),
}


def _family() -> tuple[Session, Session, Session]:
    parent = Session()
    session = Session(parent=parent)
    child = Session(parent=session)
    for each in (parent, session, child):
        each[str].seed(["kept"])
    return parent, session, child


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_closed_fence_refuses_every_write(write: Callable[[Session], object]) -> None:
    """Once its call is over, nothing can be changed through a handle, by any way."""
    family = _family()
    heard: list[object] = []
    family[1].dispatcher.subscribe(str, heard.append)
    fence = Fence()
    handle = family[1].guarded(fence)
    fence.close("it timed out")
    with pytest.raises(StaleCallError, match="it timed out"):
        write(handle)
    assert [list(each[str].all()) for each in family] == [["kept"]] * 3
    assert heard == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_open_fence_lets_every_write_through_inside_it(write: Callable[[Session], object]) -> None:
    """While its call runs, each write through a handle enters the guard and leaves it."""
    _, session, _child = _family()
    guard = Watched()
    write(session.guarded(guard))
    assert guard.entered >= 1
    assert guard.held == 0


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_read_only_handle_reads_and_does_not_write(write: Callable[[Session], object]) -> None:
    """A read-only handle reads, takes snapshots and forks; every write raises ReadOnlyError."""
    family = _family()
    handle = family[1].guarded(ReadOnlyGuard("Tool 'look'"))
    with pytest.raises(ReadOnlyError, match="Tool 'look' is read-only"):
        write(handle)
    assert handle[str].all() == ["kept"]
    assert handle.changes(handle.snapshot()) == ()
    fork = handle.fork()
    fork.dispatch("free")
    assert family[1][str].all() == ["kept"]


def test_the_guard_is_held_while_state_changes_and_not_while_subscribers_run() -> None:
    """Reducers run inside the guard, subscribers outside of it."""
    session = Session()
    guard = Watched()
    seen: list[tuple[str, int]] = []

    def note(view: Any, event: int) -> Any:
        seen.append(("reducer", guard.held))
        return append_all(view, event)

    session[int].register(int, note)
    session.dispatcher.subscribe(int, lambda event: seen.append(("subscriber", guard.held)))
    handle = session.guarded(guard)
    handle.dispatch(1)
    handle.dispatcher.dispatch(2)
    assert seen == [("reducer", 1), ("subscriber", 0), ("subscriber", 0)]


def test_handles_share_the_session() -> None:
    """What is written through one handle is read through all; id, tags and clock are the same."""
    session = Session(session_id="s1", tags={"a": "b"})
    handle = session.guarded(nullcontext())
    handle.dispatch("x")
    assert session[str].all() == ["x"]
    assert (handle.session_id, handle.tags, handle.clock) == ("s1", session.tags, session.clock)
    assert handle.dispatcher is handle.event_bus
    session.restore(handle.snapshot())
    assert "guarded" in repr(handle)
    assert "guarded" not in repr(session)


def test_a_handle_of_a_handle_has_both_guards() -> None:
    """No handle made from a guarded one escapes its guard."""
    session = Session()
    outer, inner = Fence(), Fence()
    handle = session.guarded(outer).guarded(inner)
    handle.dispatch("x")
    inner.close()
    with pytest.raises(StaleCallError):
        handle.dispatch("x")
    outer.close()  # would block for ever had the refused write kept it
    with pytest.raises(StaleCallError):
        session.guarded(outer).guarded(nullcontext()).dispatch("x")
    assert session[str].count() == 1


def test_a_handle_keeps_its_session_in_the_family() -> None:
    """A session that only a guarded handle holds is still among its parent's children."""
    parent = Session()
    handle = Session(parent=parent, session_id="c").guarded(nullcontext())
    assert [child.session_id for child in parent.children] == ["c"]
    assert handle.parent is not None
    assert handle.parent.session_id == parent.session_id


def test_only_the_owner_empties_logs() -> None:
    """`reset(logs=True)` through a guarded handle raises: a tool call cannot erase the record of itself."""
    session = Session()
    with pytest.raises(SessionError, match="owner"):
        session.guarded(nullcontext()).reset(logs=True)


def test_closing_a_fence_waits_for_the_write_under_way() -> None:
    """When a fence has closed, the write that was inside is complete and no other will come."""
    session = Session()
    fence = Fence()
    inside, go_on, closed = Event(), Event(), Event()

    def slow(view: Any, event: int) -> Any:
        inside.set()
        go_on.wait(10)
        return append_all(view, event)

    session[int].register(int, slow)
    handle = session.guarded(fence)
    writer = Thread(target=handle.dispatch, args=(1,))
    writer.start()
    inside.wait(10)

    def close() -> None:
        fence.close()
        closed.set()

    closer = Thread(target=close)
    closer.start()
    assert not closed.wait(0.05)
    go_on.set()
    assert closed.wait(10)
    assert session[int].all() == [1]
    writer.join()
    closer.join()


def test_notes_pass_the_guard() -> None:
    """A handle whose guard refuses writes notes nothing."""
    session = Session()
    session.guarded(nullcontext()).note("key", 1)
    with pytest.raises(ReadOnlyError):
        session.guarded(ReadOnlyGuard("This")).note("key", 2)
    assert session.noted("key") == 1
