"""Savepoints over session, files and resources: commit, or complete undo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple, cast, final

from ..crash_log import log_crash
from ..errors import RollbackError, SessionError, StaleCallError
from ..fence import Fence, Guard, Owner, current_owner, nearest_owner
from ..filesystem import FileChanges
from ..filesystem.protocol import changes_before_restore
from ..filesystem.protocol import open_savepoint as open_savepoint_in
from ..prompt.changes import NO_CHANGES, Changes
from ..resources import ResourceContext
from ..session import Session, Snapshot
from ..session.savepoints import changes_in, close_savepoint, is_untouched, open_savepoint, snapshot_at, undo_savepoint
from ..waiting import Waiting
from .locks import CallLock, LockSet, is_filesystem, locks_of
from .redaction import text_of

logger: logging.Logger = logging.getLogger(__name__)

Parts = tuple[tuple[Any, Any], ...]
"""The resources that take part, each with its snapshot."""

LogExtra = Mapping[str, object] | None
"""What log records carry: the run's ids."""


class CompositeSnapshot(NamedTuple):
    """One moment of a session and of every snapshotable resource, taken together.

    On disk a snapshot ends with the process: it does not recover by itself, and an outer one that is restored makes
    the inner ones invalid.
    """

    session: Snapshot
    parts: Parts
    mark: int
    tag: str = ""
    guard: Guard | None = None
    """Of the call that it was taken in: once that is over it cannot be restored."""


@final
class Savepoint(LockSet):
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
        # As LockSet does, without the call: this runs for every tool call.
        if locks is None:
            locks = locks_of(session, resources)
        owner = Owner()
        self.owner: Owner = owner
        around = nearest_owner()
        if around is None:
            owner.around = self._outer = None
        else:
            if any(lock in around.ended for lock in locks):
                raise StaleCallError("The call that this code belongs to is over: nothing can be begun in it any more.")
            owner.around = around = current_owner()
            self._outer = None
            if around is not None:
                self._outer = around.holder
                owner.only_through_api = around.only_through_api
        self._locks = locks if self._outer is None else self._outer.inside(locks)
        self._held = self._shared = False
        self._loop = self._task = self._thread = self._token = None
        self.session: Session = session
        self._context = resources
        self._log_extra = log_extra
        self.decided: bool = False
        self._opened = False  # whether the session knows of it
        self.settled: bool = False  # whether the call's event is on record
        self.for_all: bool = False  # whether writes of code outside of all calls are its own
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

    async def open(self, waiting: Waiting, shared: bool = False, seconds: float | None = None) -> None:
        """Wait for other calls, then open it; `OutOfTime` when they take longer than that.

        It is tried first: most calls find their locks free.
        """
        if not self.try_open(waiting, shared):
            await self.take(waiting, shared, seconds)
            if not shared:
                self._remember()

    def try_open(self, waiting: Waiting | None = None, shared: bool = False) -> bool:
        """Open it if no other call holds the locks."""
        if waiting is not None and waiting.may_vanish:
            self.place_here()
        if not self.take_now(shared):
            return False
        if not shared:
            self._remember()
        return True

    def _remember(self, joining: bool = False) -> None:
        if self.owner.around is not None and not joining:
            self._remember_inside()
            return
        context = self._context
        try:
            if context is not None:
                root = context.root  # not through its methods, as above
                self._mark, parts = root.build_count, root.snapshotables
                if parts:
                    self._parts = snapshots_of(parts, self.owner, self.for_all)
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
        around = self.enclosing_fence()
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

    def snapshot_of(self, part: Any) -> Any:
        """What was remembered of a participant; None when it takes no part."""
        return next((taken for known, taken in self._parts if known is part), None)

    def parts(self) -> list[Any]:
        """The resources that take part."""
        return [part for part, _ in self._parts]

    def changes(self, *, to_undo: bool = False) -> Changes:
        """What was changed inside it since it was opened; `to_undo` when the next thing that happens is its undo."""
        if not self._opened:
            return NO_CHANGES
        files = file_changes(self._parts, self._log_extra, to_undo=to_undo) if self._parts else None
        slices = changes_in(self.session, self.owner)
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
            self.release_without_undo()
            raise

    def _undo(self) -> None:
        context = self._context
        if (
            not self._parts
            and is_untouched(self.session, self.owner)
            and (context is None or context.root.build_count == self._mark)
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

    def release_without_undo(self) -> None:
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
            # The locks last, whatever happened before: the next call must find everything undone or kept, and a lock
            # that is not released stops every later call.
            try:
                if self._parts or self._open_inside or self.owner.around is not None:
                    self._release()
                elif self._opened:  # most calls
                    self._opened = False
                    close_savepoint(self.session, self.owner)
            finally:
                self.release()

    _close = close  # what is done for a call that cannot do it itself


# The resources that take part: remembered, restored and released together.


def snapshots_of(parts: Iterable[Any], owner: Owner | None = None, for_all: bool = False) -> Parts:
    """Each participant with a snapshot; of files, for an owner, a savepoint that is undone also after a crash.

    When one of them cannot be had, all are released and it raises.
    """
    taken: list[tuple[Any, Any]] = []
    try:
        for part in parts:
            is_owned = owner is not None and is_filesystem(part.__class__)
            taken.append((part, open_savepoint_in(part, owner, for_all=for_all) if is_owned else part.snapshot()))
    except BaseException:
        release_parts(tuple(taken))
        raise
    return tuple(taken)


def restore_all(  # noqa: PLR0917 - all that takes part
    restore_session: Callable[[], None],
    context: ResourceContext | None,
    parts: Parts,
    mark: int,
    log_extra: LogExtra,
    failed: list[Any],
) -> None:
    """Restore the session, the participants and what was born since; those that could not be are added to `failed`.

    Every participant is tried even when one fails; then `RollbackError` holds all causes.
    """
    causes: dict[str, BaseException] = {}
    interrupt = _attempt(causes, "session", restore_session, log_extra)
    for part, taken in reversed(parts):
        known = len(causes)
        step = _attempt(causes, type(part).__name__, lambda part=part, taken=taken: part.restore(taken), log_extra)
        interrupt = interrupt or step
        if len(causes) > known:
            failed.append(part)
    if context is not None and context.mark() != mark:
        interrupt = _attempt(causes, "resources", lambda: context.discard(mark), log_extra) or interrupt
    if causes:
        listed = "; ".join(f"{name}: {text_of(error)}" for name, error in causes.items())
        raise RollbackError(
            f"{len(causes)} of {len(parts) + 1} participants could not be restored ({listed}). "
            "What they hold is not to be trusted: stop the run and look at them. Files keep what their undo needs and "
            "refuse further calls until it succeeds, here or when they are opened next.",
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
        except Exception as error:  # noqa: BLE001 - participants are users' code
            log_crash(logger, f"The {name} could not be restored", error, log_extra)
            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error
            return interrupt
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error
        else:
            return interrupt
    assert interrupt is not None
    causes[name if name not in causes else f"{name} {len(causes) + 1}"] = interrupt
    return interrupt


def release_parts(parts: Parts, log_extra: LogExtra = None) -> None:
    """Each is released, whatever the others did; an interrupt among them is raised after the last."""
    interrupt: BaseException | None = None
    for part, taken in reversed(parts):
        release = getattr(part, "release", None)
        if release is None:
            continue
        try:
            release(taken)
        except Exception as error:  # noqa: BLE001 - users' code; what is released is not needed any more
            log_crash(logger, f"A snapshot of {type(part).__name__} could not be released", error, log_extra)
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error if interrupt is None else interrupt
    if interrupt is not None:
        raise interrupt


def file_changes(parts: Parts, log_extra: LogExtra, *, to_undo: bool = False) -> FileChanges | None:
    """What the participants that are filesystems changed since; None when nothing did.

    `to_undo` says that they are restored next.
    """
    found: FileChanges | None = None
    to_undo = to_undo and len(parts) == 1  # else others are restored in between, and may write to the files
    for part, taken in parts:
        changes = getattr(part, "changes", None)
        if changes is None:
            continue
        try:
            changed = changes_before_restore(part, taken) if to_undo else changes(taken)
        except Exception as error:  # noqa: BLE001 - participants are users' code, and this is only for the log
            log_crash(logger, f"The changes of {type(part).__name__} could not be told", error, log_extra)
            continue
        if isinstance(changed, FileChanges) and changed:
            found = changed if found is None else FileChanges(
                (*found.added, *changed.added), (*found.changed, *changed.changed), (*found.removed, *changed.removed)
            )  # fmt: skip
    return found
