"""Restores a root to what was there, no matter which program changed it."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, final

from ..paths import ROOT, is_below, split
from .confine import Handle
from .disk_root import DiskRoot
from .manifest import Manifest, ManifestEntry, entry
from .staging import copy_content, never_stop
from .syscalls import CREATE, DIRECTORY, READ, look, read_part, write_all

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


@final
class Restoration:
    """One restore: from what is there now to what is wanted.

    The disk may be full of what has to go. So that goes first, and where there is still no room, files that are to be
    replaced go before their content is restored from the copy. When it raises in between, it is done again.
    """

    __slots__ = ("_copies", "_current", "_disk", "_failed", "_restored", "_sys", "_touched", "_wanted")

    def __init__(self, disk: DiskRoot, copies: int, current: Manifest, wanted: Manifest) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._copies = copies
        self._current = current
        self._wanted = wanted
        self._touched: set[str] = set()
        self._failed: list[str] = []
        self._restored: Manifest = {}

    def run(self) -> tuple[Manifest, list[str]]:
        """What is in the root afterwards, as far as it is known, and the paths that could not be restored."""
        self._clear()  # first: what must go may be what fills the disk
        for path in sorted(self._wanted):
            self._restore(path, self._wanted[path])
        # Children before parents: restoring something in a directory changes the directory's time.
        for path in sorted(self._wanted, reverse=True):
            if stat.S_ISDIR(self._wanted[path].mode):
                self._restore_directory_attributes(path, self._wanted[path])
        return self._known(), self._failed

    def _known(self) -> Manifest:
        """The entries of what was restored, and of what did not have to be. Others are described by the next walk."""
        known = self._restored
        for path, current in self._current.items():
            wanted = self._wanted.get(path)
            if wanted is not None and path not in self._touched and current.like(wanted) and not wanted.opaque:
                known[path] = current
        return known

    def _clear(self) -> None:
        """Take away what was not there, and what is now of another kind; whole trees at once."""
        gone = "\0"
        for path in sorted(self._current, key=lambda path: path.split("/")):
            if is_below(path, gone) or self._hidden(path):
                self._current.pop(path)
                continue
            wanted = self._wanted.get(path)
            if wanted is None or stat.S_IFMT(wanted.mode) != stat.S_IFMT(self._current[path].mode):
                self._remove(path)
                self._current.pop(path)
                gone = path

    def _hidden(self, path: str) -> bool:
        """Whether it is in a directory whose content was never known."""
        while path != ROOT:
            path = split(path)[0]
            if (found := self._wanted.get(path)) is not None and found.opaque:
                return True
        return False

    def _remove(self, path: str) -> None:
        parent, name = self._parent(path)
        trash = self._disk.state.new_name("trash")
        with parent as at:
            try:
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
            except PermissionError:
                self._sys.chmod(name, 0o700, dir_fd=at)
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
        self._disk.state.purge(trash)  # at once: its room may be needed

    def _parent(self, path: str) -> tuple[Handle, str]:
        """The parent's handle, writable; its mode and time are set right at the end."""
        above = split(path)[0]
        handle, name = self._disk.undo_dirs.parent(path)
        if above not in self._touched:
            self._touched.add(above)
            if os.geteuid() != 0 and self._sys.fstat(handle.fd).st_mode & 0o700 != 0o700 and above != ROOT:
                upper, upper_name = self._disk.undo_dirs.parent(above)
                with upper as at:
                    self._sys.chmod(upper_name, 0o700, dir_fd=at)
        return handle, name

    def _restore(self, path: str, wanted: ManifestEntry) -> None:
        current = self._current.get(path)
        if wanted.opaque and stat.S_ISREG(wanted.mode):
            self._check_unknown(path, wanted, current)
            return
        if path == ROOT or (current is not None and current.like(wanted)):
            return
        if stat.S_ISDIR(wanted.mode):
            if current is None:
                self._with_room(path, lambda: self._mkdir(path))
            self._touched.add(path)
            return
        if not (stat.S_ISREG(wanted.mode) or stat.S_ISLNK(wanted.mode) or stat.S_ISFIFO(wanted.mode)):
            if current is None or current.size != wanted.size or current.mtime != wanted.mtime:
                self._failed.append(path)
            return
        self._with_room(path, lambda: self._restore_file(path, wanted))

    def _check_unknown(self, path: str, wanted: ManifestEntry, current: ManifestEntry | None) -> None:
        """A file of whose content there is no copy: it is as it was, or it is said that it may not be."""
        if current is None or not current.untouched(wanted):
            self._failed.append(path)
            if current is not None and not current.like(wanted):
                parent, name = self._parent(path)
                with parent as at:
                    self._set_attributes(name, at, replace(wanted, mtime=current.mtime))

    def _with_room(self, path: str, step: Callable[[], None]) -> None:
        """Do it; on a full disk, once more without the file that is there, then without all that will be replaced."""
        for doomed in ([path], sorted(self._wanted)):
            try:
                return step()
            except OSError as error:
                if error.errno not in _FULL:
                    raise
            for other in doomed:
                self._remove_outdated(other)
        return step()

    def _remove_outdated(self, path: str) -> None:
        current, wanted = self._current.get(path), self._wanted[path]
        if current is not None and wanted.copy and stat.S_ISREG(wanted.mode) and not current.like(wanted):
            self._remove(path)
            self._current.pop(path)

    def _mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        with parent as at:
            self._sys.mkdir(name, 0o700, dir_fd=at)

    def _restore_file(self, path: str, wanted: ManifestEntry) -> None:
        staged = self._disk.state.new_name("stage")
        try:
            self._stage(staged, wanted)
            parent, name = self._parent(path)
            with parent as at:
                self._sys.rename(staged, name, source_fd=self._disk.state.fd, target_fd=at)
                info = look(self._sys, name, at)
        except BaseException:
            self._disk.state.purge(staged)
            raise
        self._current.pop(path, None)
        # Not one that another program put there, and not if one took it away.
        if info is not None and (info.st_mode, info.st_mtime_ns) == (wanted.mode, wanted.mtime):
            self._restored[path] = entry(info, time.time_ns(), copy=wanted.copy, xattrs=wanted.xattrs)

    def _stage(self, staged: str, wanted: ManifestEntry) -> None:
        state = self._disk.state.fd
        if stat.S_ISLNK(wanted.mode):
            self._sys.symlink(wanted.copy, staged, dir_fd=state)
        elif stat.S_ISFIFO(wanted.mode):
            self._sys.mkfifo(staged, 0o600, dir_fd=state)
        else:
            name, packed, at = wanted.copy.partition("+")
            with (
                Handle(self._sys, self._sys.open(name, READ, dir_fd=self._copies)) as source,
                Handle(self._sys, self._sys.open(staged, CREATE, 0o600, dir_fd=state)) as fd,
            ):
                if packed:
                    write_all(self._sys, fd, self._part(source, wanted.size, int(at)))
                else:
                    copy_content(self._sys, source, fd, self._sys.fstat(source), check=never_stop)
                self._set_xattrs(fd, wanted)
        self._set_attributes(staged, state, wanted)

    def _part(self, source: int, size: int, offset: int) -> bytes:
        """A copy in a file of many; `OSError` when that was cut."""
        data = read_part(self._sys, source, size, offset)
        if len(data) != size:
            raise OSError(errno.EIO, "A file of copies in the vault was cut")
        return data

    def _restore_directory_attributes(self, path: str, wanted: ManifestEntry) -> None:
        """Give a directory its mode, owner, attributes and time again."""
        current = self._current.get(path)
        if path not in self._touched and current is not None and current.like(wanted):
            return
        parent, name = self._disk.undo_dirs.parent(path)  # of the root: itself, and "."
        with parent as at:
            if path != ROOT and (current is None or current.xattrs != wanted.xattrs):
                with Handle(self._sys, self._sys.open(name, DIRECTORY, dir_fd=at)) as fd:
                    self._set_xattrs(fd, wanted)
                    for key in {key for key, _ in (current.xattrs if current else ())} - {k for k, _ in wanted.xattrs}:
                        with suppress(OSError):
                            self._sys.removexattr(fd, key)
            self._set_attributes(name, at, wanted)

    def _set_attributes(self, name: str, at: int, wanted: ManifestEntry) -> None:
        found = self._sys.stat(name, dir_fd=at)
        if (found.st_uid, found.st_gid) != (wanted.uid, wanted.gid):
            with suppress(PermissionError):
                self._sys.chown(name, wanted.uid, wanted.gid, dir_fd=at)
        if not stat.S_ISLNK(wanted.mode):
            self._sys.chmod(name, stat.S_IMODE(wanted.mode), dir_fd=at)
        self._sys.utime(name, (found.st_atime_ns, wanted.mtime), dir_fd=at)

    def _set_xattrs(self, fd: int, wanted: ManifestEntry) -> None:
        for key, value in wanted.xattrs:
            with suppress(OSError):
                self._sys.setxattr(fd, key, bytes.fromhex(value))
