"""Undoing one recorded change on the disk: only if it is proved to have happened, and as often as need be.

| operation | happened exactly when | else |
|---|---|---|
| create, replace | what was staged is gone from the vault | nothing at the path is touched |
| delete | the image is in the vault | nothing |
| move | the recorded inode is at the target | nothing |

A record is undone on its own, newest first, and leaves the journal once that is done. So undoing must cope with two
states only: the change happened, or it did not (yet, or any more). It may crash and run again at any point.

After a crash an image must also be the file that was written down: another inode is not put back.
"""

from __future__ import annotations

import errno
import logging
import stat
from contextlib import suppress
from typing import Final, Protocol, final

from ..paths import join, split
from .confine import Confined, Handle
from .journal import Record
from .syscalls import Syscalls

_log = logging.getLogger(__name__)

_IN_THE_WAY: Final = {errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST}


class Vault(Protocol):
    """Where images and staged files are."""

    @property
    def fd(self) -> int:
        """Its descriptor."""
        ...

    def new_name(self, what: str, /) -> str:
        """A name in it that nobody uses."""
        ...


class UndoPlace(Protocol):
    """The root in which something is undone, and its vault; `Disk` is one."""

    @property
    def sys(self) -> Syscalls:
        """The operating system."""
        ...

    @property
    def root(self) -> str:
        """The directory, for messages."""
        ...

    @property
    def undo_dirs(self) -> Confined:
        """Opens what is below the root, on its own disk."""
        ...

    @property
    def state(self) -> Vault:
        """The vault."""
        ...

    @property
    def durable(self) -> bool:
        """Whether to wait for the disk."""
        ...

    def sync(self, at: int, /) -> None:
        """Wait until the directory is on the disk."""
        ...


@final
class Reversal:
    """Undoes records of one root. Its caller holds the lock, and cuts the record from the journal afterwards."""

    __slots__ = ("_disk", "_sys")

    def __init__(self, disk: UndoPlace) -> None:
        self._disk = disk
        self._sys = disk.sys

    def undo(self, record: Record) -> list[str]:
        """Undo the change if it happened; names in the vault to be purged once the record is cut."""
        match record.operation:
            case "create" | "replace":
                if self.is_there(record.staged, self._disk.state.fd):
                    return [record.staged, record.image] if record.image else [record.staged]
                trash = self._discard(record.path) if record.operation == "create" else self._put_back(record)
            case "delete":
                trash = self._put_back(record)
            case "move":
                trash = []
                self._move_back(record)
        if record.mode >= 0:
            self._set_mode(record)
        for path, when in record.times:
            self._set_time(path, when)
        return trash

    def is_authentic(self, record: Record) -> bool:
        """Whether the image, if there is one, is what was written down; one that is not stays where it is.

        One that was changed since is put back nevertheless: it is the same file, and other programs write in place.
        """
        try:
            found = self._sys.stat(record.image, dir_fd=self._disk.state.fd) if record.image else None
        except FileNotFoundError:
            found = None
        if found is None:
            return True
        if found.st_ino != record.inode:
            _log.warning("%a in %s is not restored: its image is another file", record.path, self._disk.root)
            return False
        if record.size >= 0 and (found.st_size, found.st_mtime_ns) != (record.size, record.mtime):
            _log.warning("%a in %s was changed by another program before it was kept", record.path, self._disk.root)
        return True

    def is_there(self, name: str, at: int) -> bool:
        """Whether something has that name in the directory."""
        try:
            self._sys.stat(name, dir_fd=at)
        except FileNotFoundError:
            return False
        return True

    def _discard(self, path: str) -> list[str]:
        try:
            parent, name = self._disk.undo_dirs.parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        with parent as at:
            trash = self._disk.state.new_name("trash")
            try:
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
            except OSError as error:
                # Another mount answers so even where nothing is, and where nothing could have been made.
                if isinstance(error, FileNotFoundError) or (error.errno == errno.EXDEV and not self.is_there(name, at)):
                    return []
                raise
            self._sync(at)
            return [trash]

    def _put_back(self, record: Record) -> list[str]:
        state = self._disk.state
        if not self.is_there(record.image, state.fd):  # done before, or it never happened
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
            parent, name = self._disk.undo_dirs.parent(record.target)
        except (FileNotFoundError, NotADirectoryError):
            return
        with parent as at:
            try:
                if self._sys.stat(name, dir_fd=at).st_ino != record.inode:
                    return
            except FileNotFoundError:
                return
            if record.mode >= 0:
                self._sys.chmod(name, record.mode | stat.S_IWUSR, dir_fd=at)
            origin, origin_name = self._parent_again(record.path)
            with origin as to:
                self._sys.rename(name, origin_name, source_fd=at, target_fd=to)
                self._sync(to)
            self._sync(at)

    def _parent_again(self, path: str) -> tuple[Handle, str]:
        """The parent's handle; one that another program removed meanwhile is made again."""
        with suppress(FileNotFoundError):
            return self._disk.undo_dirs.parent(path)
        made = ""
        for part in split(path)[0].split("/"):
            with self._disk.undo_dirs.directory(made or ".") as at, suppress(FileExistsError):
                self._sys.mkdir(part, dir_fd=at)
            made = join(made or ".", part)
        return self._disk.undo_dirs.parent(path)

    def _set_mode(self, record: Record) -> None:
        """Make the directory write-protected again, if it is still the recorded one."""
        with suppress(FileNotFoundError, NotADirectoryError):
            parent, name = self._disk.undo_dirs.parent(record.path)
            with parent as at:
                if self._sys.stat(name, dir_fd=at).st_ino == record.inode:
                    self._sys.chmod(name, record.mode, dir_fd=at)

    def _set_time(self, path: str, when: int) -> None:
        # Somebody else's directory that we may write to but not date: everything but its time is right.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            parent, name = self._disk.undo_dirs.parent(path)
            with parent as at:
                self._sys.utime(name, (self._sys.stat(name, dir_fd=at).st_atime_ns, when), dir_fd=at)

    def _sync(self, at: int) -> None:
        if self._disk.durable:
            self._disk.sync(at)


__all__ = ["Reversal", "UndoPlace", "Vault"]
