"""Calls inside calls and transactions, as the log tells them.

An event names the call around it (`within`), and one that was undone names the calls that were undone with it
(`undone_calls`). So the log can be folded into the state: take what succeeded, and leave out what an event undid.
"""

from __future__ import annotations

from ..fence import current_owner
from ..prompt.events import CallsUndone, ToolInvoked, link_event, new_event_id
from ..session import Session
from ..session.savepoints import unowned_recorder
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
    within = None if outer is None else event_id_of(outer)
    if within is not None or inner or own is not None:
        link_event(event, own, within, () if event.success else tuple(inner))


def keep_inside(savepoint: Savepoint, event: ToolInvoked | None = None) -> None:
    """The savepoint was kept, so its changes now belong to the savepoint around it, if there is one."""
    outer = savepoint.outer()
    if outer is not None and savepoint.is_inside(outer):
        outer.inner_calls = (*outer.inner_calls, *savepoint.inner_calls, *(() if event is None else (event.event_id,)))


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


def event_id_of(call: Savepoint) -> str:
    """The id that the event of a call will have: calls inside it refer to it before it is made."""
    if call.event_id is None:
        call.event_id = new_event_id()
    return call.event_id
