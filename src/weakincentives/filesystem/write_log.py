"""Whose writes they are, for files in memory: what was at each path before, while a savepoint is open.

When nobody else wrote, an undo is the old root. Else the owner's writes are undone one by one, newest first, which is
possible because overlapping writes of others are refused (`ownership.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from ..fence import Owner, current_owner
from .nodes import Directory, Node, lookup, put_back
from .ownership import TouchedPaths, conflict
from .paths import ROOT
from .savepoints import Mark

_NEVER: Final = object()


class Write(NamedTuple):
    """One write: whose, where, what was there, and when the directory around it had last changed."""

    owner: Owner | None
    path: str
    before: Node | None
    modified: float


@final
class WriteLog:
    """The open savepoints of one filesystem and the writes since the oldest of them. Used under its lock.

    A write that was undone with its savepoint leaves a gap, so that positions stay valid; the log is empty again when
    the last savepoint has gone. `_bare` are the bare snapshots that were taken meanwhile, `_moment` counts all of them.
    """

    __slots__ = ("_bare", "_fresh", "_moment", "_writes", "open")

    def __init__(self) -> None:
        self._writes: list[Write | None] = []
        self._fresh: dict[str, Owner | None] = {}
        self._moment = 0
        self._bare: list[Mark] = []
        self.open: list[Mark] = []

    def begin(self, owner: Owner | None, *, for_all: bool = False, savepoint: bool = True) -> Mark:
        """One more savepoint, or a bare snapshot while there are any."""
        if self.open:
            self.prune()
            for_all = for_all or (not savepoint and any(mark.for_all and mark.owner is owner for mark in self.open))
        mark = Mark(self.boundary(), savepoint=savepoint, owner=owner, for_all=for_all)
        self._moment += 1
        mark.opened = self._moment
        (self.open if savepoint else self._bare).append(mark)
        return mark

    def boundary(self) -> int:
        """Where the next write will be; from here on what was at a path is kept again."""
        if self._fresh:
            self._fresh.clear()
        return len(self._writes)

    def prune(self) -> None:
        """Forget savepoints that were released or dropped, and with the last of them all writes."""
        open_ = self.open
        while open_ and not open_[-1].alive:  # nearly always the newest
            open_.pop()
        if open_ and not all(mark.alive for mark in open_):
            self.open = [mark for mark in open_ if mark.alive]
        elif not open_ and (self._writes or self._bare):
            self._writes.clear()
            self._bare.clear()
            self._fresh.clear()

    def check(self, *paths: str) -> None:
        """Raise `ConflictError` when an open call that is not the writer's has changed one of the paths."""
        self.prune()
        writer = current_owner()
        for mark in self.open:
            if not mark.covers(writer):
                touched = self._touched(mark)
                for path in paths:
                    if touched.overlaps(path):
                        raise conflict(path, mark.owner)

    def note(self, root: Directory, path: str, *, goes: bool = False) -> None:
        """What is at the path in that root is about to be replaced; `goes` when it is deleted or moved."""
        writer = current_owner()
        recording = False
        for mark in self.open:
            if mark.covers(writer):
                recording = True
            else:
                mark.shared = True
        # A second write of the same owner to the same path changes nothing about what an undo puts there.
        if recording and self._fresh.get(path, _NEVER) is not writer:
            parent = lookup(root, path.rpartition("/")[0] or ROOT)
            modified = 0.0 if parent is None else parent.modified
            self._writes.append(Write(writer, path, lookup(root, path), modified))
            self._fresh[path] = writer
        if goes:
            self._fresh.clear()

    def own(self, mark: Mark) -> list[Write]:
        """What the mark covers and has not been undone, oldest first."""
        since = [write for write in self._writes[mark.position :] if write is not None]
        return [write for write in since if mark.covers(write.owner)]

    def forget(self, mark: Mark) -> None:
        """What the savepoint covers was undone: it is in no root but in older snapshots'."""
        self.boundary()
        undone = False
        for index in range(mark.position, len(self._writes)):
            write = self._writes[index]
            if write is not None and mark.covers(write.owner):
                self._writes[index] = None
                undone = True
        while len(self._writes) > mark.position and self._writes[-1] is None:
            self._writes.pop()
        self._bare = [bare for bare in self._bare if bare.alive]
        for other in (*self.open, *self._bare):
            other.position = min(other.position, len(self._writes))
            other.touched, other.touched_at = None, (0, 0)
            if other.opened > mark.opened:
                other.shared = other.shared or undone
                if not other.savepoint and mark.covers(other.owner):
                    other.alive = False

    def _touched(self, mark: Mark) -> TouchedPaths:
        found = mark.touched
        if found is None:
            found = mark.touched = TouchedPaths()
        for write in self._writes[max(mark.position, mark.touched_at[0]) :]:
            if write is not None and mark.covers(write.owner):
                found.add(write.path)
        mark.touched_at = (len(self._writes), 0)
        return found


def without(root: Directory, writes: list[Write]) -> Directory:
    """The root with these writes undone, newest first."""
    for write in reversed(writes):
        root = put_back(root, write.path, write.before, write.modified)
    return root


__all__ = ["Write", "WriteLog", "without"]
