"""Savepoints over session, files and resources: commit, or complete undo."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple, cast, final

from ..errors import SessionError, StaleCallError
from ..fence import Fence, Guard, Owner, current_owner, nearest_owner
from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.prompt_resources import PromptResources
from ..resources import Resolver, ResourceContext, ResourceRegistry
from ..session import Session, Snapshot
from ..session.savepoints import changes_in, close_savepoint, is_untouched, open_savepoint, snapshot_at, undo_savepoint
from ..session.session import guard_of, root_of
from .locks import CallLock, Holding, in_order, lock_of
from .participants import (
    CallResources,
    LogExtra,
    Parts,
    file_changes,
    files_behind,
    release_parts,
    restore_all,
    savepoints_of,
    unfenced,
)

Resources = ResourceContext | PromptResources | ResourceRegistry | Resolver
"""Whatever holds resources, a handler's `context.resources` too; their snapshotables take part."""


class CompositeSnapshot(NamedTuple):
    """One moment of a session and of every snapshotable resource, taken together.

    On disk a snapshot ends with the process: it does not recover by itself, and an outer one that is restored makes
    the inner ones worthless.
    """

    session: Snapshot
    parts: Parts
    mark: int
    tag: str = ""
    guard: Guard | None = None
    """Of the call that it was taken in: once that is over it cannot be restored."""


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


@final
class Savepoint(Holding):
    """Around one call, or several: takes the locks, remembers everything, and can undo it all.

    Opening waits for other calls on the same session or files. Closing undoes everything unless `keep` was called, so
    that no way out leaves half a call behind. Nested savepoints belong to the call around them. Used once.

    Raises `StaleCallError` in a handler that was given up on, for what took part in its call.
    """

    __slots__ = (
        "_context", "_log_extra", "_mark", "_open_inside", "_opened", "_parts", "decided", "event_id", "for_all",
        "inner_calls", "session", "settled",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        resources: ResourceContext | None,
        locks: tuple[CallLock, ...] | None = None,
        log_extra: LogExtra = None,
    ) -> None:
        # As Holding does, without the call: this runs for every tool call.
        if locks is None:
            locks = locks_of(session, resources)
        self.owner = owner = Owner()
        around = nearest_owner()
        if around is None:
            owner.around = self._outer = None
        else:
            if any(lock in around.ended for lock in locks):
                raise StaleCallError("The call that this code belongs to is over: nothing can be begun in it any more.")
            owner.around = around = current_owner()
            self._outer = None if around is None else around.holder
        self._locks = locks if self._outer is None else self._outer.inside(locks)
        self._held = self._shared = False
        self._loop = self._task = self._thread = self._token = None
        self.session = session
        self._context = resources
        self._log_extra = log_extra
        self.decided = self._opened = False  # the latter: the session knows of it
        self.settled = False  # whether the call's event is on record
        self.for_all = False  # whether writes of code outside of all calls are its own
        self.event_id: str | None = None  # the id that its event will have, once a call inside it was made
        self.inner_calls: tuple[str, ...] = ()  # the events of calls inside it that succeeded
        self._parts: Parts = ()
        self._open_inside: tuple[Savepoint, ...] = ()
        self._mark = 0

    def outer(self) -> Savepoint | None:
        """The savepoint that was open around this one when it was made."""
        return cast("Savepoint | None", self._outer)

    def is_inside(self, outer: Savepoint) -> bool:
        """Whether what is changed here is undone with the other: they share a session, files or resources."""
        return bool(self._locks) and self._locks[-1] is getattr(outer, "_inner", None)

    # Opening; `shared` only reads, so it remembers nothing.

    def open_now(self, shared: bool = False) -> bool:
        """Open it if nobody else is in the way."""
        if not self.take_now(shared):
            return False
        if not shared:
            self._remember()
        return True

    def open(self, shared: bool = False, seconds: float | None = None) -> None:
        """Wait for others, blocking the thread, then open it; `LockTimeout` when they take longer than that."""
        self.take(shared, seconds)
        if not shared:
            self._remember()

    async def aopen(self, shared: bool = False, seconds: float | None = None) -> None:
        """Like `open`, without blocking the event loop."""
        await self.atake(shared, seconds)
        if not shared:
            self._remember()

    def _remember(self, joining: bool = False) -> None:
        if self.owner.around is not None and not joining:
            self._remember_inside()
            return
        context = self._context
        try:
            if context is not None:
                root = context.root  # not through its methods, as above
                self._mark, parts = root.births, root.snapshotables
                if parts:
                    self._parts = savepoints_of(parts, self.owner, self.for_all)
            open_savepoint(self.session, self.owner, self.for_all)
            self._opened = True
        except BaseException:
            close_savepoint(self.session, self.owner)
            self.decided = True  # nothing was changed yet
            self.close()
            raise

    # A savepoint that is still open when the one around it ends, in a task or thread that a handler left behind, ends
    # with it: what was done in it is decided, and must not be undone by a crash that comes later.

    def _around_or_nothing(self) -> AbstractContextManager[object]:
        """The fence of the call around it, which cannot end while it is entered; `StaleCallError` when it has."""
        around = self.around()
        return around if isinstance(around, Fence) else nullcontext()

    def _remember_inside(self) -> None:
        """As `_remember`, while the call around it cannot end; `StaleCallError` when it has."""
        try:
            with self._around_or_nothing():
                self._remember(joining=True)
                outer = self.outer()
                if outer is not None and self.is_inside(outer):
                    outer._open_inside = (*outer._open_inside, self)
        except StaleCallError:
            self.decided = True
            self.close()
            raise

    def _release(self) -> None:
        """Release what was remembered. Once the call around it is over, that has done it or will."""
        outer = None if self.owner.around is None else self.outer()
        if outer is not None and self in outer._open_inside:
            try:
                with self._around_or_nothing():
                    outer._open_inside = tuple(inner for inner in outer._open_inside if inner is not self)
                    self._release_now()
            except StaleCallError:
                return
        else:
            self._release_now()

    def _release_now(self) -> None:
        inside, self._open_inside = self._open_inside, ()
        for inner in reversed(inside):
            inner.decided = True
            inner._release_now()
        if self._opened:
            self._opened = False
            close_savepoint(self.session, self.owner)
        parts, self._parts = self._parts, ()
        if parts:
            release_parts(parts, self._log_extra)

    # While it is open.

    def snapshot(self, tag: str = "") -> CompositeSnapshot:
        """The moment it was opened, LOG slices as they are now; `SessionError` before that, and while it only reads."""
        if not self._opened:
            raise SessionError("The savepoint is not open.")
        return CompositeSnapshot(snapshot_at(self.session, self.owner), self._parts, self._mark, tag)

    def changes(self) -> Changes:
        """What was changed inside it since it was opened; costs no more than the changes."""
        if not self._opened:
            return NO_CHANGES
        slices = changes_in(self.session, self.owner)
        files = file_changes(self._parts, self._log_extra) if self._parts else None
        return Changes.of(slices, files) if slices or files else NO_CHANGES

    def undo(self) -> None:
        """Undo what was changed inside it; `RollbackError` when a participant could not be restored, all others are.

        What others wrote to the session stays. An undo belongs to the call around it: when that is over, it has decided
        about everything inside it and others may have built on that, so nothing changes and `StaleCallError` is raised.
        """
        if self.owner.around is None:
            self._undo()
            return
        try:
            with self._around_or_nothing():
                self._undo()
        except StaleCallError:
            self.forget()
            raise

    def _undo(self) -> None:
        context = self._context
        if (
            not self._parts
            and is_untouched(self.session, self.owner)
            and (context is None or context.root.births == self._mark)
        ):  # as a call that a policy refused
            self.decided = True
            return
        session, owner, failed = self.session, self.owner, list[Any]()
        try:
            if self._opened:
                undo = lambda: undo_savepoint(session, owner)  # noqa: E731 - a step among those of the participants
                restore_all(undo, self._context, self._parts, self._mark, self._log_extra, failed)
        finally:
            if failed:
                self._leave_out(failed)
            self.decided = True  # after a failure too: closing would only fail once more

    def _leave_out(self, failed: list[Any]) -> None:
        """Releasing says that what happened since is kept, or was undone. Of these participants neither is true."""
        self._parts = tuple(entry for entry in self._parts if not any(entry[0] is part for part in failed))
        for inner in self._open_inside:
            inner._leave_out(failed)

    def start_over(self) -> None:
        """Undo, then go on as if it had just been opened; `RollbackError` as `undo`."""
        self.undo()
        self.decided = False

    def forget(self) -> None:
        """Undo nothing: the call around this one is over and has decided about everything in it."""
        self.decided = True
        self._opened, self.inner_calls = False, ()
        close_savepoint(self.session, self.owner)

    def keep(self) -> None:
        """Let the changes stay when it is closed."""
        self.decided = True

    def close(self) -> None:
        """Forget the moment and let others in; undo first unless that was decided. Closing twice does nothing."""
        if not self._held:
            return
        try:
            if not self.decided:
                with suppress(StaleCallError):
                    self.undo()
        finally:
            try:
                if self._parts or self._open_inside or self.owner.around is not None:
                    self._release()
                elif self._opened:  # most calls
                    self._opened = False
                    close_savepoint(self.session, self.owner)
            finally:
                self.let_go()

    _close = close  # what is done for a call that cannot do it itself


def locks_of(session: Session, resources: ResourceContext | None) -> tuple[CallLock, ...]:
    """The locks of everything that takes part, in the order in which they are taken."""
    parts = () if resources is None else resources.snapshotables()
    return in_order([lock_of(root_of(session)), *map(lock_of, map(files_behind, parts))])


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


__all__ = [
    "CompositeSnapshot",
    "Resources",
    "Savepoint",
    "context_of",
    "guard_here",
    "locks_of",
    "savepoint_here",
]
