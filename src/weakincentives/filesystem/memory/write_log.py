"""The writes to files in memory while a savepoint is open: who made each, and what was at the path before.

When no other call wrote, an undo is the old root. Else the owner's writes are undone one by one, newest first, which is
possible because overlapping writes of others are refused (`ownership.py`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, final
from weakref import ref

from ...errors import SnapshotError
from ...fence import Owner, current_owner
from ..ownership import TouchedPaths, UndoMark, conflict
from ..paths import ROOT
from .nodes import Directory, lookup, restore_node

# Which paths were touched since each living snapshot; nothing is remembered when there is none.
#
# The log is a row of periods, oldest first. A snapshot opens a period and holds on to it; a write notes its path in the
# newest. What changed since a snapshot is in its own period and the later ones. A period that no snapshot holds any
# more is merged into the one before it, or forgotten when there is none, so there are never more than living snapshots.


class TouchedSince:
    """The paths touched from one snapshot to the next, and how many snapshots that opened it are left.

    `bare` are the holds of those that have no mark to keep them, by their ids.
    """

    __slots__ = ("after", "bare", "before", "holders", "paths")

    def __init__(self, before: TouchedSince | None) -> None:
        self.before: TouchedSince | None = before
        self.after: TouchedSince | None = None
        self.holders: int = 0
        self.bare: dict[int, Hold] | None = None
        self.paths: set[str] = set()


@final
class Hold(ref[Any]):
    """A snapshot's hold on a period. Given up when the snapshot goes, which may be at any moment in any thread.

    That is noted by `deque.append` itself: in Python code of ours an interrupt could be raised, and would be lost.
    `mark` is the snapshot's place in the log of writes, which ends with it. The mark, or else the period, keeps the
    hold: one that only its snapshot knew would go with it unnoticed. `period` is None once it was given up.
    """

    __slots__ = ("mark", "period")

    mark: Any
    period: TouchedSince | None


class TouchedLog:
    """Not safe by itself: its owner calls it under a lock.

    `dropped` are the holds that were given up since the last look.
    """

    __slots__ = ("_newest", "dropped")

    def __init__(self) -> None:
        self._newest: TouchedSince | None = None
        self.dropped: deque[Hold] = deque()

    def open(self) -> TouchedSince:
        """The period that starts now, for `hold`; the newest one when nothing was touched in it."""
        if self.dropped:
            self.sweep()
        newest = self._newest
        if newest is not None and not newest.paths:
            return newest
        period = self._newest = TouchedSince(newest)
        if newest is not None:
            newest.after = period
        return period

    def hold(self, period: TouchedSince, snapshot: object, mark: Any) -> Hold:
        """Keep the period for as long as the snapshot lives, or until `let_go`."""
        hold = Hold(snapshot, self.dropped.append)
        hold.period = period
        hold.mark = mark
        period.holders += 1
        if mark is None:
            if period.bare is None:
                period.bare = {}
            period.bare[id(hold)] = hold
        else:
            mark.note = hold
        return hold

    def let_go(self, hold: Hold) -> None:
        """Give a hold up; more than once does nothing."""
        period, mark = hold.period, hold.mark
        if period is None:
            return
        hold.period = None
        if mark is not None:
            mark.alive = False
            mark.note = None
        elif period.bare is not None:
            del period.bare[id(hold)]
        period.holders -= 1
        if not period.holders:
            self._unlink(period)

    def note(self, path: str) -> None:
        """Something at or below the path changed."""
        if self.dropped:
            self.sweep()
        if self._newest is not None:
            self._newest.paths.add(path)

    def since(self, period: TouchedSince) -> set[str]:
        """All paths touched in the period and later."""
        later = period.after
        if later is None:
            return period.paths.copy()
        paths = set(period.paths)
        while later is not None:
            paths |= later.paths
            later = later.after
        return paths

    def rewind(self, period: TouchedSince) -> None:
        """The state at the period's start is back: nothing is touched since, but for later periods all of it is."""
        newest = self._newest
        if period is newest:
            period.paths = set()
        elif newest is not None:
            newest.paths |= self.since(period)

    def sweep(self) -> None:
        """Forget what was held by snapshots that are gone, and say so to their marks."""
        while self.dropped:
            self.let_go(self.dropped.popleft())

    def _unlink(self, period: TouchedSince) -> None:
        before, after = period.before, period.after
        if before is not None:
            before.paths |= period.paths
            before.after = after
        if after is not None:
            after.before = before
        else:
            self._newest = before


_NEVER: Final = object()


Write = tuple[Owner | None, str, Directory]
"""One write: whose, where, and the root before it, in which what was there is still to be found."""


@final
class MemoryMark(UndoMark):
    """A mark of files in memory: `opened` says in which order, `shared` whether others have changed anything since."""

    __slots__ = ("opened", "shared")

    def __init__(self, position: int, savepoint: bool, owner: Owner | None, for_all: bool, opened: int) -> None:
        # Not by the base class: one is made for every tool call.
        self.position = position
        self.savepoint = savepoint
        self.owner = owner
        self.for_all = for_all
        self.alive = True
        self.touched: TouchedPaths | None = None
        self.opened: int = opened
        self.shared: bool = False


@final
class WriteLog:
    """The open savepoints of one filesystem and the writes since the oldest of them. Used under its lock.

    A write that was undone with its savepoint leaves a gap, so that positions stay valid; the log is empty again when
    the last savepoint has gone. `_bare` are the bare snapshots that were taken meanwhile, `_count` counts all of them.
    """

    __slots__ = ("_bare", "_count", "_fresh", "_log", "_writer", "_writes", "open")

    def __init__(self, touched: TouchedLog) -> None:
        self._log = touched
        self._writes: list[Write | None] = []
        self._fresh: dict[str, Owner | None] = {}
        self._writer: Owner | None = None
        self._count = 0
        self._bare: list[MemoryMark] = []
        self.open: list[MemoryMark] = []

    def begin(self, owner: Owner | None, for_all: bool) -> MemoryMark:
        """One more savepoint."""
        if self._fresh:
            self._fresh.clear()
        self._count += 1
        mark = MemoryMark(len(self._writes), True, owner, for_all, self._count)
        self.open.append(mark)
        return mark

    def begin_bare(self, owner: Owner | None) -> MemoryMark:
        """A bare snapshot while there are savepoints."""
        self._fresh.clear()
        for_all = any(mark.for_all and mark.owner is owner for mark in self.open)
        self._count += 1
        mark = MemoryMark(len(self._writes), False, owner, for_all, self._count)
        self._bare.append(mark)
        return mark

    def end(self, mark: MemoryMark) -> None:
        """The savepoint was released."""
        mark.alive = False
        if len(self.open) == 1 and self.open[0] is mark and not self._writes and not self._bare:  # most calls
            self.open.pop()
        else:
            self.prune()

    def prune(self) -> None:
        """Forget savepoints that were released or dropped, and with the last of them all writes."""
        if self._log.dropped:
            self._log.sweep()
        for mark in self.open:
            if not mark.alive:
                self.open = [mark for mark in self.open if mark.alive]
                break
        if not self.open:
            self._writes.clear()
            self._bare.clear()
            self._fresh.clear()

    def claim(self, *paths: str) -> None:
        """Begin a write; `ConflictError` when an open call that is not the writer's has changed one of the paths."""
        if self._log.dropped:  # a savepoint may be among them
            self._log.sweep()
        writer = self._writer = current_owner()
        for mark in self.open:
            if not mark.alive:  # dropped, at whatever moment
                self.prune()
                return self.claim(*paths)
            if mark.owner is not writer and not mark.covers(writer):
                touched = self._touched(mark)
                for path in paths:
                    if touched.overlaps(path):
                        raise conflict(path, mark.owner)
        return None

    def note(self, root: Directory, path: str, goes: bool = False) -> None:
        """What is at the path in that root is about to be replaced; `goes` when it is deleted or moved."""
        writer = self._writer
        recording = False
        for mark in self.open:
            if mark.owner is writer or mark.covers(writer):
                recording = True
            else:
                mark.shared = True
        # A second write of the same owner to the same path changes nothing about what an undo puts there.
        if recording and self._fresh.get(path, _NEVER) is not writer:
            self._writes.append((writer, path, root))
            self._fresh[path] = writer
        if goes:
            self._fresh.clear()

    def own(self, mark: MemoryMark) -> list[Write]:
        """What the mark covers and has not been undone, oldest first."""
        since = [write for write in self._writes[mark.position :] if write is not None]
        return [write for write in since if mark.covers(write[0])]

    def forget(self, mark: MemoryMark) -> None:
        """What the savepoint covers was undone: it is in no root but in those of newer snapshots."""
        writes = self._writes
        self._fresh.clear()
        count = len(writes)
        if mark.shared:
            for index in range(mark.position, count):
                write = writes[index]
                if write is not None and mark.covers(write[0]):
                    writes[index] = None
            while len(writes) > mark.position and writes[-1] is None:
                writes.pop()
        else:
            del writes[mark.position :]
        mark.touched = None
        if len(self.open) > 1 or self._bare:
            self._note_undone(mark, undone=count > mark.position)

    def _note_undone(self, mark: MemoryMark, *, undone: bool) -> None:
        self._bare = [bare for bare in self._bare if bare.alive]
        for other in (*self.open, *self._bare):
            other.position = min(other.position, len(self._writes))
            other.touched = None
            if other.opened > mark.opened:
                other.shared = other.shared or undone
                if not other.savepoint and mark.covers(other.owner):
                    other.alive = False

    def _touched(self, mark: MemoryMark) -> TouchedPaths:
        found = mark.touched
        if found is None:
            found = mark.touched = TouchedPaths(mark.position)
        for write in self._writes[found.seen :]:
            if write is not None and mark.covers(write[0]):
                found.add(write[1])
        found.seen = len(self._writes)
        return found


def without(root: Directory, writes: list[Write]) -> Directory:
    """The root with these writes undone, newest first."""
    for _, path, before in reversed(writes):
        parent = lookup(before, path.rpartition("/")[0] or ROOT)
        root = restore_node(root, path, lookup(before, path), 0.0 if parent is None else parent.modified)
    return root


# Snapshots of files in memory: each is a root, which never changes.


@final
class MemorySnapshot:
    """A moment of an `InMemoryFilesystem`. It owns that state: dropping it is enough to free it.

    `mark` is its place in the log of writes: that of a savepoint, or of a bare one taken while a savepoint was open.
    """

    __slots__ = ("__weakref__", "_hold", "_log", "_root", "mark")

    def __init__(self, root: Directory, log: TouchedLog, period: TouchedSince, mark: MemoryMark | None) -> None:
        self._root: Directory | None = root
        self._log = log
        self.mark: MemoryMark | None = mark
        self._hold = log.hold(period, self, mark)

    def state(self, log: TouchedLog) -> tuple[Directory, TouchedSince]:
        """What to restore; `SnapshotError` when it was released or is another filesystem's."""
        if self._log is not log:
            raise SnapshotError("This snapshot was taken of another filesystem; restore it there.")
        root, period = self._root, self._hold.period
        if root is None or period is None:
            raise SnapshotError("This snapshot was released; keep it unreleased for as long as it may be needed.")
        return root, period

    def release(self) -> None:
        """Free the state, under the filesystem's lock; once is enough, more does nothing."""
        if self._root is not None:
            self._root = None
            self._log.let_go(self._hold)


def state_of(snapshot: object, log: TouchedLog) -> tuple[Directory, TouchedSince]:
    """What to restore; `SnapshotError` for what is not a snapshot of that log's filesystem."""
    if not isinstance(snapshot, MemorySnapshot):
        raise SnapshotError(f"A snapshot of this filesystem is needed, not {type(snapshot).__name__}.")
    return snapshot.state(log)
