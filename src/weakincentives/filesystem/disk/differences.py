"""What a list of undo records amounts to: which paths differ from before the first of them.

The state before is described as a small tree of exceptions to the state now: this path was not there, that one
is kept in the state directory, this subtree was over there. Only what is in that tree is compared.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

from ...errors import PathRefusedError
from ..paths import ROOT, join, normalise
from ..protocol import MAX_HASHED, FileChanges
from .confine import Confined, Handle
from .disk_state import Disk
from .journal import Record
from .staging import CHUNK
from .syscalls import DIRECTORY, READ


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is now: a path below the root, or below an image in the state directory."""

    path: str
    image: bool = False

    def child(self, name: str) -> Place:
        """One level down."""
        return Place(f"{self.path}/{name}" if self.image else join(self.path, name), self.image)


@dataclass(slots=True)
class Before:
    """A node of the state before: `place` is where it is now, None when nothing was there."""

    place: Place | None
    children: dict[str, Before] = field(default_factory=dict[str, "Before"])

    def child(self, name: str) -> Before:
        """The node below, which may be an exception."""
        if (found := self.children.get(name)) is not None:
            return found
        return Before(None if self.place is None else self.place.child(name))


@final
class Differences:
    """Collects what differs; used once."""

    __slots__ = ("_added", "_changed", "_disk", "_images", "_removed", "_root")

    def __init__(self, disk: Disk, records: Iterable[Record]) -> None:
        self._disk = disk
        self._images = Confined(disk.sys, disk.state.fd)
        self._added: list[str] = []
        self._changed: list[str] = []
        self._removed: list[str] = []
        self._root = Before(Place(ROOT))
        for record in records:
            self._rewind(record)

    def changes(self) -> FileChanges:
        """The answer, sorted."""
        pending = [(ROOT, self._root)]
        while pending:
            pending += self._compare(*pending.pop())
        return summary(self._added, self._changed, self._removed)

    def _rewind(self, record: Record) -> None:
        """Take one record (newest first) back in the description."""
        if record.operation == "create":
            self._set(record.path, Before(None))
        elif record.operation == "move":
            if self._happened(record):
                self._set(record.path, self._get(record.target))
                self._set(record.target, Before(None))
        elif self._exists(Place(record.image, image=True)):
            self._set(record.path, Before(Place(record.image, image=True)))

    def _happened(self, record: Record) -> bool:
        place = self._get(record.target).place
        found = None if place is None else self._stat(place)
        return found is not None and found[1] == record.inode

    def _get(self, path: str) -> Before:
        node = self._root
        for part in path.split("/"):
            node = node.child(part)
        return node

    def _set(self, path: str, value: Before) -> None:
        node = self._root
        *parents, name = path.split("/")
        for part in parents:
            node.children[part] = node = node.child(part)
        node.children[name] = value

    def _compare(self, path: str, before: Before) -> list[tuple[str, Before]]:
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
            self._added += self._all(path, Before(Place(path)), new[0])
        return []

    def _compare_alike(
        self, path: str, before: Before, old: tuple[int, int], new: tuple[int, int]
    ) -> list[tuple[str, Before]]:
        assert before.place is not None
        if stat.S_ISDIR(old[0]):
            if old[0] != new[0]:
                self._changed.append(f"{path}/")
            names = set(self._names(before.place)) | set(before.children) | set(self._names(Place(path)))
            return [(join(path, name), before.child(name)) for name in names]
        if old[0] != new[0] or (old[1] != new[1] and not self._same(before.place, Place(path))):
            self._changed.append(path)
        return []

    def _all(self, path: str, node: Before, mode: int) -> Iterator[str]:
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


def addressable(path: str) -> bool:
    """Whether the API would take this path; other programs make names that it does not show."""
    try:
        return normalise(path) == path
    except PathRefusedError:
        return False


def summary(added: Iterable[str], changed: Iterable[str], removed: Iterable[str]) -> FileChanges:
    """Sorted, with what is on both sides as changed, without what cannot be addressed."""
    both = set(added) & set(removed)
    return FileChanges(_shown(set(added) - both), _shown(both | set(changed)), _shown(set(removed) - both))


def _shown(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(path for path in paths if addressable(path.rstrip("/"))))


__all__ = ["Differences", "addressable", "summary"]
