"""Going back from what anybody wrote: `watch="scan"`."""

from __future__ import annotations

from typing import final

from ..errors import JournalError
from .disk import Disk
from .mirror import Mirror
from .protocol import FileChanges
from .savepoints import HostSnapshot, Savepoints
from .transactions import Transactions


@final
class ScanTransactions(Transactions):
    """Snapshots by a copy of the root, which each of them brings up to date.

    Every snapshot, restore and `changes` walks through the whole tree. The root is locked for other writers that
    use `HostFilesystem` from the first snapshot to the release of the last.
    """

    __slots__ = ("_base", "_mirror", "_open", "_scans")

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self._mirror = Mirror(disk)
        self._scans = Savepoints()
        self._open = False
        self._base = 0

    def snapshot(self) -> HostSnapshot:
        """The state of now, others' changes included."""
        with self.lock:
            self.tidy()
            self.disk.acquire()
            try:
                manifest = self._mirror.refresh()
                if not self._open:
                    self._base = self._mirror.length
                    self._mirror.begin(self._base)
                    self.disk.acquire()
                    self._open = True
            except OSError as error:
                raise self._failed("copied", error) from error
            finally:
                self.disk.release()
            return self._scans.push(self._mirror.length, manifest)

    def restore(self, snapshot: object) -> None:
        """Go back, whoever changed what; may be called again when it raised `JournalError`."""
        with self.lock:
            mark = self._scans.check(snapshot)
            self._scans.rewind(mark)
            self.disk.check()
            try:
                self._mirror.restore(mark.manifest)
            except JournalError:
                raise
            except OSError as error:
                raise self._failed("restored", error) from error

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        with self.lock:
            if self._scans.release(snapshot):
                self._finish()

    def changes(self, since: object) -> FileChanges:
        """What differs, whoever changed it."""
        with self.lock:
            return self._mirror.changes(self._scans.check(since).manifest)

    def tidy(self) -> None:
        """Release what was dropped."""
        super().tidy()
        if self._scans.dropped:
            self._scans.collect()
        self._finish()

    def recover(self) -> None:
        """Take back what a process left that ended in the middle."""
        self._recover(self._mirror)

    def close(self) -> None:
        """Commit, and give the disk back; the copy stays for the next time."""
        with self.lock:
            try:
                if not self.closed and not self.disk.foreign:
                    self._scans.clear()
                    self._finish()
            finally:
                self._mirror.close()
                super().close()

    def _finish(self) -> None:
        """Commit what no live snapshot can go back to: everything, or what is older than the oldest."""
        if not self._open:
            return
        live = self._scans.live
        try:
            if live and live[0].position != self._base:
                self.disk.check()
                self._mirror.begin(live[0].position)
                self._base = live[0].position
            elif not live:
                self.disk.check()
                self._mirror.commit()
                self._open = False
                self.disk.release()
        except JournalError:
            raise
        except OSError as error:
            raise self._failed("committed", error) from error

    def _failed(self, what: str, error: OSError) -> JournalError:
        return JournalError(
            f"{self.disk.root} could not be {what} ({error}). Remove the cause and try again; if the process ends "
            "before that, it is rolled back when the root is next opened."
        )


__all__ = ["ScanTransactions"]
