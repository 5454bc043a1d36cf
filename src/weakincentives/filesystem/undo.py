"""Changes to the root that can be taken back: each is one system call, recorded before it happens.

What was there before is kept as a hard link in the state directory (or moved there), never copied: the API never
writes in place, so the old inode stays as it was and going back is a rename.

A record is undone on its own, newest first, and leaves the journal once that is done. So undoing must cope with
two states only: the change happened, or it did not (yet, or any more). It may crash and run again at any point.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from ..errors import JournalError
from .confine import Handle
from .disk import Disk
from .journal import Record
from .paths import join, split
from .savepoints import Mark

_log = logging.getLogger(__name__)

_NO_LINKS: Final = {errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_IN_THE_WAY: Final = {errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST}


@final
class UndoLog:
    """Performs the changes, and remembers them while `recording`. Its caller holds a lock.

    Positions count changes since the object was made; they only grow. `entries` are those that can be taken back,
    with where each starts in the journal.
    """

    __slots__ = ("_base", "_disk", "_fresh", "_sys", "entries", "recording")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sys = disk.sys
        self.entries: list[tuple[int, Record]] = []
        self._base = 0
        self._fresh: set[str] = set()
        self.recording = False

    @property
    def position(self) -> int:
        """Where the next change will be."""
        return self._base + len(self.entries)

    def since(self, position: int) -> list[Record]:
        """The changes from there on, oldest first."""
        return [record for _, record in self.entries[position - self._base :]]

    def boundary(self) -> None:
        """From here on everything is kept again, even what was kept before."""
        if self._fresh:
            self._fresh.clear()

    # --- changes

    def put(self, path: str, at: int, name: str, staged: str, old: os.stat_result | None) -> None:
        """Move what was staged to its place; `old` is the file that is there now, or None."""
        times = self._times(path, at)
        if self.recording and path not in self._fresh:
            if old is None:
                self._record(Record("create", path, times=times))
            else:
                self._keep(path, at, name, times)
        self._sys.rename(staged, name, source_fd=self._disk.state.fd, target_fd=at)
        self._sync(at)
        if self.recording:
            self._fresh.add(path)

    def remove(self, path: str, at: int, name: str, old: os.stat_result) -> None:
        """Take away a file, symlink or whole tree."""
        times = (*self._times(path, at), *_own_time(path, old))
        if not self.recording:
            self._remove_for_good(at, name, old)
        else:
            image = self._disk.state.new_name("image")
            mode = self._locked_mode(old)
            self._record(Record("delete", path, image=image, mode=mode, times=times))
            self._unlock_mode(name, at, mode)
            self._sys.rename(name, image, source_fd=at, target_fd=self._disk.state.fd)
            self._fresh.clear()
        self._sync(at)

    def move(self, path: str, at: int, target: str, to: int) -> None:
        """Move a file, symlink or whole tree to where nothing is."""
        name, target_name = split(path)[1], split(target)[1]
        old = self._sys.stat(name, dir_fd=at)
        mode = self._locked_mode(old) if at != to else -1
        times = (*self._times(path, at), *self._times(target, to), *_own_time(path, old))
        if self.recording:
            self._record(Record("move", path, target, inode=old.st_ino, mode=mode, times=times))
            self._fresh.clear()
        self._unlock_mode(name, at, mode)
        try:
            self._sys.rename(name, target_name, source_fd=at, target_fd=to)
        except OSError:
            self._unlock_mode(name, at, mode, to=mode)
            raise
        self._unlock_mode(target_name, to, mode, to=mode)
        self._sync(at)
        if to != at:
            self._sync(to)

    def _keep(self, path: str, at: int, name: str, times: tuple[tuple[str, int], ...]) -> None:
        state = self._disk.state
        image = state.new_name("image")
        try:
            self._sys.link(name, image, source_fd=at, target_fd=state.fd)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No second name can be made: move the only one. For a moment nothing is at the path.
            self._record(Record("delete", path, image=image, times=times))
            self._sys.rename(name, image, source_fd=at, target_fd=state.fd)
            self._record(Record("create", path, times=times))
            return
        try:
            self._record(Record("replace", path, image=image, times=times))
        except OSError:
            state.purge(image)
            raise

    def _record(self, record: Record) -> None:
        if not self.entries:
            self._disk.acquire()
            try:
                start = self._disk.journal.append(record)
            except BaseException:
                self._disk.release()
                raise
        else:
            start = self._disk.journal.append(record)
        self.entries.append((start, record))

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

    def _sync(self, at: int) -> None:
        if self._disk.durable:
            self._disk.sync(at)

    # --- the end of a transaction

    def settle(self, live: Sequence[Mark]) -> None:
        """Let go of what no live mark can go back to; without any, that is the commit."""
        if not self.entries:
            return
        self._disk.check()
        lowest = live[0].position if live else self.position
        if lowest == self.position:
            self._commit()
        elif lowest > self._base:
            self._forget(lowest)

    def _commit(self) -> None:
        self._disk.journal.cut(0)
        done, self.entries = self.entries, []
        self._base += len(done)
        self._fresh.clear()
        try:
            self._disk.journal.sync()
            self._purge(done)
        finally:
            self._disk.release()

    def _forget(self, lowest: int) -> None:
        """An outer snapshot went, inner ones stay: what is older than those must not be undone any more."""
        kept = self.entries[lowest - self._base :]
        starts = self._disk.journal.rewrite((record for _, record in kept), self._disk.state.new_name("stage"))
        done = self.entries[: lowest - self._base]
        self.entries = [(start, record) for start, (_, record) in zip(starts, kept, strict=True)]
        self._base = lowest
        self._purge(done)

    def _purge(self, done: list[tuple[int, Record]]) -> None:
        for _, record in done:
            if record.image:
                self._disk.state.purge(record.image)

    # --- going back

    def undo(self, position: int) -> None:
        """Go back to that position. When it raises, it may be called again and goes on where it stopped."""
        if self.position <= position:
            return
        self._disk.check()
        self._fresh.clear()
        trash: list[str] = []
        while self.position > position:
            start, record = self.entries[-1]
            trash += self._undo(record)
            self._disk.journal.cut(start)
            self.entries.pop()
        try:
            self._disk.journal.sync()
            for name in trash:
                self._disk.state.purge(name)
        finally:
            if not self.entries:
                self._disk.release()

    def recover(self) -> None:
        """Take back what a process left that ended in the middle; its caller holds the lock."""
        found = self._disk.journal.load()
        try:
            for start, record in reversed(found):
                self._undo(record)
                self._disk.journal.cut(start)
            self._disk.journal.cut(0)
            self._disk.journal.sync()
        except OSError as error:
            raise JournalError(
                f"{self._disk.root} was left in the middle of a transaction, and going back failed ({error}). "
                f"Nothing is lost: it is kept in {self._disk.state.spot.path}. Remove the cause and open it again."
            ) from error
        self._disk.state.sweep()
        if found:
            _log.warning(
                "Rolled back %d change(s) in %s: a process ended before its transaction was over",
                len(found),
                self._disk.root,
            )

    def _undo(self, record: Record) -> list[str]:
        """Take one change back, whether or not it happened; names of what is now trash."""
        trash: list[str] = []
        match record.operation:
            case "create":
                trash = self._discard(record.path)
            case "replace" | "delete":
                trash = self._put_back(record)
            case "move":
                self._move_back(record)
        if record.mode >= 0:
            self._set_mode(record.path, record.mode)
        for path, when in record.times:
            self._set_time(path, when)
        return trash

    def _discard(self, path: str) -> list[str]:
        try:
            parent, name = self._disk.dirs.parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        with parent as at:
            trash = self._disk.state.new_name("trash")
            try:
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
            except OSError as error:
                # Another mount answers so even where nothing is, and where nothing could have been made.
                if isinstance(error, FileNotFoundError) or (error.errno == errno.EXDEV and self._missing(name, at)):
                    return []
                raise
            self._sync(at)
            return [trash]

    def _missing(self, name: str, at: int) -> bool:
        try:
            self._sys.stat(name, dir_fd=at)
        except FileNotFoundError:
            return True
        return False

    def _put_back(self, record: Record) -> list[str]:
        state = self._disk.state
        try:
            self._sys.stat(record.image, dir_fd=state.fd)
        except FileNotFoundError:  # done before, or it never happened
            return []
        trash = [record.image]  # renaming one name of a file over another of its names leaves both
        parent, name = self._parent_again(record.path)
        with parent as at:
            try:
                self._sys.rename(record.image, name, source_fd=state.fd, target_fd=at)
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
                trash += self._discard(record.path)
                self._sys.rename(record.image, name, source_fd=state.fd, target_fd=at)
            self._sync(at)
        return trash

    def _move_back(self, record: Record) -> None:
        try:
            parent, name = self._disk.dirs.parent(record.target)
        except (FileNotFoundError, NotADirectoryError):
            return
        with parent as at:
            try:
                if self._sys.stat(name, dir_fd=at).st_ino != record.inode:
                    return
            except FileNotFoundError:
                return
            self._unlock_mode(name, at, record.mode)
            origin, origin_name = self._parent_again(record.path)
            with origin as to:
                self._sys.rename(name, origin_name, source_fd=at, target_fd=to)
                self._sync(to)
            self._sync(at)

    def _parent_again(self, path: str) -> tuple[Handle, str]:
        """The parent's handle; one that another program removed meanwhile is made again."""
        with suppress(FileNotFoundError):
            return self._disk.dirs.parent(path)
        made = ""
        for part in split(path)[0].split("/"):
            with self._disk.dirs.directory(made or ".") as at, suppress(FileExistsError):
                self._sys.mkdir(part, dir_fd=at)
            made = join(made or ".", part)
        return self._disk.dirs.parent(path)

    def _set_mode(self, path: str, mode: int) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            parent, name = self._disk.dirs.parent(path)
            with parent as at:
                self._sys.chmod(name, mode, dir_fd=at)

    def _set_time(self, path: str, when: int) -> None:
        # Somebody else's directory that we may write to but not date: everything but its time is right.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            parent, name = self._disk.dirs.parent(path)
            with parent as at:
                self._sys.utime(name, (self._sys.stat(name, dir_fd=at).st_atime_ns, when), dir_fd=at)


def _own_time(path: str, old: os.stat_result) -> tuple[tuple[str, int], ...]:
    return ((path, old.st_mtime_ns),) if stat.S_ISDIR(old.st_mode) else ()


__all__ = ["UndoLog"]
