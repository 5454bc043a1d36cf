"""The changes that can still be undone, and until when: what is in the journal, and what of that is final.

The entries in memory are the truth. Where the file says more (an append failed or was interrupted), it is cut before
anything else happens. Nothing here takes room on the disk except appending a record.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from ...errors import JournalError
from ...fence import Owner
from ..ownership import TouchedPaths, UndoMark
from ..paths import split
from .disk_root import DiskRoot
from .journal import Record, Span
from .reversal import Reversal

_log = logging.getLogger(__name__)

_NEVER: Final = object()


@final
class Change:
    """A recorded change. `void`: recovery passes over it. `undone`: nothing but a gap between those that are not."""

    __slots__ = ("owner", "record", "span", "undone", "void")

    def __init__(self, span: Span, record: Record, owner: Owner | None) -> None:
        self.span: Span = span
        self.record: Record = record
        self.owner: Owner | None = owner
        self.void: bool = False
        self.undone: bool = False


@final
class UndoLog:
    """Records changes, undoes them, and lets go of those that are final. Its caller holds a lock.

    Positions count changes since the object was made. `entries` are those that can be undone; while there are any, the
    root is locked for other processes. `owed` are undos that were begun and not finished: until they are, nothing is
    final.

    Attributes:
        writer: whose write is under way; set by who begins one.
        recording: whether that write can be undone later.
    """

    __slots__ = (
        "_base",
        "_disk",
        "_fresh",
        "_garbage",
        "_reversal",
        "_watched",
        "entries",
        "owed",
        "recording",
        "writer"
    )  # fmt: skip

    def __init__(self, disk: DiskRoot) -> None:
        self._disk = disk
        self._reversal = Reversal(disk)
        self._base = 0
        self._fresh: dict[str, Owner | None] = {}
        self._garbage: list[str] = []
        self._watched: list[UndoMark] = []  # whose touched paths are complete; none of them after something was undone
        self.entries: list[Change] = []
        self.owed: list[UndoMark] = []
        self.recording: bool = False
        self.writer: Owner | None = None

    @property
    def position(self) -> int:
        """Where the next change will be."""
        return self._base + len(self.entries)

    def since(self, mark: UndoMark) -> list[Record]:
        """The changes that the mark covers, oldest first."""
        return [change.record for change in self._own(mark)]

    def touched(self, mark: UndoMark) -> TouchedPaths:
        """The paths of the changes that the mark covers."""
        found = mark.touched
        if found is None or found.seen > self.position or mark not in self._watched:
            found = mark.touched = TouchedPaths(mark.position)
            self._watched.append(mark)
        for change in self.entries[max(found.seen - self._base, 0) :]:
            if not change.undone and mark.covers(change.owner):
                found.add(change.record.path)
                if change.record.target:
                    found.add(change.record.target)
        found.seen = self.position
        return found

    def _own(self, mark: UndoMark) -> list[Change]:
        changes = self.entries[max(mark.position - self._base, 0) :]
        return [change for change in changes if not change.undone and mark.covers(change.owner)]

    # --- recording

    def boundary(self) -> None:
        """From here on everything is kept again, even what was kept before."""
        if self._fresh:
            self._fresh.clear()

    def must_keep(self, path: str) -> bool:
        """Whether a write to the path has to be recorded: not if this writer has just replaced it before."""
        return self.recording and self._fresh.get(path, _NEVER) is not self.writer

    def wrote(self, path: str) -> None:
        """The path holds what this writer wrote."""
        if self.recording:
            self._fresh[path] = self.writer

    def record(self, record: Record) -> None:
        """Write it down before it happens. When that fails nothing of it stays, or the journal is torn."""
        if not self.entries:
            self._disk.acquire()  # held until the last entry goes: another writer must not build on what may be undone
        try:
            # Before the change itself: the other way round, a crash in between leaves a change that nothing undoes.
            span = self._disk.journal.append(record)
            self.entries.append(Change(span, record, self.writer))
        except BaseException:
            if self.entries and self.entries[-1].record is record:
                raise  # interrupted right behind it: undone with the rest of the write
            self._disk.journal.torn = True
            self._garbage.append(record.image)
            with suppress(OSError):
                self._mend()
            if not self.entries:
                self._disk.release()
            raise
        if record.operation in {"delete", "move"}:
            self._fresh.clear()

    def withdraw(self, staged: str) -> None:
        """What was staged is not put in place after all.

        Its record goes first: the staged file is the proof that nothing happened, and stays while the record may.
        """
        newest = self.entries[-1] if self.entries else None
        if newest is not None and newest.record.staged == staged:
            try:
                if not self._reversal.is_there(staged, self._disk.state.fd):
                    return  # it was put in place; undone with the rest of the write
                self._drop(newest)
            except OSError:
                return  # the same, when the disk allows it
            self._garbage.append(newest.record.image)
        self._garbage.append(staged)
        with suppress(OSError):
            self.mend()

    def mend(self) -> None:
        """Cut what a failed append left in the journal, then remove what nothing needs any more."""
        if self._disk.torn:
            if self.entries:
                self._mend()
            else:
                self._disk.acquire()  # another process may have written since: this looks, and recovers
                try:
                    self._mend()
                finally:
                    self._disk.release()
        if self._garbage:
            self._purge()

    def _mend(self) -> None:
        if self._disk.torn:  # not when a recovery has just emptied it
            self._disk.journal.mend(self.entries[-1].span.end if self.entries else 0)

    def _purge(self) -> None:
        while self._garbage:
            if name := self._garbage[-1]:
                self._disk.state.purge(name)
            self._garbage.pop()

    # --- the end of a transaction

    def settle(self, live: Sequence[UndoMark], released: UndoMark | None = None) -> None:
        """Let go of what no live mark can undo; without any, that is the commit.

        Does nothing while an undo is owed. `released` is the mark that has just gone, None when it may be several.
        """
        if not self.entries or self.owed:
            return
        self._disk.check()
        self.mend()
        lowest = live[0].position if live else self.position
        if lowest >= self.position:
            self._commit()
            return
        if released is None or not any(mark.savepoint and _holds(mark, released) for mark in live):
            self.seal(live)
        if lowest > self._base:
            self._forget(lowest)

    def seal(self, live: Sequence[UndoMark]) -> None:
        """Have recovery leave alone what no live savepoint covers; bare marks can still undo it."""
        first = next((mark.position for mark in live if mark.savepoint), self.position)
        kept = self.entries[max(first - self._base, 0) :]
        journal = self._disk.journal
        journal.set_floor(kept[0].span.start if kept else journal.end)
        for position, change in enumerate(kept, max(first, self._base)):
            holders = [mark for mark in live if mark.position <= position and mark.covers(change.owner)]
            if change.void or any(mark.savepoint for mark in holders):
                continue
            journal.set_void(change.span, void=True)
            change.void = True
            if not holders:
                change.undone = True
                self._watched.clear()
                self._garbage.append(change.record.image)
        journal.sync()
        self._purge()

    def _commit(self) -> None:
        # This one call is the commit. Images go only afterwards: until it has happened, an undo needs all of them.
        self._disk.journal.cut(0)
        done, self.entries = self.entries, []
        self._base += len(done)
        self._fresh.clear()
        self._watched.clear()
        self._garbage += [change.record.image for change in done]
        try:
            self._disk.journal.sync()
            self._purge()
        finally:
            self._disk.release()

    def _forget(self, lowest: int) -> None:
        """The oldest mark went, newer ones stay: what is older than those is final."""
        count = lowest - self._base
        self._garbage += [change.record.image for change in self.entries[:count]]
        del self.entries[:count]
        self._base = lowest
        self._purge()

    # --- undoing

    def undo(self, mark: UndoMark) -> None:
        """Undo what the mark covers. When it raises it is owed: to be called again, and goes on where it stopped."""
        own = self._own(mark)
        if not own and mark not in self.owed:
            return
        self._disk.acquire()
        try:
            if mark not in self.owed:
                self.owed.append(mark)  # before the first step: from here on nothing may be committed
            self.mend()
            self._fresh.clear()
            self._watched.clear()
            if own:
                self._reopen(own)
            while own:
                # First the disk, then the record: an undo that is cut off in between is done again, which is harmless.
                names = self._reversal.undo(own[-1].record)
                self._drop(own.pop())
                self._garbage += names  # only now: what was staged is the proof for as long as the record is there
            self._disk.journal.sync()
            self.owed = [other for other in self.owed if other is not mark and not _holds(mark, other)]
            self._purge()
        finally:
            self._disk.release()

    def finish_owed(self) -> None:
        """Finish the undos that were begun, and remove what they left; raises when the disk still refuses."""
        while self.owed:
            self.undo(self.owed[-1])
        self._disk.sweep({name for change in self.entries for name in (change.record.image, change.record.staged)})

    def _reopen(self, own: list[Change]) -> None:
        """Have recovery finish this undo, if it does not come to its end: a bare mark's changes were final for it."""
        journal = self._disk.journal
        for change in own:
            if change.void:
                journal.set_void(change.span, void=False)
                change.void = False
        if own[0].span.start < journal.floor:
            journal.set_floor(own[0].span.start)

    def _drop(self, change: Change) -> None:
        """Take the record of a change that is undone out of the journal; one in the middle is made void."""
        if change is not self.entries[-1]:
            self._disk.journal.set_void(change.span, void=True)
            change.void = change.undone = True
            return
        count = len(self.entries) - 1
        while count and self.entries[count - 1].undone:
            count -= 1
        self._disk.journal.cut(self.entries[count].span.start if count else 0)
        del self.entries[count:]
        if not count:
            self._disk.release()

    def recover(self) -> None:
        """Undo what a process left that ended in the middle; its caller holds the lock."""
        found = self._disk.journal.load()
        try:
            for span, record in reversed(found):
                if self._reversal.is_authentic(record):
                    self._reversal.undo(record)
                else:
                    self._disk.state.put_aside(record.image)
                self._disk.journal.cut(span.start)
            self._disk.journal.cut(0)
            self._disk.journal.sync()
        except OSError as error:
            raise JournalError(
                f"{self._disk.root} was left in the middle of a transaction, and undoing it failed ({error}). "
                f"Nothing is lost: it is kept in {self._disk.state.path}. Remove the cause and open it again."
            ) from error
        self._disk.state.sweep()
        if found:
            _log.warning(
                "Rolled back %d change(s) in %s: a process ended before its transaction was over",
                len(found),
                self._disk.root,
            )


def _holds(outer: UndoMark, inner: UndoMark) -> bool:
    """Whether all that the inner mark covers is undone with the outer one."""
    return inner is outer or (outer.position <= inner.position and outer.covers(inner.owner))


# Changes to the root that can be undone: each is one system call, recorded before it happens.
#
# What was there before is kept as a hard link in the vault (or moved there), never copied: the API never
# writes in place, so the old inode stays as it was and an undo is a rename.


_NO_LINKS: Final = {errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


@final
class Mutations:
    """Performs the changes of one root. Its caller holds the lock, and undoes what one that raises has recorded."""

    __slots__ = ("_disk", "_log", "_sys")

    def __init__(self, disk: DiskRoot, log: UndoLog) -> None:
        self._disk = disk
        self._log = log
        self._sys = disk.sys

    def put(self, path: str, at: int, name: str, staged: str, old: os.stat_result | None) -> None:
        """Move what was staged to its place; `old` is the file that is there now, or None.

        What was staged belongs to this call: it is removed when it cannot be put in place.
        """
        try:
            times = self._times(path, at)
            if self._log.must_keep(path):
                if old is None:
                    self._log.record(Record("create", path, staged=staged, times=times))
                else:
                    self._keep(path, at, name, staged, times=times, old=old)
            self._sys.rename(staged, name, source_fd=self._disk.state.fd, target_fd=at)
        except BaseException:
            self._log.withdraw(staged)
            raise
        self._disk.sync(at)
        self._log.wrote(path)

    def remove(self, path: str, at: int, name: str, old: os.stat_result) -> None:
        """Take away a file, symlink or whole tree."""
        times = (*self._times(path, at), *_own_time(path, old))
        if not self._log.recording:
            self._remove_for_good(at, name, old)
        else:
            image = self._disk.state.new_name("image")
            mode = self._locked_mode(old)
            size = old.st_size if stat.S_ISREG(old.st_mode) else -1
            self._log.record(Record("delete", path, "", "", image, old.st_ino, mode, times, size, old.st_mtime_ns))
            self._unlock_mode(name, at, mode)
            self._sys.rename(name, image, source_fd=at, target_fd=self._disk.state.fd)
        self._disk.sync(at)

    def move(self, path: str, at: int, target: str, to: int) -> None:
        """Move a file, symlink or whole tree to where nothing is."""
        name, target_name = split(path)[1], split(target)[1]
        old = self._sys.stat(name, dir_fd=at)
        mode = self._locked_mode(old) if at != to else -1
        times = (*self._times(path, at), *self._times(target, to), *_own_time(path, old))
        if self._log.recording:
            self._log.record(Record("move", path, target, inode=old.st_ino, mode=mode, times=times))
        self._unlock_mode(name, at, mode)
        try:
            self._sys.rename(name, target_name, source_fd=at, target_fd=to)
        except OSError:
            self._unlock_mode(name, at, mode, to=mode)
            raise
        self._unlock_mode(target_name, to, mode, to=mode)
        self._disk.sync(at)
        if to != at:
            self._disk.sync(to)

    def _keep(
        self, path: str, at: int, name: str, staged: str, *, times: tuple[tuple[str, int], ...], old: os.stat_result
    ) -> None:
        state = self._disk.state
        inode, size, mtime = old.st_ino, old.st_size, old.st_mtime_ns
        image = state.new_name("image")
        try:
            self._sys.link(name, image, source_fd=at, target_fd=state.fd)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No second name can be made: move the only one. For a moment nothing is at the path.
            self._log.record(Record("delete", path, "", "", image, inode, -1, times, size, mtime))
            self._sys.rename(name, image, source_fd=at, target_fd=state.fd)
            self._log.record(Record("create", path, staged=staged, times=times))
            return
        self._log.record(Record("replace", path, "", staged, image, inode, -1, times, size, mtime))

    def _remove_for_good(self, at: int, name: str, old: os.stat_result) -> None:
        if not stat.S_ISDIR(old.st_mode):
            self._sys.unlink(name, dir_fd=at)
            return
        with suppress(OSError):
            self._sys.rmdir(name, dir_fd=at)
            return
        trash = self._disk.state.new_name("trash")
        mode = self._locked_mode(old)
        self._unlock_mode(name, at, mode)
        try:
            self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
        except OSError:
            self._unlock_mode(name, at, mode, to=mode)
            raise
        self._disk.state.purge(trash)

    def _times(self, path: str, at: int) -> tuple[tuple[str, int], ...]:
        """The parent's time, to be set again; refuses what is on another disk before anything is recorded."""
        found = self._sys.fstat(at)
        if found.st_dev != self._disk.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        return ((split(path)[0], found.st_mtime_ns),)

    def _locked_mode(self, old: os.stat_result) -> int:
        """The mode of a directory that cannot be moved elsewhere unless it is made writable, else -1."""
        if not stat.S_ISDIR(old.st_mode) or old.st_mode & stat.S_IWUSR or os.geteuid() == 0:
            return -1
        return stat.S_IMODE(old.st_mode)

    def _unlock_mode(self, name: str, at: int, mode: int, *, to: int | None = None) -> None:
        if mode >= 0:
            self._sys.chmod(name, mode | stat.S_IWUSR if to is None else to, dir_fd=at)


def _own_time(path: str, old: os.stat_result) -> tuple[tuple[str, int], ...]:
    return ((path, old.st_mtime_ns),) if stat.S_ISDIR(old.st_mode) else ()
