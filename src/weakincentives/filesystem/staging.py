"""New files and trees, made ready in the state directory so that one rename puts them in place."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from .confine import Handle, refused
from .copying import copy_content
from .disk import Disk
from .paths import join, reserved
from .syscalls import DIRECTORY, write_all

CHUNK: Final = 1 << 20
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Opening a FIFO or a device must neither wait nor take the terminal; it is refused right after."""

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


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
        fd = self._sys.open(staged, _CREATE, dir_fd=self._disk.state.fd)
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
        """A copy of a file or tree with modes and times; symlinks inside a tree are copied as they are.

        Undo state in the tree is left out.

        Raises `PathRefusedError` at a socket, FIFO or device, and when the path itself is a symlink.
        """
        staged = self._disk.state.new_name("stage")
        try:
            self._copy(path, source, name, self._disk.state.fd, staged)
        except BaseException:
            self.drop(staged)
            raise
        return staged

    def drop(self, staged: str) -> None:
        """Remove what was not put in place."""
        self._disk.state.purge(staged)

    def _copy(self, path: str, source: int, name: str, target: int, new: str) -> None:
        found = self._sys.stat(name, dir_fd=source)
        if stat.S_ISDIR(found.st_mode):
            self._copy_tree(path, source, name, target, new)
        elif stat.S_ISREG(found.st_mode):
            self._copy_file(path, source, name, target, new)
        else:
            raise refused(path, "is no ordinary file or directory")
        self._sys.utime(new, (found.st_atime_ns, found.st_mtime_ns), dir_fd=target)

    def _copy_tree(self, path: str, source: int, name: str, target: int, new: str) -> None:
        self._sys.mkdir(new, 0o700, dir_fd=target)
        with (
            Handle(self._sys, self._sys.open(name, DIRECTORY, dir_fd=source)) as old_fd,
            Handle(self._sys, self._sys.open(new, DIRECTORY, dir_fd=target)) as new_fd,
        ):
            for child, kind in self._sys.kinds(old_fd):
                if reserved(child):  # the undo state of a root in there, which must not come to light as a copy
                    continue
                if kind == stat.S_IFLNK:
                    self._sys.symlink(self._sys.readlink(child, dir_fd=old_fd), child, dir_fd=new_fd)
                else:
                    self._copy(join(path, child), old_fd, child, new_fd, child)
            self._give(new_fd)
            self._sys.fchmod(new_fd, stat.S_IMODE(self._sys.fstat(old_fd).st_mode))
            if self._disk.durable:
                self._sys.fsync(new_fd)

    def _copy_file(self, path: str, source: int, name: str, target: int, new: str) -> None:
        with (
            Handle(self._sys, self._sys.open(name, READ, dir_fd=source)) as old_fd,
            Handle(self._sys, self._sys.open(new, _CREATE, 0o600, dir_fd=target)) as new_fd,
        ):
            old = self._sys.fstat(old_fd)
            if not stat.S_ISREG(old.st_mode):
                raise refused(path, "is no ordinary file or directory")
            copy_content(self._sys, old_fd, new_fd, old)
            self._give(new_fd)
            self._sys.fchmod(new_fd, stat.S_IMODE(old.st_mode) & 0o1777)
            if self._disk.durable:
                self._sys.fsync(new_fd)

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


__all__ = ["CHUNK", "READ", "Staging"]
