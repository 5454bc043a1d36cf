"""Snapshots by hand: remember a session and its resources, and restore them."""

from __future__ import annotations

from contextlib import nullcontext

from ..fence import Guard
from ..resources import ResourceContext
from ..session import Session
from .nesting import calls_since, record_undone
from .participants import release_parts, restore_all, snapshots_of
from .transactions import CompositeSnapshot, Resources, context_of, guard_here


def create_snapshot(session: Session, resources: Resources | None = None, *, tag: str = "") -> CompositeSnapshot:
    """Remember session and resources as they are now; when one of them cannot, nothing is kept and it raises."""
    return _take(session, context_of(resources), tag, guard_here(session, resources))


def restore_snapshot(session: Session, resources: Resources | None, snapshot: CompositeSnapshot) -> None:
    """Bring everything back; resources built since are closed and forgotten.

    Calls that have succeeded since are undone with it, and the log says so (`CallsUndone`). Every participant is tried
    even when one fails; then `RollbackError` holds all causes. A snapshot that was taken
    inside a tool call belongs to it: once the call is over, nothing changes and `StaleCallError` is raised. A tool that
    only reads cannot restore one (`ReadOnlyError`).
    """
    with nullcontext() if snapshot.guard is None else snapshot.guard:
        restore = lambda: session.restore(snapshot.session)  # noqa: E731 - a step among those of the participants
        undone = calls_since(session, snapshot)
        try:
            restore_all(restore, context_of(resources), snapshot.parts, snapshot.mark, None, [])
        finally:
            record_undone(session, undone)


def release_snapshot(session: Session, snapshot: CompositeSnapshot) -> None:
    """Say that it will not be restored again, so that nothing is kept for it."""
    release_parts(snapshot.parts)
    session.release(snapshot.session)


def _take(
    session: Session, context: ResourceContext | None, tag: str = "", guard: Guard | None = None
) -> CompositeSnapshot:
    if context is None:
        return CompositeSnapshot(session.snapshot(), (), 0, tag, guard)
    return CompositeSnapshot(session.snapshot(), snapshots_of(context.snapshotables()), context.mark(), tag, guard)


__all__ = ["create_snapshot", "release_snapshot", "restore_snapshot"]
