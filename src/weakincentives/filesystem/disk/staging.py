"""New files and trees, made ready in the state directory so that one rename puts them in place."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from .confine import Handle
from .copying import TreeCopy, copy_content
from .disk_state import Disk
from .syscalls import CREATE, DIRECTORY, write_all

CHUNK: Final = 1 << 20


@final
class Staging:
    """Makes things ready. What it returns belongs to the caller: put it in place or `drop` it.

    Args:
        disk: the root.
        owner: the user and group that new things are given to; None leaves them to whoever makes them.
    """

    __slots__ = ("_disk", "_owner", "_sys")

    def __init__(self, disk: Disk, owner: tuple[int, int] | None = None) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._owner = owner

    def file(self, data: bytes, *, at: int, name: str, old: os.stat_result | None, after: int | None = None) -> str:
        """A file with that content, which is to be `name` in the directory `at`, in place of `old`.

        What the descriptor `after` holds comes first.
        """
        staged = self._disk.state.new_name("stage")
        fd = self._sys.open(staged, CREATE, dir_fd=self._disk.state.fd)
        try:
            try:
                if after is not None:
                    copy_content(self._sys, after, fd, self._sys.fstat(after))
                write_all(self._sys, fd, data)
                if old is None:
                    self._inherit(fd, at)
                else:
                    self._resemble(fd, old, self._sys.xattrs(name, dir_fd=at))
                if self._disk.durable:
                    self._sys.fsync(fd)
            finally:
                self._sys.close(fd)
        except BaseException:
            self.drop(staged)
            raise
        return staged

    def wrapped(self, staged: str | None, parts: Sequence[str], *, at: int) -> str:
        """A directory, to be put in the directory `at`, with one in the other for each of the parts.

        The last part is what was staged; None makes it a directory, too.
        """
        outer = inner = self._disk.state.new_name("stage")
        fd = self._disk.state.fd
        try:
            self._mkdir(inner, at)
            for part in parts if staged is None else parts[:-1]:
                inner = f"{inner}/{part}"
                self._mkdir(inner, at)
            if staged is not None:
                self._sys.rename(staged, f"{inner}/{parts[-1]}", source_fd=fd, target_fd=fd)
            while self._disk.durable and inner:
                with Handle(self._sys, self._sys.open(inner, DIRECTORY, dir_fd=fd)) as made:
                    self._sys.fsync(made)
                inner = inner.rpartition("/")[0]
        except BaseException:
            self.drop(outer)
            if staged is not None:
                self.drop(staged)
            raise
        return outer

    def copy(self, path: str, source: int, name: str) -> str:
        """A copy of the file or tree `name` in the directory `source`, which is at `path`; see `TreeCopy.make`."""
        return TreeCopy(self._disk, self._give).make(path, source, name)

    def drop(self, staged: str) -> None:
        """Remove what was not put in place."""
        self._disk.state.purge(staged)

    def _resemble(self, fd: int, old: os.stat_result, xattrs: dict[str, bytes]) -> None:
        """What writing in place would have left: owner, mode, attributes. As the kernel does, drop setuid."""
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):
                self._sys.fchown(fd, old.st_uid, old.st_gid)
        self._sys.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o1777)
        for key, value in xattrs.items():
            with suppress(OSError):
                self._sys.setxattr(fd, key, value)

    def _give(self, fd: int) -> None:
        if self._owner is not None:
            self._sys.fchown(fd, *self._owner)

    def _inherit(self, fd: int, at: int) -> None:
        """A set-group-id directory gives its group to what is made in it."""
        self._give(fd)
        parent = self._sys.fstat(at)
        if parent.st_mode & stat.S_ISGID:
            with suppress(PermissionError):
                self._sys.fchown(fd, -1, parent.st_gid)

    def _mkdir(self, name: str, at: int) -> None:
        fd = self._disk.state.fd
        self._sys.mkdir(name, dir_fd=fd)
        if self._owner is not None:
            self._sys.chown(name, *self._owner, dir_fd=fd)
        parent = self._sys.fstat(at)
        if parent.st_mode & stat.S_ISGID:
            with suppress(PermissionError):
                self._sys.chown(name, -1, parent.st_gid, dir_fd=fd)
                mode = self._sys.stat(name, dir_fd=fd).st_mode
                self._sys.chmod(name, stat.S_IMODE(mode) | stat.S_ISGID, dir_fd=fd)


__all__ = ["CHUNK", "Staging"]
