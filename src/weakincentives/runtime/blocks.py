"""`with transaction(...)`: several steps or calls, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Self, final

from ..fence import Fence, Guard, current_owner
from ..interrupts import finalizer
from ..prompt.changes import Changes
from ..prompt.prompt_resources import PromptResources
from ..resources import Resolver, ResourceContext, ResourceRegistry
from ..session import Session
from ..session.session import guard_of
from ..signals import shielded_run
from ..waiting import awaiting_here, blocking_here, drive
from .contexts import CallResources, unfenced
from .nesting import calls_since, keep_inside, record_undone
from .transactions import CompositeSnapshot, Savepoint, release_parts, restore_all, snapshots_of

Resources = ResourceContext | PromptResources | ResourceRegistry | Resolver
"""Whatever holds resources, a handler's `context.resources` too; their snapshotables take part."""


@final
class _CloseWhenDropped:
    """Closes a savepoint whose `with` was left without `__exit__`: an interrupt may be raised before its first line."""

    __slots__ = ("_savepoint",)

    def __init__(self, savepoint: Savepoint) -> None:
        self._savepoint = savepoint

    @finalizer
    def __del__(self) -> None:
        self._savepoint.close()


@final
class Transaction:
    """Several steps, all or nothing: `with transaction(session, resources): ...`.

    Leaving with an exception, or when `validate()` is not true, undoes everything since it was entered, calls of tools
    included; LOG slices stay. The value of the `with` is the `CompositeSnapshot`.
    """

    __slots__ = ("_closing", "_moment", "_savepoint", "_tag", "_validate", "committed")

    _moment: CompositeSnapshot

    def __init__(self, session: Session, resources: Resources | None, tag: str, validate: Callable[[], object] | None):
        self._savepoint = savepoint_here(session, resources)
        self._tag = tag
        self._validate = validate
        self.committed: bool | None = None
        """Whether the changes stayed; None while it is open."""

    def __enter__(self) -> Self:
        try:
            with shielded_run():
                drive(self._savepoint.open(blocking_here()))
                self._begin()
        except BaseException:  # also an interrupt that waited until it was open
            self._savepoint.close()
            raise
        return self

    def _begin(self) -> None:
        self._moment = self._savepoint.snapshot(self._tag)
        self._savepoint.outlive_task()
        self._closing = _CloseWhenDropped(self._savepoint)

    async def __aenter__(self) -> Self:
        try:
            with shielded_run():
                await self._savepoint.open(awaiting_here())
                self._begin()
        except BaseException:  # as above
            self._savepoint.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with shielded_run():
                self._leave(error)
        finally:
            self._savepoint.close()  # if an interrupt came first

    def _leave(self, error: BaseException | None) -> None:
        try:
            self.committed = error is None and (self._validate is None or bool(self._validate()))
        except BaseException:
            self.committed = False
            raise
        finally:
            savepoint = self._savepoint
            if self.committed:
                savepoint.keep()
            try:
                savepoint.close()
            finally:
                if self.committed:
                    keep_inside(savepoint)
                else:
                    record_undone(savepoint.session, savepoint.inner_calls)
                savepoint.inner_calls = ()
            self._closing = None  # here, where an interrupt waits: in `__del__` it would be swallowed

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    @property
    def snapshot(self) -> CompositeSnapshot:
        """The moment it was entered, for `restore_snapshot` in the middle; `SessionError` while it is not open."""
        self._savepoint.snapshot()  # raises while it is not open
        return self._moment

    def changes(self) -> Changes:
        """What differs from the moment it was entered."""
        return self._savepoint.changes()


def transaction(
    session: Session,
    resources: Resources | None = None,
    *,
    tag: str = "",
    validate: Callable[[], object] | None = None,
) -> Transaction:
    """All or nothing over several steps or calls; also `async with`. See `Transaction`.

    >>> session = Session()
    >>> with transaction(session, validate=lambda: session[int].count() < 2):
    ...     session[int].append(1)
    ...     session[int].append(2)
    >>> session[int].count()
    0
    """
    return Transaction(session, resources, tag, validate)


@final
class _ToolTransaction:
    __slots__ = ("_transaction",)

    def __init__(self, made: Transaction) -> None:
        self._transaction = made

    def __enter__(self) -> CompositeSnapshot:
        self._transaction.__enter__()
        return self._transaction.snapshot

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.__exit__(kind, error, trace)


def tool_transaction(session: Session, resources: Resources | None = None, *, tag: str = "") -> _ToolTransaction:
    """Undo everything on an exception.

    Used as `with tool_transaction(session, resources, tag="...") as snapshot: ...`.

    The snapshot can be restored by hand with `restore_snapshot` before the block ends.
    """
    return _ToolTransaction(transaction(session, resources, tag=tag))


# Snapshots by hand: remember a session and its resources, and restore them.


def create_snapshot(session: Session, resources: Resources | None = None, *, tag: str = "") -> CompositeSnapshot:
    """Remember session and resources as they are now; when one of them cannot, nothing is kept and it raises."""
    return _take(session, context_of(resources), tag, guard_here(session, resources))


def restore_snapshot(session: Session, resources: Resources | None, snapshot: CompositeSnapshot) -> None:
    """Restore everything; resources built since are closed and forgotten.

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


# In which call a block of user code runs, and on which resources.


def savepoint_here(session: Session, resources: Resources | None) -> Savepoint:
    """A savepoint for a block of user code: nested in the call that the handles belong to, if they do.

    `StaleCallError` when that call is over. The handles tell the call also in a thread without its context.
    """
    guard = _guard_of_handles(session, resources)
    if not isinstance(guard, Fence):
        return Savepoint(session, context_of(resources))
    with guard:
        return Savepoint(session, context_of(resources))


def guard_here(session: Session, resources: Resources | None) -> Guard | None:
    """The guard of the call that some code runs in: that of its handles, or of the call around it."""
    guard, owner = _guard_of_handles(session, resources), current_owner()
    return owner.holder.guard() if guard is None and owner is not None else guard


def _guard_of_handles(session: Session, resources: Resources | None) -> Guard | None:
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance] - not everybody checks types
        raise TypeError(
            f"The first argument must be a Session, got {type(session).__name__}. Files and other resources take part "
            "when they are bound: transaction(session, ResourceRegistry.build({Filesystem: files}))."
        )
    guard = guard_of(session)
    if guard is None and isinstance(resources, CallResources):
        _, guard = unfenced(resources)
    return guard


def context_of(resources: Resources | None) -> ResourceContext | None:
    """The live resources behind whatever form they are given in."""
    if resources is None or isinstance(resources, ResourceContext):
        return resources
    if isinstance(resources, PromptResources):
        return resources.context
    if isinstance(resources, ResourceRegistry):
        return resources.open().open()
    if isinstance(resources, CallResources):
        return unfenced(resources)[0]
    raise TypeError(f"resources must be a ResourceContext, PromptResources or ResourceRegistry, got {resources!r}.")
