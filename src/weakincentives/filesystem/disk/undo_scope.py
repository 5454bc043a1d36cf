"""When a change to the root is final: the lock, the snapshots and the undo log, brought together.

| state of a root | a write or snapshot | `restore` fails | release of the last savepoint | `kill -9`, then open |
|---|---|---|---|---|
| idle: no snapshot | is not recorded | | | nothing is undone |
| bare: only bare snapshots | is recorded, for undo by hand | owed | | nothing is undone |
| open: a savepoint lives | is recorded | owed | the commit; older bare snapshots can still go back | undone |
| owed: an undo was begun | finishes the undo first, or is refused | stays owed | commits nothing | undone |
| torn: a record may be left over | cuts it first, or is refused | owed | cuts it first | it is recognised |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import RLock
from typing import final

from ...errors import JournalError
from ...fence import Owner, current_owner
from ...interrupts import shielded
from ..ownership import conflict
from ..protocol import FileChanges
from .confine import explained
from .differences import Differences
from .disk_state import Disk
from .mirror import Mirror
from .mutations import Mutations
from .snapshot_stack import HostSnapshot, Mark, Savepoints
from .undo_log import UndoLog

_log = logging.getLogger(__name__)

_NO_CHANGES = FileChanges()


class Transactions:
    """What `HostFilesystem` promises about going back. Safe to use from any thread.

    What changes something happens with `lock` held, and inside `Writing` or a `Step`.
    """

    __slots__ = ("_savepoints", "_unsettled", "began_at", "busy", "closed", "disk", "lock", "mutations", "undo")

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.undo = UndoLog(disk)
        self.mutations = Mutations(disk, self.undo)
        self.lock = RLock()
        self.closed = False
        # Left set by an interrupt: a step that did not come to its end, and where the write in it began.
        self.busy = False
        self.began_at: int | None = None
        self._savepoints = Savepoints()
        self._unsettled = False
        disk.recover = self.recover

    def writing(self, path: str, *others: str) -> Writing:
        """To be entered around each operation that changes something at these paths, with the lock held."""
        return Writing(self, (path, *others))

    def snapshot(self) -> HostSnapshot:
        """A position to go back to, which ends with the process."""
        with self.lock:
            self.tidy()
            owner = current_owner()
            for_all = owner is not None and any(mark.for_all and mark.owner is owner for mark in self._savepoints.live)
            return self.step(Mark(self.undo.position, False, owner, for_all))

    def savepoint(self, owner: Owner | None, *, for_all: bool) -> HostSnapshot:
        """A position that a crash goes back to as well."""
        with self.lock:
            self.tidy()
            return self.step(Mark(self.undo.position, True, owner, for_all))

    def restore(self, snapshot: object) -> None:
        """Go back; when it raised `JournalError` it is owed, and may be called again."""
        with shielded(), self.lock, Step(self):
            mark = self._savepoints.check_restorable(snapshot)
            if not mark.savepoint or mark.owner is None:
                self._refuse_undo_of_others(mark)
            self._savepoints.rewind(mark)
            try:
                self.undo.undo(mark)
            except JournalError:
                raise
            except OSError as error:
                raise JournalError(
                    f"Going back failed in {self.disk.root} ({error}). Nothing is lost: remove the cause and "
                    "restore the snapshot again, or open the root again. Until then nothing can be written there."
                ) from error
            finally:
                self._savepoints.lower(self.undo.position)

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        with self.lock:
            if self.undo.entries:
                with Step(self):
                    self.unstep(snapshot)
            else:
                self._savepoints.release(snapshot)

    def changes(self, since: object) -> FileChanges:
        """What differs, apart from what others did."""
        with self.lock:
            records = self.undo.since(self._savepoints.check(since))
            return Differences(self.disk, reversed(records)).changes() if records else _NO_CHANGES

    def recover(self) -> None:
        """Undo what a process left that ended in the middle; called by whoever locks the root first."""
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
                f"{self.disk.root} was left in the middle of a transaction, and going back failed ({error}). "
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
                    self._keep_all()
            finally:
                self._give_back()
                self.busy = False

    def _keep_all(self) -> None:
        """Release all snapshots."""
        self._savepoints.clear()
        self._settle()

    def _give_back(self) -> None:
        """Close what is open."""
        self.disk.close()

    def step(self, mark: Mark) -> HostSnapshot:
        """A snapshot, with the lock held."""
        self.undo.boundary()
        return self._savepoints.push(mark)

    def unstep(self, snapshot: object) -> None:
        """Let go of it, with the lock held."""
        self._unsettled = True  # interrupted from here on, the next step settles
        released = self._savepoints.release(snapshot)
        self._settle(released)

    def tidy(self) -> None:
        """Finish what failed, was interrupted or was dropped; raises when that fails again."""
        if self.closed:
            raise ValueError(f"The filesystem on {self.disk.root} is closed; open it again.")
        if self.busy or self.undo.owed or self.disk.torn:
            self._mend()
        if self._savepoints.dropped or self._unsettled:
            with Step(self):
                if self._savepoints.collect() or self._unsettled:
                    self._settle()

    def begin_write(self, paths: tuple[str, ...]) -> bool:
        """Find out whose write it is and whether it is recorded; whether a savepoint would undo it.

        Raises `ConflictError` when an open call that is not the writer's has changed one of the paths.
        """
        writer = self.undo.writer = current_owner()
        recorded = saved = foreign = False
        for mark in self._savepoints.live:
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
        for mark in self._savepoints.live:
            if mark.savepoint and not mark.covers(writer):
                touched = self.undo.touched(mark)
                for path in paths:
                    if touched.overlaps(path):
                        raise conflict(path, mark.owner)

    def seal(self) -> None:
        """What no savepoint covers is final for a recovery."""
        self.undo.seal(self._savepoints.live)

    def _refuse_undo_of_others(self, mark: Mark) -> None:
        writer = current_owner()
        if any(other.savepoint and not other.covers(writer) for other in self._savepoints.live):
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
                self.undo.pay()
                self._unsettled = True
        except OSError as error:
            self.busy = interrupted
            raise JournalError(
                f"An undo in {self.disk.root} is not finished, and trying again failed ({error}). Nothing is lost, but "
                "nothing can be written there until the cause is removed."
            ) from error
        finally:
            self._savepoints.lower(self.undo.position)
        self.busy = False

    def _reconcile(self) -> None:
        """After an interrupt: undo what a write began, and hold no more locks than are needed."""
        if self.began_at is not None and self.undo.position > self.began_at:
            self.undo.owed.append(Mark(self.began_at))
        self.began_at = None
        self.disk.reset(self._holds())
        self._unsettled = True
        self.undo.mend()
        self.undo.pay()

    def _holds(self) -> int:
        """How often the root's lock is needed between two steps."""
        return 1 if self.undo.entries else 0

    def _settle(self, released: Mark | None = None) -> None:
        self._unsettled = True
        try:
            self.undo.settle(self._savepoints.live, released)
        except OSError as error:
            raise JournalError(
                f"What was written to {self.disk.root} could not be committed ({error}); it is tried again with "
                "the next operation, and rolled back if the process ends before that."
            ) from error
        self._unsettled = False


@final
class Step:
    """Something that takes several steps; one that is interrupted is noticed by the next."""

    __slots__ = ("_transactions",)

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __enter__(self) -> None:
        if self._transactions.busy:
            self._transactions.tidy()
        self._transactions.busy = True

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self._transactions.busy = False


@final
class Writing:
    """One operation that changes something: alone, all or nothing, with errors that name the path.

    Attributes:
        about: the path that errors name from now on; at first that of the operation.
    """

    __slots__ = ("_paths", "_saved", "_snapshot", "_start", "_transactions", "about")

    def __init__(self, transactions: Transactions, paths: tuple[str, ...]) -> None:
        self._transactions = transactions
        self._paths = paths
        self.about = paths[0]
        self._saved = False
        self._snapshot: HostSnapshot | None = None
        self._start = 0

    def __enter__(self) -> Writing:
        all_ = self._transactions
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
        all_ = self._transactions
        all_.undo.recording = True
        self._snapshot = all_.step(Mark(all_.undo.position, True))

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        all_ = self._transactions
        # An interrupt, here or before, may have left a staged file or a lock behind: the next step looks.
        interrupted = True
        try:
            unsealed = self._seal() if error is None else None
            if (error or unsealed) is not None and all_.undo.position > self._start:
                self._take_back()
            all_.began_at = None
            if self._snapshot is not None:
                all_.unstep(self._snapshot)
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
        all_ = self._transactions
        if not self._saved and self._snapshot is None and all_.undo.position > self._start:
            try:
                all_.seal()
            except OSError as error:
                return error
        return None

    def _take_back(self) -> None:
        all_ = self._transactions
        try:
            all_.undo.undo(Mark(self._start))
        except OSError:
            _log.exception("A part of a failed write to %s could not be undone yet", all_.disk.root)


def refuse_incomplete(disk: Disk, paths: Sequence[str]) -> None:
    """Raise `JournalError` that names what could not be put back, if there is any: it never will be, so it is over."""
    if paths:
        shown = ", ".join(ascii(path) for path in paths[:5])
        raise JournalError(
            f"{len(paths)} path(s) in {disk.root} could not be put back, among them {shown}: "
            "they could not be read before, were larger than max_copied_bytes=, or are sockets or devices. "
            "All others were."
        )


__all__ = ["Step", "Transactions", "Writing", "refuse_incomplete"]
