"""Changes to the root that can be undone: each is one system call, recorded before it happens.

What was there before is kept as a hard link in the vault (or moved there), never copied: the API never
writes in place, so the old inode stays as it was and going back is a rename.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final, final

from ..paths import split
from .disk_state import Disk
from .journal import Record
from .undo_log import UndoLog

_NO_LINKS: Final = {errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


@final
class Mutations:
    """Performs the changes of one root. Its caller holds the lock, and undoes what one that raises has recorded."""

    __slots__ = ("_disk", "_log", "_sys")

    def __init__(self, disk: Disk, log: UndoLog) -> None:
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
        self._sync(at)
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
        self._sync(at)

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
        self._sync(at)
        if to != at:
            self._sync(to)

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

    def _sync(self, at: int) -> None:
        if self._disk.durable:
            self._disk.sync(at)


def _own_time(path: str, old: os.stat_result) -> tuple[tuple[str, int], ...]:
    return ((path, old.st_mtime_ns),) if stat.S_ISDIR(old.st_mode) else ()


__all__ = ["Mutations"]
