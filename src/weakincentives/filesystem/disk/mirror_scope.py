"""Going back from what anybody wrote: `watch="scan"`."""

from __future__ import annotations

from typing import Final, final

from ...errors import JournalError
from ...fence import Owner
from ...interrupts import shielded
from ..protocol import FileChanges
from .disk_state import Disk
from .mirror import Mirror
from .snapshot_stack import HostSnapshot, Mark, Savepoints
from .undo_scope import Step, Transactions, refuse_incomplete

_UNKNOWN: Final = -1
"""There is no marker, or what it says is not known: a change of it failed or was interrupted."""


@final
class ScanTransactions(Transactions):
    """Snapshots by a copy of the root, which each of them brings up to date.

    Every snapshot, restore and `changes` walks through the whole tree. The root is locked for other writers that
    use `HostFilesystem` from the first snapshot to the release of the last. An undo restores the whole root, whoever
    wrote what: that is what it is for.
    """

    __slots__ = ("_mirror", "_open", "_owed", "_recovers_to", "_scans")

    def __init__(self, disk: Disk, max_copied_bytes: int | None) -> None:
        super().__init__(disk)
        self._mirror = Mirror(disk, max_copied_bytes)
        self._scans = Savepoints()
        self._open = False
        self._owed: Mark | None = None
        self._recovers_to: int | None = _UNKNOWN

    def snapshot(self) -> HostSnapshot:
        """The state of now, others' changes included; it ends with the process."""
        return self._take(savepoint=False)

    def savepoint(self, owner: Owner | None, *, for_all: bool) -> HostSnapshot:  # noqa: ARG002 - it is everybody's
        """The state of now, to which a crash goes back as well."""
        return self._take(savepoint=True)

    def _take(self, *, savepoint: bool) -> HostSnapshot:
        with self.lock:
            self.tidy()
            with Step(self):
                self.disk.acquire()
                try:
                    manifest = self._mirror.refresh()
                    if not self._open:
                        self._open = True
                        self.disk.acquire()
                    mark = Mark(self._mirror.length, savepoint)
                    mark.manifest = manifest
                    taken = self._scans.push(mark)
                    self._mark()
                except JournalError:
                    raise
                except OSError as error:
                    raise self._failed("copied", error) from error
                finally:
                    self.disk.release()
                return taken

    def restore(self, snapshot: object) -> None:
        """Go back, whoever changed what; when it raised `JournalError` it is owed, and may be called again."""
        with shielded(), self.lock, Step(self):
            mark = self._scans.check_restorable(snapshot)
            self._scans.rewind(mark)
            self.disk.check()
            self._owed = mark
            try:
                failed = self._pay()
            except OSError as error:
                raise self._failed("restored", error) from error
            refuse_incomplete(self.disk, failed)

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        with shielded(), self.lock, Step(self):
            if self._scans.release(snapshot):
                self._finish()

    def changes(self, since: object) -> FileChanges:
        """What differs, whoever changed it."""
        with self.lock:
            return self._mirror.changes(self._scans.check(since).manifest)

    def tidy(self) -> None:
        """Finish an undo that is owed, and release what was dropped."""
        super().tidy()
        if self._owed is not None:
            self._mend()
        if self._open and (self._scans.dropped or not self._scans.live or self._recovers_to == _UNKNOWN):
            with Step(self):
                self._scans.collect()
                self._finish()

    def recover(self) -> None:
        """Undo what a process left that ended in the middle."""
        self._recover(self._mirror)

    def _keep_all(self) -> None:
        self._scans.clear()
        self._finish()
        super()._keep_all()

    def _give_back(self) -> None:
        self._mirror.close()  # the copy stays for the next time
        super()._give_back()

    def _mend(self) -> None:
        super()._mend()
        if self._owed is not None:
            with Step(self):
                try:
                    failed = self._pay()
                except OSError as error:
                    raise self._failed("restored", error) from error
            refuse_incomplete(self.disk, failed)

    def _pay(self) -> list[str]:
        """Finish the undo that is owed; the paths that can never be put back, after which it is over all the same."""
        assert self._owed is not None
        self._mark()  # a crash in the middle goes on where this stops
        failed = self._mirror.restore(self._owed.manifest)
        self._owed = None
        self._mark()
        return failed

    def _holds(self) -> int:
        return super()._holds() + (1 if self._open else 0)

    def _mark(self) -> None:
        """Write down what a crash goes back to: the oldest savepoint, or an undo that was begun."""
        wanted = [mark.position for mark in self._scans.live if mark.savepoint]
        if self._owed is not None:
            wanted.append(self._owed.position)
        position = min(wanted, default=None)
        if position != self._recovers_to:
            self._recovers_to = _UNKNOWN
            self._mirror.begin(position)
            self._recovers_to = position

    def _finish(self) -> None:
        """Commit what no live snapshot can go back to, unless an undo is owed."""
        if not self._open or self._owed is not None:
            return
        self.disk.check()
        try:
            if self._scans.live:
                self._mark()
            else:
                self._recovers_to = _UNKNOWN
                self._mirror.commit()
                self._open = False
                self.disk.release()
        except OSError as error:
            raise self._failed("committed", error) from error

    def _failed(self, what: str, error: OSError) -> JournalError:
        return JournalError(
            f"{self.disk.root} could not be {what} ({error}). Remove the cause and try again; if the process ends "
            "before that, it is rolled back when the root is next opened."
        )


__all__ = ["ScanTransactions"]
