"""When a change to the root is final: the lock, the snapshots and the undo log, brought together."""

from __future__ import annotations

import logging
from threading import RLock
from typing import final

from ..errors import JournalError
from .confine import explained
from .differences import Differences
from .disk import Disk
from .mirror import Mirror
from .protocol import FileChanges
from .savepoints import HostSnapshot, Savepoints
from .undo import UndoLog

_log = logging.getLogger(__name__)

_NO_CHANGES = FileChanges()


class Transactions:
    """What `HostFilesystem` promises about going back. Safe to use from any thread."""

    __slots__ = ("_savepoints", "closed", "disk", "lock", "undo")

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.undo = UndoLog(disk)
        self.lock = RLock()
        self.closed = False
        self._savepoints = Savepoints()
        disk.recover = self.recover

    def writing(self, path: str) -> Writing:
        """To be entered around each operation that changes something."""
        return Writing(self, path)

    def snapshot(self) -> HostSnapshot:
        """A position to go back to."""
        with self.lock:
            if self.closed or self._savepoints.dropped or (self.undo.entries and not self.undo.recording):
                self.tidy()
            return self.step()

    def restore(self, snapshot: object) -> None:
        """Go back; may be called again when it raised `JournalError`."""
        with self.lock:
            mark = self._savepoints.check(snapshot)
            self._savepoints.rewind(mark)
            try:
                self.undo.undo(mark.position)
            except OSError as error:
                raise JournalError(
                    f"Going back failed in {self.disk.root} ({error}). Nothing is lost: remove the cause and "
                    "restore the snapshot again, or open the root again."
                ) from error

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        with self.lock:
            self.unstep(snapshot)

    def changes(self, since: object) -> FileChanges:
        """What differs."""
        with self.lock:
            records = self.undo.since(self._savepoints.check(since).position)
            return Differences(self.disk, reversed(records)).changes() if records else _NO_CHANGES

    def recover(self) -> None:
        """Take back what a process left that ended in the middle; called by whoever locks the root first."""
        mirror = Mirror(self.disk)
        try:
            self._recover(mirror)
        finally:
            mirror.close()

    def _recover(self, mirror: Mirror) -> None:
        self.undo.recover()
        try:
            found = mirror.recover()
        except OSError as error:
            raise JournalError(
                f"{self.disk.root} was left in the middle of a transaction, and going back failed ({error}). "
                "Remove the cause and open it again."
            ) from error
        if found:
            _log.warning(
                "Rolled back what anyone changed in %s since a transaction began: its process ended before it was over",
                self.disk.root,
            )

    def close(self) -> None:
        """Commit, and give the disk back."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                if not self.disk.foreign:
                    self._savepoints.clear()
                    self._settle()
            finally:
                self.disk.close()

    def step(self) -> HostSnapshot:
        """A snapshot, with the lock held."""
        self.undo.boundary()
        self.undo.recording = True
        return self._savepoints.push(self.undo.position)

    def unstep(self, snapshot: object) -> None:
        """Let go of it, with the lock held."""
        if not self._savepoints.release(snapshot):
            return
        if self.undo.entries:
            self._settle()
        else:
            self.undo.recording = bool(self._savepoints.live)

    def tidy(self) -> None:
        """Release what was dropped, and finish a commit that failed; raises when that fails again."""
        if self.closed:
            raise ValueError(f"The filesystem on {self.disk.root} is closed; open it again.")
        if self._savepoints.dropped:
            self._savepoints.collect()
            self._settle()
        elif self.undo.entries and not self.undo.recording:
            self._settle()

    def _settle(self) -> None:
        live = self._savepoints.live
        self.undo.recording = bool(live)
        try:
            self.undo.settle(live)
        except OSError as error:
            raise JournalError(
                f"What was written to {self.disk.root} could not be committed ({error}); it is tried again with "
                "the next operation, and rolled back if the process ends before that."
            ) from error


@final
class Writing:
    """One operation that changes something: alone, all or nothing, with errors that name the path."""

    __slots__ = ("_path", "_snapshot", "_start", "_transactions")

    def __init__(self, transactions: Transactions, path: str) -> None:
        self._transactions = transactions
        self._path = path
        self._snapshot: HostSnapshot | None = None
        self._start = 0

    def __enter__(self) -> Writing:
        all_ = self._transactions
        all_.lock.acquire()
        try:
            all_.tidy()
            all_.disk.acquire()
        except OSError as error:
            all_.lock.release()
            raise explained(error, self._path, all_.disk.root) from error.__cause__
        except BaseException:
            all_.lock.release()
            raise
        self._start = all_.undo.position
        return self

    def begin(self) -> None:
        """From here on it takes more than one step."""
        self._snapshot = self._transactions.step()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        all_ = self._transactions
        try:
            try:
                if error is not None and all_.undo.position > self._start:
                    self._take_back()
                if self._snapshot is not None:
                    all_.unstep(self._snapshot)
            finally:
                all_.disk.release()
        finally:
            all_.lock.release()
        if isinstance(error, OSError) and (told := explained(error, self._path, all_.disk.root)) is not error:
            raise told from error

    def _take_back(self) -> None:
        try:
            self._transactions.undo.undo(self._start)
        except OSError:
            _log.exception("Could not take back a part of a failed write to %s", self._transactions.disk.root)


__all__ = ["Transactions", "Writing"]
