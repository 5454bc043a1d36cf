"""Savepoints over session, files and resources: commit, or complete undo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple, final

from ..errors import RollbackError, SessionError, StaleCallError
from ..fence import Fence, Guard, Owner, current_owner
from ..filesystem import FileChanges
from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.prompt_resources import PromptResources
from ..resources import Resolver, ResourceContext, ResourceRegistry
from ..session import Session, Snapshot
from ..session.savepoints import changes_in, close_savepoint, open_savepoint, snapshot_at, undo_savepoint
from ..session.session import guard_of, root_of
from .call_resources import CallResources, unfenced
from .locks import CallLock, Holding, in_order, lock_of
from .redaction import text_of

logger = logging.getLogger(__name__)

Parts = tuple[tuple[Any, Any], ...]  # the resources that take part, each with its snapshot
LogExtra = Mapping[str, object] | None
"""What log records carry: the run's ids."""

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


def create_snapshot(session: Session, resources: Resources | None = None, *, tag: str = "") -> CompositeSnapshot:
    """Remember session and resources as they are now; when one of them cannot, nothing is kept and it raises."""
    return _take(session, context_of(resources), tag, _guard_here(session, resources))


def restore_snapshot(session: Session, resources: Resources | None, snapshot: CompositeSnapshot) -> None:
    """Bring everything back; resources built since are closed and forgotten.

    Every participant is tried even when one fails; then `RollbackError` holds all causes. A snapshot that was taken
    inside a tool call belongs to it: once the call is over, nothing changes and `StaleCallError` is raised. A tool that
    only reads cannot restore one (`ReadOnlyError`).
    """
    with nullcontext() if snapshot.guard is None else snapshot.guard:
        _restore(lambda: session.restore(snapshot.session), context_of(resources), snapshot.parts, snapshot.mark, None)


def release_snapshot(session: Session, snapshot: CompositeSnapshot) -> None:
    """Say that it will not be restored again, so that nothing is kept for it."""
    _release(session, snapshot)


def savepoint_here(session: Session, resources: Resources | None) -> Savepoint:
    """A savepoint for a block of user code: nested in the call that the handles belong to, if they do.

    `StaleCallError` when that call is over. The handles tell the call also in a thread without its context.
    """
    guard = guard_of(session)
    if guard is None and isinstance(resources, CallResources):
        _, guard = unfenced(resources)
    if not isinstance(guard, Fence):
        return Savepoint(session, context_of(resources))
    with guard:
        return Savepoint(session, context_of(resources))


def _guard_here(session: Session, resources: Resources | None) -> Guard | None:
    """The guard of the call that some code runs in: that of its handles, or of the call around it."""
    guard = guard_of(session)
    if guard is None and isinstance(resources, CallResources):
        _, guard = unfenced(resources)
    owner = current_owner()
    if guard is None and owner is not None:
        guard = owner.holder.guard()
    return guard


@final
class Savepoint(Holding):
    """Around one call, or several: takes the locks, remembers everything, and can undo it all.

    Opening waits for other calls on the same session or files. Closing undoes everything unless `keep` was called, so
    that no way out leaves half a call behind. Nested savepoints belong to the call around them. Used once.
    """

    __slots__ = ("_context", "_decided", "_log_extra", "_mark", "_opened", "_parts", "for_all", "session", "settled")

    def __init__(
        self,
        session: Session,
        resources: ResourceContext | None,
        locks: tuple[CallLock, ...] | None = None,
        log_extra: LogExtra = None,
    ) -> None:
        # As Holding does, without the call: this runs for every tool call.
        around = current_owner()
        self.owner = Owner(around)
        self._outer = None if around is None else around.holder
        if locks is None:
            locks = locks_of(session, resources)
        self._locks = locks if self._outer is None else self._outer.inside(locks)
        self._held = self._shared = False
        self._loop = self._task = self._thread = self._token = None
        self.session = session
        self._context = resources
        self._log_extra = log_extra
        self._decided = self._opened = False  # the latter: the session knows of it
        self.settled = False  # whether the call's event is on record
        self.for_all = False  # whether writes of code outside of all calls are its own
        self._parts: Parts = ()
        self._mark = 0

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

    def _remember(self) -> None:
        context = self._context
        try:
            if context is not None:
                self._mark, parts = context.moment()
                if parts:
                    self._parts = _savepoints(parts, self.owner, self.for_all)
            open_savepoint(self.session, self.owner, self.for_all)
            self._opened = True
        except BaseException:
            close_savepoint(self.session, self.owner)
            self._decided = True  # nothing was changed yet
            self.close()
            raise

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
        files = _file_changes(self._parts, self._log_extra) if self._parts else None
        return Changes.of(slices, files) if slices or files else NO_CHANGES

    def undo(self) -> None:
        """Undo what was changed inside it; `RollbackError` when a participant could not be restored, all others are.

        What others wrote to the session stays. An undo belongs to the call around it: when that is over, it has decided
        about everything inside it and others may have built on that, so nothing changes and `StaleCallError` is raised.
        """
        if not self._opened:
            self._decided = True
            return
        around = self.around()
        if isinstance(around, Fence):
            try:
                around.__enter__()
            except StaleCallError:
                self.forget()
                raise
        try:
            session, owner = self.session, self.owner
            _restore(lambda: undo_savepoint(session, owner), self._context, self._parts, self._mark, self._log_extra)
        finally:
            self._decided = True  # after a failure too: closing would only fail once more
            if isinstance(around, Fence):
                around.__exit__(None, None, None)

    def start_over(self) -> None:
        """Undo, then go on as if it had just been opened; `RollbackError` as `undo`."""
        self.undo()
        self._decided = False

    def forget(self) -> None:
        """Undo nothing: the call around this one is over and has decided about everything in it."""
        self._decided = True
        self._opened, self._parts = False, ()
        close_savepoint(self.session, self.owner)

    def keep(self) -> None:
        """Let the changes stay when it is closed."""
        self._decided = True

    def close(self) -> None:
        """Forget the moment and let others in; undo first unless that was decided. Closing twice does nothing."""
        if not self._held:
            return
        try:
            if not self._decided:
                with suppress(StaleCallError):
                    self.undo()
        finally:
            try:
                if self._opened:
                    self._opened = False
                    close_savepoint(self.session, self.owner)
                if self._parts:
                    _release_parts(self._parts, self._log_extra)
            finally:
                self._parts = ()
                self.let_go()

    _close = close  # what is done for a call that cannot do it itself


def locks_of(session: Session, resources: ResourceContext | None) -> tuple[CallLock, ...]:
    """The locks of everything that takes part, in the order in which they are taken."""
    parts = () if resources is None else resources.snapshotables()
    return in_order([lock_of(root_of(session)), *map(lock_of, parts)])


def _take(
    session: Session, context: ResourceContext | None, tag: str = "", guard: Guard | None = None
) -> CompositeSnapshot:
    if context is None:
        return CompositeSnapshot(session.snapshot(), (), 0, tag, guard)
    return CompositeSnapshot(session.snapshot(), _snapshots(context.snapshotables()), context.mark(), tag, guard)


def _snapshots(parts: Iterable[Any]) -> Parts:
    taken: list[tuple[Any, Any]] = []
    try:
        for part in parts:
            taken.append((part, part.snapshot()))  # noqa: PERF401 - what was taken must be known when one raises
    except BaseException:
        _release_parts(tuple(taken))
        raise
    return tuple(taken)


def _restore(
    restore_session: Callable[[], None], context: ResourceContext | None, parts: Parts, mark: int, log_extra: LogExtra
) -> None:
    causes: dict[str, BaseException] = {}
    interrupt = _attempt(causes, "session", restore_session, log_extra)
    for part, taken in reversed(parts):
        step = _attempt(causes, type(part).__name__, lambda part=part, taken=taken: part.restore(taken), log_extra)
        interrupt = interrupt or step
    if context is not None and context.mark() != mark:
        interrupt = _attempt(causes, "resources", lambda: context.discard(mark), log_extra) or interrupt
    if causes:
        listed = "; ".join(f"{name}: {text_of(error)}" for name, error in causes.items())
        raise RollbackError(
            f"{len(causes)} of {len(parts) + 1} participants could not be restored ({listed}). "
            "What they hold is not to be trusted: stop the run and look at them.",
            causes=causes,
        )
    if interrupt is not None:
        raise interrupt


def _attempt(
    causes: dict[str, BaseException], name: str, step: Callable[[], None], log_extra: LogExtra
) -> BaseException | None:
    """Every participant gets its turn, whatever the others did.

    Ctrl-C in the middle does not stop the round: what it broke off is done once more, and the interrupt returned.
    """
    interrupt: BaseException | None = None
    for _ in range(2):
        try:
            step()
        except Exception as error:  # participants are users' code
            logger.exception("The %s could not be restored", name, extra=log_extra)
            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error
            return interrupt
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error
        else:
            return interrupt
    assert interrupt is not None
    causes[name if name not in causes else f"{name} {len(causes) + 1}"] = interrupt
    return interrupt


def _release(session: Session, snapshot: CompositeSnapshot) -> None:
    _release_parts(snapshot.parts)
    session.release(snapshot.session)


def _release_parts(parts: Parts, log_extra: LogExtra = None) -> None:
    """Each is released, whatever the others did; an interrupt among them is raised after the last."""
    interrupt: BaseException | None = None
    for part, taken in reversed(parts):
        try:
            part.release(taken)
        except Exception:  # participants are users' code; what is released is not needed any more
            logger.exception("A snapshot of %s could not be released", type(part).__name__, extra=log_extra)
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error if interrupt is None else interrupt
    if interrupt is not None:
        raise interrupt


def _file_changes(parts: Iterable[tuple[Any, Any]], log_extra: LogExtra) -> FileChanges | None:
    found: FileChanges | None = None
    for part, taken in parts:
        changes = getattr(part, "changes", None)
        if changes is None:
            continue
        try:
            changed = changes(taken)
        except Exception:  # participants are users' code, and this is only for the log
            logger.exception("The changes of %s could not be told", type(part).__name__, extra=log_extra)
            continue
        if isinstance(changed, FileChanges) and changed:
            found = changed if found is None else FileChanges(
                (*found.added, *changed.added), (*found.changed, *changed.changed), (*found.removed, *changed.removed)
            )  # fmt: skip
    return found


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
    "create_snapshot",
    "locks_of",
    "release_snapshot",
    "restore_snapshot",
    "savepoint_here",
]
