"""Calls inside calls and transactions, as the log tells them.

An event names the call around it (`within`), and one that was undone names the calls that were undone with it
(`undone_calls`). So the log can be folded into the state: take what succeeded, and leave out what an event undid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..fence import current_owner
from ..prompt.events import CallsUndone, ToolInvoked, link_event, new_event_id
from ..session import Session
from ..session.savepoints import unowned_recorder
from .locks import CallLock
from .transactions import CompositeSnapshot, Savepoint


def link(event: ToolInvoked, savepoint: Savepoint | None) -> None:
    """Say which call the event's call was made in, and what was undone with it. Without a savepoint it did not run."""
    if savepoint is None:
        owner = current_owner()
        outer, inner, own = None if owner is None else owner.holder, (), None
    else:
        outer, inner, own = savepoint.outer(), savepoint.inner_calls, savepoint.event_id
    while outer is not None and not hasattr(outer, "call"):
        outer = outer.outer()
    within = None if outer is None else _event_id_of(outer)
    if within is not None or inner or own is not None:
        link_event(event, own, within, () if event.success else tuple(inner))


def keep_inside(savepoint: Savepoint, event: ToolInvoked | None = None) -> None:
    """The savepoint was kept, so its changes now belong to the savepoint around it, if there is one."""
    outer = savepoint.outer()
    if outer is not None and savepoint.is_inside(outer):
        outer.inner_calls = (*outer.inner_calls, *savepoint.inner_calls, *(() if event is None else (event.event_id,)))


def ids_around() -> set[str]:
    """The ids of the calls that this code runs in."""
    ids: set[str] = set()
    owner = current_owner()
    while owner is not None:
        call = getattr(owner.holder, "call", None)
        if call is not None:
            ids.add(call.call_id)
        owner = owner.around
    return ids


def redone_inside(event: ToolInvoked, inner: Iterable[Any], locks: Iterable[CallLock]) -> None:
    """Say which call a call that is redone is in, and that it is undone with that, as `link` and `keep_inside` did."""
    owner = current_owner()
    outer: Savepoint | None = None if owner is None else owner.holder
    if outer is None or not hasattr(outer, "call"):
        return
    link_event(event, None, _event_id_of(outer), event.undone_calls)
    if event.success and any(map(outer.holds, locks)):
        calls = [each for each in inner if isinstance(each, ToolInvoked)]
        undone = {one for each in calls for one in each.undone_calls}
        kept = [each.event_id for each in calls if each.success and each.event_id not in undone]
        outer.inner_calls = (*outer.inner_calls, *kept, event.event_id)


def record_undone(session: Session, calls: tuple[str, ...]) -> None:
    """Record that calls were undone by something that has no event of its own."""
    if calls:
        event = CallsUndone(undone_calls=calls, session_id=session.session_id, timestamp=session.clock.time())
        unowned_recorder(session)(event)
        session.dispatcher.dispatch(event)


def calls_since(session: Session, snapshot: CompositeSnapshot) -> tuple[str, ...]:
    """The calls that succeeded since a snapshot and were not undone already."""
    logs = snapshot.session.logs()
    calls = session[ToolInvoked].all()[len(logs.get(ToolInvoked, ())) :]
    undone = {call for event in calls for call in event.undone_calls}
    for event in session[CallsUndone].all()[len(logs.get(CallsUndone, ())) :]:
        undone.update(event.undone_calls)
    return tuple(event.event_id for event in calls if event.success and event.event_id not in undone)


def _event_id_of(call: Savepoint) -> str:
    """The id that the event of a call will have: calls inside it refer to it before it is made."""
    if call.event_id is None:
        call.event_id = new_event_id()
    return call.event_id
