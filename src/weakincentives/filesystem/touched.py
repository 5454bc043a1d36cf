"""Which paths were touched since each living snapshot; nothing is remembered when there is none.

The log is a row of periods, oldest first. A snapshot opens a period and holds on to it; a write notes its path in the
newest. What changed since a snapshot is in its own period and the later ones. A period that no snapshot holds any more
is merged into the one before it, or forgotten when there is none, so there are never more than living snapshots.
"""

from __future__ import annotations

from collections import deque
from typing import Any, final
from weakref import ref


class Period:
    """The paths touched from one snapshot to the next, and how many snapshots that opened it are left.

    `bare` are the holds of those that have no mark to keep them, by their ids.
    """

    __slots__ = ("after", "bare", "before", "holders", "paths")

    def __init__(self, before: Period | None) -> None:
        self.before = before
        self.after: Period | None = None
        self.holders = 0
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
    period: Period | None


class TouchedLog:
    """Not safe by itself: its owner calls it under a lock.

    `dropped` are the holds that were given up since somebody last looked.
    """

    __slots__ = ("_newest", "dropped")

    def __init__(self) -> None:
        self._newest: Period | None = None
        self.dropped: deque[Hold] = deque()

    def open(self) -> Period:
        """The period that starts now, for `hold`; the newest one when nothing was touched in it."""
        if self.dropped:
            self.sweep()
        newest = self._newest
        if newest is not None and not newest.paths:
            return newest
        period = self._newest = Period(newest)
        if newest is not None:
            newest.after = period
        return period

    def hold(self, period: Period, snapshot: object, mark: Any) -> Hold:
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

    def since(self, period: Period) -> set[str]:
        """All paths touched in the period and later."""
        later = period.after
        if later is None:
            return period.paths.copy()
        paths = set(period.paths)
        while later is not None:
            paths |= later.paths
            later = later.after
        return paths

    def rewind(self, period: Period) -> None:
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

    def _unlink(self, period: Period) -> None:
        before, after = period.before, period.after
        if before is not None:
            before.paths |= period.paths
            before.after = after
        if after is not None:
            after.before = before
        else:
            self._newest = before


__all__ = ["Hold", "Period", "TouchedLog"]
