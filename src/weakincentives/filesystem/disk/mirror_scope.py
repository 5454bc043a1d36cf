"""Snapshots that also undo what other programs changed: `watch="scan"`."""

from __future__ import annotations

from typing import Final, final

from ...errors import JournalError
from ...fence import Owner
from ...interrupts import shielded
from ..ownership import UndoMark
from ..protocol import FileChanges, FileNode, LargeFile
from .disk_root import DiskRoot
from .manifest import Manifest
from .mirror import Mirror, refuse_incomplete
from .undo_scope import HostSnapshot, SnapshotStack, UndoScope, older_than_open

_UNKNOWN: Final = -1
"""There is no marker, or what it says is not known: a change of it failed or was interrupted."""


@final
class MirrorScope(UndoScope):
    """Snapshots by a copy of the root, which each of them brings up to date.

    Every snapshot, restore and `changes` walks through the whole tree, but for a restore right after
    `changes_before_restore`. The root is locked for other writers that
    use `HostFilesystem` from the first snapshot to the release of the last. An undo restores the whole root,
    changes of other programs included: that is what it is for.

    A savepoint of a call that changes files only through the API needs neither copy nor walk: it is one of the
    undo log, as without `watch="scan"`.
    """

    __slots__ = ("_mirror", "_open", "_owed", "_recovers_to", "_scans", "_walk")

    def __init__(self, disk: DiskRoot, max_copied_bytes: int | None) -> None:
        super().__init__(disk)
        self._mirror = Mirror(disk, max_copied_bytes)
        self._scans = SnapshotStack()
        self._open = False
        self._owed: UndoMark | None = None
        self._recovers_to: int | None = _UNKNOWN
        # What `changes_before_restore` found, until anything but that restore happens.
        self._walk: tuple[UndoMark, Manifest] | None = None

    def snapshot(self) -> HostSnapshot:
        """The state of now, others' changes included; it ends with the process."""
        return self._take(savepoint=False)

    def savepoint(self, owner: Owner | None, *, for_all: bool) -> HostSnapshot:
        """The state of now, to which a crash is rolled back as well."""
        if owner is not None:
            if owner.only_through_api:
                return super().savepoint(owner, for_all=for_all)
            self._refuse_inside_unwatched(owner)
        return self._take(savepoint=True)

    def _refuse_inside_unwatched(self, owner: Owner) -> None:
        """Undoing the call around it would not undo what programs do in this one, so this one must not begin."""
        if any(mark.owner is not None and owner.inside(mark.owner) for mark in self._snapshots.live):
            raise JournalError(
                "This tool may start programs, but it is called inside one that is read-only or declares "
                "ToolAnnotations(starts_programs=False). Declare the same of this tool, or take it from the other one."
            )

    def _is_logged(self, snapshot: object) -> bool:
        """Whether it is a savepoint of the undo log."""
        return isinstance(snapshot, HostSnapshot) and snapshot.dropped is self._snapshots.dropped

    def _take(self, *, savepoint: bool) -> HostSnapshot:
        with self.lock:
            self.tidy()
            with self:
                self.disk.acquire()
                try:
                    manifest = self._mirror.refresh()
                    if not self._open:
                        self._open = True
                        self.disk.acquire()
                    mark = UndoMark(self._mirror.length, savepoint)
                    mark.manifest, mark.logged = manifest, tuple(self._snapshots.live)
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
        """Restore the whole root; when it raised `JournalError` it is owed, and may be called again."""
        if self._is_logged(snapshot):
            self._walk = None
            super().restore(snapshot)
            return
        with shielded(), self.lock, self:
            mark = self._scans.check_restorable(snapshot)
            if not mark.savepoint and any(newer not in mark.logged for newer in self._snapshots.live):
                raise older_than_open()
            self._scans.rewind(mark)
            self.disk.check()
            self._owed = mark
            walk, self._walk = self._walk, None
            try:
                failed = self._finish_owed(walk[1] if walk is not None and walk[0] is mark else None)
            except OSError as error:
                raise self._failed("restored", error) from error
            refuse_incomplete(self.disk, failed)

    def release(self, snapshot: object) -> None:
        """Let go of it."""
        if self._is_logged(snapshot):
            super().release(snapshot)
            return
        with shielded(), self.lock, self:
            if self._scans.release(snapshot):
                self._finish()

    def changes(self, since: object) -> FileChanges:
        """What differs, no matter which program changed it."""
        if self._is_logged(since):
            return super().changes(since)
        with self.lock:
            self._walk = None
            return self._mirror.changes(self._scans.check(since).manifest, self._mirror.look())

    def node_at(self, since: object, path: str) -> FileNode | None:
        """What was at the path then, from the copy."""
        if self._is_logged(since):
            return super().node_at(since, path)
        with self.lock:
            return self._mirror.node(self._scans.check(since).manifest, path)

    def large_at(self, since: object, path: str) -> LargeFile | None:
        """The large file that was at the path then, from the copy."""
        if self._is_logged(since):
            return super().large_at(since, path)
        with self.lock:
            return self._mirror.large(self._scans.check(since).manifest, path)

    def changes_before_restore(self, since: object) -> FileChanges:
        """As `changes`; keeps its walk for the `restore` that follows."""
        if self._is_logged(since):
            return super().changes(since)
        with shielded(), self.lock, self:
            mark = self._scans.check(since)
            self._walk = None
            current = self._mirror.look(mark.manifest)
            found = self._mirror.changes(mark.manifest, current)
            self._walk = mark, current
            return found

    def tidy(self) -> None:
        """Finish an undo that is owed, and release what was dropped."""
        self._walk = None  # called before each write and snapshot, after which the walk says too little
        super().tidy()
        if self._owed is not None:
            self._mend()
        if self._open and (self._scans.dropped or not self._scans.live or self._recovers_to == _UNKNOWN):
            with self:
                self._scans.collect()
                self._finish()

    def recover(self) -> None:
        """Undo what a process left that ended in the middle."""
        self._recover(self._mirror)

    def _release_all(self) -> None:
        self._scans.clear()
        self._finish()
        super()._release_all()

    def _close_disk(self) -> None:
        self._mirror.close()  # the copy stays for the next time
        super()._close_disk()

    def _mend(self) -> None:
        super()._mend()
        if self._owed is not None:
            with self:
                try:
                    failed = self._finish_owed()
                except OSError as error:
                    raise self._failed("restored", error) from error
            refuse_incomplete(self.disk, failed)

    def _finish_owed(self, current: Manifest | None = None) -> list[str]:
        """Finish the undo that is owed; the paths that can never be restored, after which it is over all the same."""
        assert self._owed is not None
        # Before the first change: a crash in the middle of the restore must find a marker that says to finish it.
        self._mark()
        failed = self._mirror.restore(self._owed.manifest, current)
        self._owed = None
        self._mark()
        return failed

    def _holds(self) -> int:
        return super()._holds() + (1 if self._open else 0)

    def _mark(self) -> None:
        """Write down what a crash is rolled back to: the oldest savepoint, or an undo that was begun."""
        wanted = [mark.position for mark in self._scans.live if mark.savepoint]
        if self._owed is not None:
            wanted.append(self._owed.position)
        position = min(wanted, default=None)
        if position != self._recovers_to:
            self._recovers_to = _UNKNOWN
            self._mirror.begin(position)
            self._recovers_to = position

    def _finish(self) -> None:
        """Commit what no live snapshot can undo, unless an undo is owed."""
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
