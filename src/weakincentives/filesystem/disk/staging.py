"""New files and trees, made ready in the state directory so that one rename puts them in place."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, final

from ...errors import PathRefusedError
from ...fence import check_wanted
from ..paths import ROOT, join, split
from ..reserved import reserved
from .confine import Confined, Handle, refused
from .disk_root import DiskRoot, PathErrors
from .syscalls import CHUNK, CREATE, DIRECTORY, READ, Syscalls, pwrite_all, write_all

# The content of a file, copied and compared with its holes: the work is that of its data and not of its length.


STEP: Final = 8 << 20
"""After so many bytes it is asked whether the call is still wanted."""
_ELSEWISE: Final = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF})


def never_stop() -> None:
    """The check of a copy that is made while a root is being restored: a restore is never cancelled."""


def copy_content(
    sys: Syscalls, source: int, target: int, found: os.stat_result, check: Callable[[], None] = check_wanted
) -> None:
    """Copy all of `source`, of which `found` is known, to `target`, an empty file, which is then at its end.

    `OSError` (ENOSPC) before anything is copied when there is no room; `StaleCallError` when the call is given up, or
    what `check` raises. What was copied until then is the caller's to drop.
    """
    if found.st_size <= CHUNK:
        while data := sys.read(source, CHUNK):
            write_all(sys, target, data)
        return
    if found.st_blocks * 512 > sys.free(target):
        raise OSError(errno.ENOSPC, "There is not enough room on the disk for a copy")
    for start, end in _data(sys, source, found.st_size):
        position = start
        while position < end:
            check()
            done = _copy(sys, source, target, min(STEP, end - position), position)
            if not done:  # cut by another program meanwhile
                break
            position += done
    sys.ftruncate(target, found.st_size)
    sys.seek(target, 0, os.SEEK_END)


def same_content(sys: Syscalls, one: int, two: int, size: int, check: Callable[[], None]) -> bool:
    """Whether two files of that size hold the same; where both have a hole nothing is read."""
    at = 0
    while at < size:
        start = min(_next_data(sys, one, at, size), _next_data(sys, two, at, size))
        if start >= size:
            break
        at = min(start + CHUNK, size)
        while start < at:
            check()
            data = sys.pread(one, at - start, start)
            if not data or sys.pread(two, len(data), start) != data:
                return False
            start += len(data)
    return True


def _next_data(sys: Syscalls, fd: int, at: int, size: int) -> int:
    """Where the next data is, from `at` on; `at` itself where the disk cannot tell, `size` if only a hole is left."""
    try:
        return sys.seek_data(fd, at)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno != errno.EINVAL:
            raise
        return at


def _data(sys: Syscalls, fd: int, size: int) -> Iterator[tuple[int, int]]:
    """From where to where there is data; all of it where the disk cannot tell."""
    end = 0
    while end < size:
        try:
            start = sys.seek_data(fd, end)
            end = sys.seek_hole(fd, start)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            if error.errno != errno.EINVAL:
                raise
            start, end = end, size
        yield start, min(end, size)


def _copy(sys: Syscalls, source: int, target: int, count: int, offset: int) -> int:
    try:
        return sys.copy_range(source, target, count, offset)
    except OSError as error:
        if error.errno not in _ELSEWISE:
            raise
    data = sys.pread(source, min(count, CHUNK), offset)
    pwrite_all(sys, target, data, offset)
    return len(data)


# A copy of a file or a whole tree, made in the state directory, however deep the tree is.


@final
class TreeCopy:
    """One copy. Modes and times are those of the original, except that the owner may write to all of it.

    Without recursion and with few descriptors at a time, as others may have nested the tree very deeply: its
    directories are made side by side in the state directory, and put into one another when each has its files.

    Args:
        disk: the root.
        give: called with the descriptor of each new file and directory.
    """

    __slots__ = ("_disk", "_give", "_staged", "_sys")

    def __init__(self, disk: DiskRoot, give: Callable[[int], None]) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._give = give
        self._staged: dict[str, str] = {}  # by the place in the copied tree: the name in the state directory

    def make(self, path: str, source: int, name: str) -> str:
        """Copy `name` in the directory `source`, which is at `path`; the name of the copy in the state directory.

        Symlinks inside a tree are copied as they are, undo state in it is left out. `PathRefusedError` at a socket,
        FIFO or device, and when the path itself is a symlink. Errors name the file or directory that could not be
        copied, and nothing is left of the copy then.
        """
        found = self._sys.stat(name, dir_fd=source)
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            raise _refused(path)
        try:
            if stat.S_ISDIR(found.st_mode):
                with Handle(self._sys, self._sys.open(name, DIRECTORY, dir_fd=source)) as top:
                    self._tree(path, top)
            else:
                staged = self._staged[ROOT] = self._disk.state.new_name("stage")
                self._file(path, source, name, self._disk.state.fd, staged)
        except BaseException:
            for staged in self._staged.values():
                self._disk.state.purge(staged)
            raise
        return self._staged[ROOT]

    def _tree(self, path: str, top: int) -> None:
        found: list[tuple[str, os.stat_result]] = []
        pending = [ROOT]
        last, fd = "", -1
        try:
            while pending:
                place = pending.pop()
                with PathErrors(self._disk, join(path, place)):
                    opened = self._open(place, top, last, fd)
                    if fd >= 0:
                        self._sys.close(fd)
                    last, fd = place, opened
                    found.append((place, self._sys.fstat(fd)))
                    pending += [join(place, child) for child in self._directory(path, place, fd)]
        finally:
            if fd >= 0:
                self._sys.close(fd)
        for place, info in reversed(found):  # what is in a directory before the directory, so that its time stays
            with PathErrors(self._disk, join(path, place)):
                self._finish(place, info)

    def _open(self, place: str, top: int, last: str, fd: int) -> int:
        """Open a directory of the source: from the one opened last if it is in there, as from the top it may be far."""
        above, name = split(place)
        if above == last:
            return Confined(self._sys, fd).open(name, DIRECTORY)
        return Confined(self._sys, top).open(place, DIRECTORY)

    def _directory(self, path: str, place: str, old: int) -> list[str]:
        """Make a directory with the files and symlinks that `old` has; the names of the directories in that."""
        new = self._staged[place] = self._disk.state.new_name("stage")
        self._sys.mkdir(new, 0o700, dir_fd=self._disk.state.fd)
        inner: list[str] = []
        with Handle(self._sys, self._sys.open(new, DIRECTORY, dir_fd=self._disk.state.fd)) as fd:
            for child, kind in self._sys.kinds(old):
                if reserved(child):  # the undo state of a root in there, which must not come to light as a copy
                    continue
                if kind == stat.S_IFLNK:
                    self._sys.symlink(self._sys.readlink(child, dir_fd=old), child, dir_fd=fd)
                elif kind == stat.S_IFDIR:
                    inner.append(child)
                elif kind == stat.S_IFREG:
                    self._file(join(path, join(place, child)), old, child, fd, child)
                else:
                    raise _refused(join(path, join(place, child)))
        return inner

    def _file(self, path: str, source: int, name: str, target: int, new: str) -> None:
        with PathErrors(self._disk, path), Handle(self._sys, self._sys.open(name, READ, dir_fd=source)) as old_fd:
            old = self._sys.fstat(old_fd)
            if not stat.S_ISREG(old.st_mode):
                raise _refused(path)
            with Handle(self._sys, self._sys.open(new, CREATE, 0o600, dir_fd=target)) as fd:
                copy_content(self._sys, old_fd, fd, old)
                self._settle(fd, stat.S_IMODE(old.st_mode) & 0o1777)
            self._sys.utime(new, (old.st_atime_ns, old.st_mtime_ns), dir_fd=target)

    def _finish(self, place: str, info: os.stat_result) -> None:
        """Give a directory that is complete its time and mode, and put it into the one that it belongs to."""
        state, new = self._disk.state.fd, self._staged[place]
        with Handle(self._sys, self._sys.open(new, DIRECTORY, dir_fd=state)) as fd:
            self._sys.utime(".", (info.st_atime_ns, info.st_mtime_ns), dir_fd=fd)
            self._settle(fd, stat.S_IMODE(info.st_mode))
        if place != ROOT:
            above, name = split(place)
            self._sys.rename(new, f"{self._staged[above]}/{name}", source_fd=state, target_fd=state)
            del self._staged[place]

    def _settle(self, fd: int, mode: int) -> None:
        self._give(fd)
        self._sys.fchmod(fd, mode | stat.S_IWUSR)
        if self._disk.durable:
            self._sys.fsync(fd)


def _refused(path: str) -> PathRefusedError:
    return refused(path, "is not an ordinary file or directory")


@final
class Staging:
    """Makes things ready. What it returns belongs to the caller: put it in place or purge it.

    Args:
        disk: the root.
        owner: the user and group that new things are given to; None leaves them to the user of this process.
    """

    __slots__ = ("_disk", "_owner", "_sys")

    def __init__(self, disk: DiskRoot, owner: tuple[int, int] | None = None) -> None:
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
            self._disk.state.purge(staged)
            raise
        return staged

    def symlink(self, target: str) -> str:
        """Stage a symlink; its name in the vault."""
        staged = self._disk.state.new_name("stage")
        self._disk.sys.symlink(target, staged, dir_fd=self._disk.state.fd)
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
            self._disk.state.purge(outer)
            if staged is not None:
                self._disk.state.purge(staged)
            raise
        return outer

    def copy(self, path: str, source: int, name: str) -> str:
        """A copy of the file or tree `name` in the directory `source`, which is at `path`; see `TreeCopy.make`."""
        return TreeCopy(self._disk, self._give).make(path, source, name)

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
