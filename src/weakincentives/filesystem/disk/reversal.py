"""Undoing recorded changes on the disk, each only if it is proved to have happened; and what they amount to.

| operation | happened exactly when | else |
|---|---|---|
| create, replace | what was staged is gone from the vault | nothing at the path is touched |
| delete | the image is in the vault | nothing |
| move | the recorded inode is at the target | nothing |

A record is undone on its own, newest first, and leaves the journal once that is done. So undoing must cope with two
states only: the change happened, or it did not (yet, or any more). It may crash and run again at any point.

After a crash an image must also be the file that was written down: another inode is not restored.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, final

from ..paths import ROOT, addressable, join, split
from ..protocol import LARGE, MAX_HASHED, FileChanges, FileNode, LargeFile
from .confine import Confined, Handle, unlinked
from .disk_root import DiskRoot
from .journal import Record
from .syscalls import CHUNK, DIRECTORY, READ, Syscalls, look

_log = logging.getLogger(__name__)

_IN_THE_WAY: Final = {errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST}


class Vault(Protocol):
    """Where images and staged files are."""

    fd: int

    def new_name(self, what: str, /) -> str:
        """A name in it that is not in use."""
        ...


class UndoPlace(Protocol):
    """The root in which something is undone, and its vault; `DiskRoot` is one."""

    sys: Syscalls
    root: str
    undo_dirs: Confined

    @property
    def state(self) -> Vault:
        """The vault."""
        ...

    def sync(self, at: int, /) -> None:
        """Wait until the directory is on the disk, if that is wanted."""
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
                trash = self._discard(record.path) if record.operation == "create" else self._restore_path(record)
            case "delete":
                trash = self._restore_path(record)
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

        One that was changed since is restored nevertheless: it is the same file, and other programs write in place.
        """
        found = look(self._sys, record.image, self._disk.state.fd) if record.image else None
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
        return look(self._sys, name, at) is not None

    def _discard(self, path: str) -> list[str]:
        try:
            parent, name = self._disk.undo_dirs.parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        with parent as at:
            try:
                if unlinked(self._sys, name, at):  # a file, nearly always: one step, and it takes no room
                    self._disk.sync(at)
                    return []
                trash = self._disk.state.new_name("trash")
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
            except OSError as error:
                # Another mount answers so even where nothing is, and where nothing could have been made.
                if isinstance(error, FileNotFoundError) or (error.errno == errno.EXDEV and not self.is_there(name, at)):
                    return []
                raise
            self._disk.sync(at)
            return [trash]

    def _restore_path(self, record: Record) -> list[str]:
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
            self._disk.sync(at)
        return trash

    def _move_back(self, record: Record) -> None:
        try:
            parent, name = self._disk.undo_dirs.parent(record.target)
        except (FileNotFoundError, NotADirectoryError):
            return
        with parent as at:
            moved = look(self._sys, name, at)
            if moved is None or moved.st_ino != record.inode:
                return
            if record.mode >= 0:
                self._sys.chmod(name, record.mode | stat.S_IWUSR, dir_fd=at)
            origin, origin_name = self._parent_again(record.path)
            with origin as to:
                self._sys.rename(name, origin_name, source_fd=at, target_fd=to)
                self._disk.sync(to)
            self._disk.sync(at)

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
        # Another user's directory, in which we may write but whose time we may not set: all but its time is restored.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            parent, name = self._disk.undo_dirs.parent(path)
            with parent as at:
                self._sys.utime(name, (self._sys.stat(name, dir_fd=at).st_atime_ns, when), dir_fd=at)


# What a list of records amounts to: which paths differ from before the first of them.
#
# The state before is described as a small tree of exceptions to the state now: this path was not there, that one
# is kept in the vault, this subtree was over there. Only what is in that tree is compared.


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is now: a path below the root, or below an image in the state directory."""

    path: str
    image: bool = False

    def child(self, name: str) -> Place:
        """One level down."""
        return Place(f"{self.path}/{name}" if self.image else join(self.path, name), self.image)


@dataclass(slots=True)
class PreviousNode:
    """A node of the state before: `place` is where it is now, None when nothing was there."""

    place: Place | None
    children: dict[str, PreviousNode] = field(default_factory=dict[str, "PreviousNode"])

    def child(self, name: str) -> PreviousNode:
        """The node below, which may be an exception."""
        if (found := self.children.get(name)) is not None:
            return found
        return PreviousNode(None if self.place is None else self.place.child(name))


@final
class Differences:
    """Collects what differs; used once."""

    __slots__ = ("_added", "_changed", "_disk", "_images", "_removed", "_root")

    def __init__(self, disk: DiskRoot, records: Iterable[Record]) -> None:
        self._disk = disk
        self._images = Confined(disk.sys, disk.state.fd)
        self._added: list[str] = []
        self._changed: list[str] = []
        self._removed: list[str] = []
        self._root = PreviousNode(Place(ROOT))
        for record in records:
            self._rewind(record)

    def changes(self) -> FileChanges:
        """The answer, sorted."""
        pending = [(ROOT, self._root)]
        while pending:
            pending += self._compare(*pending.pop())
        return summary(self._added, self._changed, self._removed)

    def node(self, path: str) -> FileNode | None:
        """What was at the path before."""
        place = self._get(path).place
        return None if place is None else node_in(self._disk.sys, self._dirs(place), place.path)

    def large(self, path: str) -> LargeFile | None:
        """The large file that was at the path before."""
        place = self._get(path).place
        return None if place is None else large_in(self._disk.sys, self._dirs(place), place.path)

    def _rewind(self, record: Record) -> None:
        """Reverse one record (newest first) in the description."""
        if record.operation == "create":
            self._set(record.path, PreviousNode(None))
        elif record.operation == "move":
            if self._happened(record):
                self._set(record.path, self._get(record.target))
                self._set(record.target, PreviousNode(None))
        elif self._exists(Place(record.image, image=True)):
            self._set(record.path, PreviousNode(Place(record.image, image=True)))

    def _happened(self, record: Record) -> bool:
        place = self._get(record.target).place
        found = None if place is None else self._stat(place)
        return found is not None and found[1] == record.inode

    def _get(self, path: str) -> PreviousNode:
        node = self._root
        for part in path.split("/"):
            node = node.child(part)
        return node

    def _set(self, path: str, value: PreviousNode) -> None:
        node = self._root
        *parents, name = path.split("/")
        for part in parents:
            node.children[part] = node = node.child(part)
        node.children[name] = value

    def _compare(self, path: str, before: PreviousNode) -> list[tuple[str, PreviousNode]]:
        """Note what differs here; what is to be compared further down."""
        if before.place == Place(path):  # the same thing, apart from the exceptions in it
            return [(join(path, name), child) for name, child in before.children.items()]
        old = None if before.place is None else self._stat(before.place)
        new = self._stat(Place(path))
        if old is not None and new is not None and stat.S_IFMT(old[0]) == stat.S_IFMT(new[0]):
            return self._compare_alike(path, before, old, new)
        if old is not None:
            self._removed += self._all(path, before, old[0])
        if new is not None:
            self._added += self._all(path, PreviousNode(Place(path)), new[0])
        return []

    def _compare_alike(
        self, path: str, before: PreviousNode, old: tuple[int, int], new: tuple[int, int]
    ) -> list[tuple[str, PreviousNode]]:
        assert before.place is not None
        if stat.S_ISDIR(old[0]):
            if old[0] != new[0]:
                self._changed.append(f"{path}/")
            names = set(self._names(before.place)) | set(before.children) | set(self._names(Place(path)))
            return [(join(path, name), before.child(name)) for name in names]
        if old[0] != new[0] or (old[1] != new[1] and not self._same(before.place, Place(path))):
            self._changed.append(path)
        return []

    def _all(self, path: str, node: PreviousNode, mode: int) -> Iterator[str]:
        """Everything at and below a node."""
        pending = [(path, node, mode)]
        while pending:
            path, node, mode = pending.pop()
            if not stat.S_ISDIR(mode):
                yield path
                continue
            yield f"{path}/"
            assert node.place is not None
            for name in {*self._names(node.place), *node.children}:
                child = node.child(name)
                found = None if child.place is None else self._stat(child.place)
                if found is not None:
                    pending.append((join(path, name), child, found[0]))

    # --- looking at places

    def _dirs(self, place: Place) -> Confined:
        return self._images if place.image else self._disk.dirs

    def _exists(self, place: Place) -> bool:
        return self._stat(place) is not None

    def _stat(self, place: Place) -> tuple[int, int] | None:
        """Mode and inode, or None."""
        with suppress(OSError):
            parent, name = self._dirs(place).parent(place.path)
            with parent as at:
                found = self._disk.sys.stat(name, dir_fd=at)
                return found.st_mode, found.st_ino
        return None

    def _names(self, place: Place) -> list[str]:
        with suppress(OSError), self._opened(place, DIRECTORY) as fd:
            return self._disk.sys.names(fd)
        return []

    def _opened(self, place: Place, flags: int) -> Handle:
        return Handle(self._disk.sys, self._dirs(place).open(place.path, flags))

    def _same(self, old: Place, new: Place) -> bool:
        sys = self._disk.sys
        try:
            with self._opened(old, READ) as a, self._opened(new, READ) as b:
                size = sys.fstat(a).st_size
                if size != sys.fstat(b).st_size or size > MAX_HASHED:  # a larger one that was rewritten is changed
                    return False
                while chunk := sys.read(a, CHUNK):
                    if sys.read(b, CHUNK) != chunk:
                        return False
                return True
        except OSError:
            return False


def node_in(sys: Syscalls, dirs: Confined, path: str) -> FileNode | None:
    """What is at a path; None for nothing."""
    try:
        parent, name = dirs.parent(path)
        with parent as at:
            found = sys.stat(name, dir_fd=at)
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISLNK(found.st_mode):
                return FileNode("symlink", mode, os.fsencode(sys.readlink(name, dir_fd=at)))
            if stat.S_ISDIR(found.st_mode):
                return FileNode("directory", mode)
            if not stat.S_ISREG(found.st_mode):
                return FileNode("other", mode)
        with Handle(sys, dirs.open(path, READ)) as fd:
            pieces: list[bytes] = []
            while piece := sys.read(fd, CHUNK):
                pieces.append(piece)
            return FileNode("file", mode, b"".join(pieces))
    except (FileNotFoundError, NotADirectoryError):
        return None


def large_in(sys: Syscalls, dirs: Confined, path: str) -> LargeFile | None:
    """The file at a path, if it is a large one."""
    try:
        parent, name = dirs.parent(path)
        with parent as at:
            found = sys.stat(name, dir_fd=at)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size <= LARGE:
        return None

    def read() -> Iterator[bytes]:
        with Handle(sys, dirs.open(path, READ)) as fd:
            while piece := sys.read(fd, CHUNK):
                yield piece

    return LargeFile(stat.S_IMODE(found.st_mode), found.st_size, read)


def summary(added: Iterable[str], changed: Iterable[str], removed: Iterable[str]) -> FileChanges:
    """Sorted, with what is on both sides as changed, without what cannot be addressed."""
    both = set(added) & set(removed)
    return FileChanges(_shown(set(added) - both), _shown(both | set(changed)), _shown(set(removed) - both))


def _shown(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(path for path in paths if addressable(path.rstrip("/"))))
