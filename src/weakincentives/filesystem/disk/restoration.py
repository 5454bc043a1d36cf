"""From what is in the root now to what was there: whoever made the difference."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, final

from ..paths import ROOT, is_below, split
from .confine import Handle
from .copying import copy_content
from .disk_state import Disk
from .manifest import Entry, Manifest
from .mirror_copies import go_on
from .syscalls import CREATE, DIRECTORY, READ

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


@final
class Restoration:
    """One way back: from what is there now to what is wanted.

    The disk may be full of what has to go. So that goes first, and where there is still no room, files that are to be
    replaced go before their content is brought back from the copy. When it raises in between, it is done again.
    """

    __slots__ = ("_copies", "_current", "_disk", "_failed", "_restored", "_sys", "_touched", "_wanted")

    def __init__(self, disk: Disk, copies: int, current: Manifest, wanted: Manifest) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._copies = copies
        self._current = current
        self._wanted = wanted
        self._touched: set[str] = set()
        self._failed: list[str] = []
        self._restored: Manifest = {}

    def run(self) -> tuple[Manifest, list[str]]:
        """What had to be put back, and the paths that could not be, after all else was."""
        self._clear()
        for path in sorted(self._wanted):
            self._bring_back(path, self._wanted[path])
        for path in sorted(self._wanted, reverse=True):
            if stat.S_ISDIR(self._wanted[path].mode):
                self._dress(path, self._wanted[path])
        return self._restored, self._failed

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

    def _bring_back(self, path: str, wanted: Entry) -> None:
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
        self._with_room(path, lambda: self._put_back(path, wanted))
        self._restored[path] = wanted

    def _check_unknown(self, path: str, wanted: Entry, current: Entry | None) -> None:
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

    def _put_back(self, path: str, wanted: Entry) -> None:
        staged = self._disk.state.new_name("stage")
        try:
            self._stage(staged, wanted)
            parent, name = self._parent(path)
            with parent as at:
                self._sys.rename(staged, name, source_fd=self._disk.state.fd, target_fd=at)
        except BaseException:
            self._disk.state.purge(staged)
            raise

    def _stage(self, staged: str, wanted: Entry) -> None:
        state = self._disk.state.fd
        if stat.S_ISLNK(wanted.mode):
            self._sys.symlink(wanted.copy, staged, dir_fd=state)
        elif stat.S_ISFIFO(wanted.mode):
            self._sys.mkfifo(staged, 0o600, dir_fd=state)
        else:
            with (
                Handle(self._sys, self._sys.open(wanted.copy, READ, dir_fd=self._copies)) as source,
                Handle(self._sys, self._sys.open(staged, CREATE, 0o600, dir_fd=state)) as fd,
            ):
                copy_content(self._sys, source, fd, self._sys.fstat(source), check=go_on)
                self._set_xattrs(fd, wanted)
        self._set_attributes(staged, state, wanted)

    def _dress(self, path: str, wanted: Entry) -> None:
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

    def _set_attributes(self, name: str, at: int, wanted: Entry) -> None:
        found = self._sys.stat(name, dir_fd=at)
        if (found.st_uid, found.st_gid) != (wanted.uid, wanted.gid):
            with suppress(PermissionError):
                self._sys.chown(name, wanted.uid, wanted.gid, dir_fd=at)
        if not stat.S_ISLNK(wanted.mode):
            self._sys.chmod(name, stat.S_IMODE(wanted.mode), dir_fd=at)
        self._sys.utime(name, (found.st_atime_ns, wanted.mtime), dir_fd=at)

    def _set_xattrs(self, fd: int, wanted: Entry) -> None:
        for key, value in wanted.xattrs:
            with suppress(OSError):
                self._sys.setxattr(fd, key, bytes.fromhex(value))


__all__ = ["Restoration"]
