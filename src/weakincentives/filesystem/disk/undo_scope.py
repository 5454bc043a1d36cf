"""When a change to the root is final: the lock, the snapshots and the undo log, together.

| state of a root | a write or snapshot | `restore` fails | release of the last savepoint | `kill -9`, then open |
|---|---|---|---|---|
| idle: no snapshot | is not recorded | | | nothing is undone |
| bare: only bare snapshots | is recorded, for undo by hand | owed | | nothing is undone |
| open: a savepoint lives | is recorded | owed | the commit; older bare snapshots can still be restored | undone |
| owed: an undo was begun | finishes the undo first, or is refused | stays owed | commits nothing | undone |
| torn: a record may be left over | cuts it first, or is refused | owed | cuts it first | it is recognised |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import final
from weakref import ref

from ...errors import JournalError, SnapshotError
from ...fence import Owner, current_owner
from ...interrupts import RLock, shielded
from ..ownership import UndoMark, conflict, covers
from ..protocol import FileChanges, FileNode, LargeFile
from .confine import explained
from .disk_root import DiskRoot
from .mirror import Mirror, refuse_incomplete
from .reversal import Differences
from .undo_log import Mutations, UndoLog

# Snapshots of files on disk: a stack of positions in a list of changes. Taking one touches no disk.


@final
class HostSnapshot:
    """A state of a `HostFilesystem`, for `restore` and `release`.

    It cannot be restored once it was released, or once an older one was restored. One that is garbage collected
    counts as released.
    """

    __slots__ = ("__weakref__", "dropped", "mark")

    def __init__(self, mark: UndoMark, dropped: list[DropNotice]) -> None:
        self.mark: UndoMark = mark
        self.dropped: list[DropNotice] = dropped

    def __repr__(self) -> str:
        return f"<HostSnapshot {'valid' if self.mark.alive else 'over'}>"


@final
class DropNotice(ref[HostSnapshot]):
    """Leaves a note when a snapshot is gone, which may be at any moment in any thread.

    The note is made by `list.append` itself: in Python code of ours an interrupt could be raised, and would be lost.
    """

    __slots__ = ("mark",)

    mark: UndoMark


@final
class SnapshotStack:
    """The live marks, oldest first, and the notes of those that were dropped."""

    __slots__ = ("dropped", "live")

    def __init__(self) -> None:
        self.live: list[UndoMark] = []
        self.dropped: list[DropNotice] = []

    def push(self, mark: UndoMark) -> HostSnapshot:
        """One more, the newest."""
        snapshot = HostSnapshot(mark, self.dropped)
        note = mark.note = DropNotice(snapshot, self.dropped.append)
        note.mark = mark
        self.live.append(mark)  # last: interrupted before, there is nothing to release
        return snapshot

    def check(self, snapshot: object) -> UndoMark:
        """The snapshot's mark; `SnapshotError` when it is another filesystem's or over."""
        mark = self._own(snapshot)
        if not mark.alive:
            raise SnapshotError("This snapshot is over: it was released, or an older one was restored. Take a new one.")
        return mark

    def check_restorable(self, snapshot: object) -> UndoMark:
        """As `check`; a bare one below a live savepoint is refused, as that could then not be restored any more."""
        mark = self.check(snapshot)
        if not mark.savepoint and any(newer.savepoint for newer in self._newer(mark)):
            raise older_than_open()
        return mark

    def release(self, snapshot: object) -> UndoMark | None:
        """Forget it; None when it was over already."""
        mark = self._own(snapshot)
        if not mark.alive:
            return None
        self._forget(mark)
        return mark

    def rewind(self, mark: UndoMark) -> None:
        """End all newer ones that belong to it."""
        if self.live[-1] is not mark:
            for newer in list(self._newer(mark)):
                if covers(mark.owner, newer.owner, for_all=mark.for_all):
                    self._forget(newer)

    def lower(self, position: int) -> None:
        """No mark is above that position: changes below it were undone."""
        for mark in reversed(self.live):
            if mark.position <= position:
                break
            mark.position = position

    def collect(self) -> bool:
        """Forget those that were garbage collected; whether there were any."""
        found = False
        while self.dropped:
            mark = self.dropped.pop().mark
            if mark.alive:
                self._forget(mark)
                found = True
        return found

    def clear(self) -> None:
        """Forget all."""
        for mark in self.live:
            mark.alive, mark.note = False, None
        self.live.clear()

    def _newer(self, mark: UndoMark) -> Iterator[UndoMark]:
        for other in reversed(self.live):
            if other is mark:
                return
            yield other

    def _own(self, snapshot: object) -> UndoMark:
        if not isinstance(snapshot, HostSnapshot) or snapshot.dropped is not self.dropped:
            raise SnapshotError("This snapshot is not of this filesystem; restore it where it was taken.")
        return snapshot.mark

    def _forget(self, mark: UndoMark) -> None:
        mark.alive = False
        mark.note = None
        live = self.live
        if live and live[-1] is mark:  # nearly always; this runs for every tool call
            live.pop()
        elif mark in live:
            live.remove(mark)


def older_than_open() -> SnapshotError:
    """The refusal to restore a bare snapshot from before a call that is still open."""
    return SnapshotError(
        "This snapshot is older than a call or transaction that is still open, whose own undo it would take "
        "away. Restore it when that is over, or take a snapshot inside."
    )


_log = logging.getLogger(__name__)

_NO_CHANGES = FileChanges()


class UndoScope:
    """What `HostFilesystem` promises about snapshots. Safe to use from any thread.

    Every change is made with `lock` held, inside a `WriteOperation`. Other work in several steps enters the scope
    itself; if that is interrupted, the next to enter notices.
    """

    __slots__ = ("_snapshots", "_unsettled", "began_at", "busy", "closed", "disk", "lock", "mutations", "undo")

    def __init__(self, disk: DiskRoot) -> None:
        self.disk: DiskRoot = disk
        self.undo: UndoLog = UndoLog(disk)
        self.mutations: Mutations = Mutations(disk, self.undo)
        self.lock: RLock = RLock()
        self.closed: bool = False
        # Left set by an interrupt: a step that did not come to its end, and where the write in it began.
        self.busy: bool = False
        self.began_at: int | None = None
        self._snapshots = SnapshotStack()
        self._unsettled = False
        disk.recover = self.recover

    def __enter__(self) -> None:
        if self.busy:
            self.tidy()
        self.busy = True

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.busy = False

    def snapshot(self) -> HostSnapshot:
        """A position to restore, which ends with the process."""
        with self.lock:
            self.tidy()
            owner = current_owner()
            for_all = owner is not None and any(mark.for_all and mark.owner is owner for mark in self._snapshots.live)
            return self.push_locked(UndoMark(self.undo.position, False, owner, for_all))

    def savepoint(self, owner: Owner | None, *, for_all: bool) -> HostSnapshot:
        """A position that a crash is rolled back to as well."""
        with self.lock:
            self.tidy()
            return self.push_locked(UndoMark(self.undo.position, True, owner, for_all))

    def restore(self, snapshot: object) -> None:
        """Restore it; when it raised `JournalError` it is owed, and may be called again."""
        with shielded(), self.lock, self:
            mark = self._snapshots.check_restorable(snapshot)
            if not mark.savepoint or mark.owner is None:
                self._refuse_undo_of_others(mark)
            self._snapshots.rewind(mark)
            try:
                self.undo.undo(mark)
            except JournalError:
                raise
            except OSError as error:
                raise JournalError(
                    f"The undo in {self.disk.root} failed ({error}). Nothing is lost: remove the cause and "
                    "restore the snapshot again, or open the root again. Until then nothing can be written there."
                ) from error
            finally:
                self._snapshots.lower(self.undo.position)

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        with self.lock:
            if self.undo.entries:
                with self:
                    self.release_locked(snapshot)
            else:
                self._snapshots.release(snapshot)

    def changes(self, since: object) -> FileChanges:
        """What differs, apart from what others did."""
        with self.lock:
            records = self.undo.since(self._snapshots.check(since))
            return Differences(self.disk, reversed(records)).changes() if records else _NO_CHANGES

    def node_at(self, since: object, path: str) -> FileNode | None:
        """What was at the path then, apart from what others did."""
        with self.lock:
            records = self.undo.since(self._snapshots.check(since))
            return Differences(self.disk, reversed(records)).node(path)

    def large_at(self, since: object, path: str) -> LargeFile | None:
        """The large file that was at the path then, apart from what others did."""
        with self.lock:
            records = self.undo.since(self._snapshots.check(since))
            return Differences(self.disk, reversed(records)).large(path)

    def changes_before_restore(self, since: object) -> FileChanges:
        """What differs, asked right before it is restored."""
        return self.changes(since)

    def recover(self) -> None:
        """Undo what a process left that ended in the middle; called when the root is first locked."""
        mirror = Mirror(self.disk)
        try:
            self._recover(mirror)
        finally:
            mirror.close()

    def _recover(self, mirror: Mirror) -> None:
        self.undo.recover()
        try:
            failed = mirror.recover()
        except JournalError:
            raise
        except OSError as error:
            raise JournalError(
                f"{self.disk.root} was left in the middle of a transaction, and undoing it failed ({error}). "
                "Remove the cause and open it again."
            ) from error
        if failed is not None:
            _log.warning(
                "Rolled back what anyone changed in %s since a transaction began: its process ended before it was over",
                self.disk.root,
            )
            refuse_incomplete(self.disk, failed)

    def close(self) -> None:
        """Commit, and give the disk back; an undo that is owed is tried once more, else left to the next open."""
        with self.lock:
            if self.closed and not self.busy:
                return
            self.closed = True
            try:
                if not self.disk.foreign:
                    self._mend()
                    self.busy = True
                    self._release_all()
            finally:
                self._close_disk()
                self.busy = False

    def _release_all(self) -> None:
        """Release all snapshots."""
        self._snapshots.clear()
        self._settle()

    def _close_disk(self) -> None:
        """Close what is open."""
        self.disk.close()

    def push_locked(self, mark: UndoMark) -> HostSnapshot:
        """A snapshot, with the lock held."""
        self.undo.boundary()
        return self._snapshots.push(mark)

    def release_locked(self, snapshot: object) -> None:
        """Let go of it, with the lock held."""
        self._unsettled = True  # interrupted from here on, the next step settles
        released = self._snapshots.release(snapshot)
        self._settle(released)

    def tidy(self) -> None:
        """Finish what failed, was interrupted or was dropped; raises when that fails again."""
        if self.closed:
            raise ValueError(f"The filesystem on {self.disk.root} is closed; open it again.")
        if self.busy or self.undo.owed or self.disk.torn:
            self._mend()
        if self._snapshots.dropped or self._unsettled:
            with self:
                if self._snapshots.collect() or self._unsettled:
                    self._settle()

    def begin_write(self, paths: tuple[str, ...]) -> bool:
        """Find out whose write it is and whether it is recorded; whether a savepoint would undo it.

        Raises `ConflictError` when an open call that is not the writer's has changed one of the paths.
        """
        writer = self.undo.writer = current_owner()
        recorded = saved = foreign = False
        for mark in self._snapshots.live:
            if mark.owner is writer or mark.covers(writer):
                recorded = True
                saved = saved or mark.savepoint
            elif mark.savepoint:
                foreign = True
        self.undo.recording = recorded
        if foreign:
            self.refuse_conflicts(writer, paths)
        return saved

    def refuse_conflicts(self, writer: Owner | None, paths: tuple[str, ...]) -> None:
        """Raise `ConflictError` when an open call that is not the writer's has changed one of the paths."""
        for mark in self._snapshots.live:
            if mark.savepoint and not mark.covers(writer):
                touched = self.undo.touched(mark)
                for path in paths:
                    if touched.overlaps(path):
                        raise conflict(path, mark.owner)

    def seal(self) -> None:
        """What no savepoint covers is final for a recovery."""
        self.undo.seal(self._snapshots.live)

    def _refuse_undo_of_others(self, mark: UndoMark) -> None:
        writer = current_owner()
        if any(other.savepoint and not other.covers(writer) for other in self._snapshots.live):
            for record in self.undo.since(mark):
                self.refuse_conflicts(writer, (record.path,))

    def _mend(self) -> None:
        """Put everything right that a failed or interrupted step left, or raise `JournalError`."""
        interrupted, self.busy = self.busy, True
        try:
            if interrupted:
                self._reconcile()
            self.undo.mend()
            if self.undo.owed:
                self.undo.finish_owed()
                self._unsettled = True
        except OSError as error:
            self.busy = interrupted
            raise JournalError(
                f"An undo in {self.disk.root} is not finished, and trying again failed ({error}). Nothing is lost, but "
                "nothing can be written there until the cause is removed."
            ) from error
        finally:
            self._snapshots.lower(self.undo.position)
        self.busy = False

    def _reconcile(self) -> None:
        """After an interrupt: undo what a write began, and hold no more locks than are needed."""
        if self.began_at is not None and self.undo.position > self.began_at:
            self.undo.owed.append(UndoMark(self.began_at))
        self.began_at = None
        self.disk.reset(self._holds())
        self._unsettled = True
        self.undo.mend()
        self.undo.finish_owed()

    def _holds(self) -> int:
        """How often the root's lock is needed between two steps."""
        return 1 if self.undo.entries else 0

    def _settle(self, released: UndoMark | None = None) -> None:
        self._unsettled = True
        try:
            self.undo.settle(self._snapshots.live, released)
        except OSError as error:
            raise JournalError(
                f"What was written to {self.disk.root} could not be committed ({error}); it is tried again with "
                "the next operation, and rolled back if the process ends before that."
            ) from error
        self._unsettled = False


@final
class WriteOperation:
    """One operation that changes something: alone, all or nothing, with errors that name the path.

    Attributes:
        about: the path that errors name from now on; at first that of the operation.
    """

    __slots__ = ("_paths", "_saved", "_scope", "_snapshot", "_start", "about")

    def __init__(self, scope: UndoScope, paths: tuple[str, ...]) -> None:
        self._scope = scope
        self._paths = paths
        self.about: str = paths[0]
        self._saved = False
        self._snapshot: HostSnapshot | None = None
        self._start = 0

    def __enter__(self) -> WriteOperation:
        all_ = self._scope
        try:
            all_.tidy()
            self._saved = all_.begin_write(self._paths)
            all_.busy = True
            all_.disk.acquire()
        except OSError as error:
            all_.busy = False
            raise explained(error, self.about, all_.disk.root) from error.__cause__
        self._start = all_.began_at = all_.undo.position
        return self

    def begin(self) -> None:
        """From here on it takes more than one step, so a crash must undo the first ones."""
        all_ = self._scope
        all_.undo.recording = True
        self._snapshot = all_.push_locked(UndoMark(all_.undo.position, True))

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        all_ = self._scope
        # An interrupt, here or before, may have left a staged file or a lock behind: the next step looks.
        interrupted = True
        try:
            unsealed = self._seal() if error is None else None
            if (error or unsealed) is not None and all_.undo.position > self._start:
                self._undo_part()
            all_.began_at = None
            if self._snapshot is not None:
                all_.release_locked(self._snapshot)
            interrupted = error is not None and not isinstance(error, Exception)
        except Exception:
            interrupted = False
            raise
        finally:
            all_.disk.release()
            all_.busy = interrupted
        if unsealed is not None:
            raise explained(unsealed, self.about, all_.disk.root) from unsealed.__cause__
        if isinstance(error, OSError) and (told := explained(error, self.about, all_.disk.root)) is not error:
            raise told from error

    def _seal(self) -> OSError | None:
        """Outside of calls a write is final for a recovery as soon as it is done, whatever snapshots there are."""
        all_ = self._scope
        if not self._saved and self._snapshot is None and all_.undo.position > self._start:
            try:
                all_.seal()
            except OSError as error:
                return error
        return None

    def _undo_part(self) -> None:
        all_ = self._scope
        try:
            all_.undo.undo(UndoMark(self._start))
        except OSError:
            _log.exception("A part of a failed write to %s could not be undone yet", all_.disk.root)
