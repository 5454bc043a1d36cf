"""Savepoints of a session: what a call changed since it began, and the undo of its own writes alone.

A session knows an open savepoint by its owner. While one is open, all writes are noted; see `contents.py`. These are
functions and not methods of `Session`, because a tool's handle on the session must not offer them.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..fence import Owner
from .contents import (
    INITIAL,
    POLICIES,
    STATE,
    Content,
    DroppedWrite,
    SavepointMark,
    Write,
    is_log_slice,
    log_failures,
    unchanged,
    without_own,
)
from .events import SlicePolicy, SubscriptionLog
from .session import Session, root_of
from .snapshots import SliceChange, Snapshot
from .state import SessionState
from .vector import EMPTY, Vector


def open_savepoint(session: Session, owner: Owner, for_all: bool = False) -> None:
    """Note all writes from now on, so that those of `owner` can be undone alone; `close_savepoint` must follow.

    `for_all` counts writes of code outside of all calls as the owner's own.
    """
    core = session._core
    # Without the lock: an append is atomic, and a writer that misses it wrote before this savepoint was opened.
    core.calls.append(owner)
    if for_all:
        with core.lock:
            core.for_all |= {owner}
            core.make_marks()


def snapshot_at(session: Session, owner: Owner) -> Snapshot:
    """The STATE slices when the open savepoint was opened, and the LOG slices as they are now."""
    core = session._core
    with core.lock:
        mark = core.marks.get(owner)
        state, notes, initial, policies, _ = core.content if mark is None else mark.content
        return Snapshot(core, state, core.logged, notes, initial, policies)


def changes_in(session: Session, owner: Owner) -> tuple[SliceChange, ...]:
    """What was written inside an open savepoint, and not what others have written meanwhile."""
    core = session._core
    return _changes_of(core, owner) if core.marks else ()


def is_untouched(session: Session, owner: Owner) -> bool:
    """Whether nothing was written or subscribed since the savepoint was opened: an undo has nothing to do."""
    core = session._core
    return owner not in core.marks and not core.subscribed


def undo_savepoint(session: Session, owner: Owner) -> None:
    """Undo what was written, registered and subscribed inside an open savepoint; it stays open.

    What others have written meanwhile stays, and so do LOG slices. Another owner's write that raises when it is
    repeated without the undone ones is dropped and logged. Everything is computed before the first change, so what
    interrupts it changes nothing. Raises what the guard of the handle raises; nothing changes then.
    """
    if session._guard is None:
        _undo(session._core, owner)
    else:
        with session._guard:
            _undo(session._core, owner)


def close_savepoint(session: Session, owner: Owner) -> None:
    """Forget an open savepoint; what was written inside it stays. Closing twice does nothing."""
    core = session._core
    try:  # noqa: SIM105 - quicker than `suppress`
        core.calls.remove(owner)
    except ValueError:
        pass
    # A writer that saw it as open may note a write after this look: the next one to close forgets that.
    if core.marks or core.writes or core.subscribed:
        core.close_savepoint(owner)


def unowned_recorder(session: Session) -> Callable[[object], None]:
    """`session.record` for the engine's own events: what reducers make of them belongs to no call."""
    core, guard = session._core, session._guard
    if guard is None:
        return core.record_unowned if root_of(session)._inside is None else partial(_record_outside_too, session)

    def record(event: object) -> None:
        with guard:
            if root_of(session)._inside is None:
                core.record_unowned(event)
            else:
                _record_outside_too(session, event)

    return record


# Agents that work inside a call, with a session of their own.


def fork_inside(session: Session, kinds: Iterable[type[Any]], session_id: str | None = None) -> Session:
    """A fork for an agent that works inside a call; what it records of these LOG types is in `session` too.

    It is in the log alone there: the reducers of `session` do not run, and its STATE stays as it is. That holds after
    the call is over as well: what a late handler did must be found. Subscribers are those of `session`.
    """
    outer = root_of(session)
    fork = session.fork(outer.dispatcher, session_id=session_id)
    fork._inside = outer, frozenset(kinds)
    return fork


def outermost(session: Session) -> Session:
    """The session that a fork for an agent inside a call was made of, however often; else the session itself."""
    session = root_of(session)
    while session._inside is not None:
        session, _ = session._inside
    return session


def log_alone(session: Session, event: object) -> None:
    """Append an event to the log, here and where the calls of this session are in the log too; no reducer runs."""
    session[type(event)].append(event)
    _log_outside(session, event)


def _record_outside_too(session: Session, event: object) -> None:
    try:
        session._core.record_unowned(event)
    finally:  # where a reducer fails, the event is in the log all the same
        _log_outside(session, event)


def _log_outside(session: Session, event: object) -> None:
    inside = root_of(session)._inside
    while inside is not None:
        outer, kinds = inside
        if type(event) not in kinds:
            return
        outer[type(event)].append(event)
        inside = outer._inside


def _changes_of(core: SessionState, owner: Owner) -> tuple[SliceChange, ...]:
    """The STATE slices that the owner wrote to, in the order of its first writes.

    `before` is what an undo would leave there: where other owners wrote too, their writes are included.
    """
    with core.lock:
        mark = core.marks.get(owner)
        if mark is None:
            return ()
        now, since = core.content, core.writes[mark.position :]
        contended = _written_slices(mark, since)
        before = core.pure(without_own, mark, now, since) if any(contended.values()) else mark.content
    changes: list[SliceChange] = []
    for slice_type, is_contended in contended.items():
        old, new = _view(before, slice_type), _view(now, slice_type)
        if old is not new and (old or new) and not is_log_slice(now[POLICIES], slice_type):
            changes.append(SliceChange(slice_type, SlicePolicy.STATE, old, new, is_contended))
    return tuple(changes)


def _undo(core: SessionState, owner: Owner) -> None:
    core.refuse_impure_writes()
    failures: list[DroppedWrite] = []
    with core.lock:
        mark = core.marks.get(owner)
        if mark is not None:
            _undo_writes(core, mark, failures)
    if failures:
        log_failures(failures)
    if core.subscribed:
        SubscriptionLog(core.dispatcher, core.subscribed).undo(owner)


def _undo_writes(core: SessionState, mark: SavepointMark, failures: list[DroppedWrite]) -> None:
    position, since = mark.position, core.writes[mark.position :]
    if not any(mark.owns(write.owner) for write in since):
        return
    content = core.pure(without_own, mark, core.content, since, failures)
    failures += mark.failures
    dropped = {id(failure.write) for failure in failures}
    gone = [mark.owns(write.owner) or id(write) in dropped for write in since]
    kept = [write for write, is_gone in zip(since, gone, strict=True) if not is_gone]
    # Savepoints that were opened since remember some of the undone writes as if they had been there before.
    rebased: list[tuple[SavepointMark, Content, int]] = []
    for other in core.marks.values():
        if other.position > position:
            until = other.position - position
            remembered = core.pure(without_own, mark, other.content, since[:until])
            rebased.append((other, remembered, other.position - sum(gone[:until])))
    # From here on nothing raises: all that runs users' code was computed above, so an undo is made whole or not at all.
    core.writes[position:] = kept
    core.store(content)
    mark.failures = []
    for other, remembered, place in rebased:
        other.content, other.position = remembered, place


def _written_slices(mark: SavepointMark, since: list[Write]) -> dict[type[Any], bool]:
    """The slices that the savepoint's owner wrote to, and whether others did too."""
    contended: dict[type[Any], bool] = {w.key: False for w in since if w.space == STATE and mark.owns(w.owner)}
    for write in since:
        if write.space in {STATE, INITIAL} and write.key in contended and write.transform is not unchanged:
            contended[write.key] |= not mark.owns(write.owner)
    return contended


def _view(content: Content, slice_type: type[Any]) -> Vector[Any]:
    found = content[STATE].get(slice_type)
    return content[INITIAL].get(slice_type, EMPTY) if found is None else found
