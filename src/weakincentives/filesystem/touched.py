"""Which paths were touched since each living snapshot; nothing is remembered when there is none.

The log is a row of periods, oldest first. A snapshot opens a period and holds on to it; a write notes its path in the
newest. What changed since a snapshot is in its own period and the later ones. A period that no snapshot holds any more
is merged into the one before it, or forgotten when there is none, so there are never more than living snapshots.
"""

from __future__ import annotations

from collections import deque


class Period:
    """The paths touched from one snapshot to the next, and how many snapshots opened it."""

    __slots__ = ("after", "before", "holders", "paths")

    def __init__(self, before: Period | None) -> None:
        self.before = before
        self.after: Period | None = None
        self.holders = 1
        self.paths: set[str] = set()


class TouchedLog:
    """Not safe by itself: its owner calls it under a lock, except for `let_go`."""

    __slots__ = ("_let_go", "_newest")

    def __init__(self) -> None:
        self._newest: Period | None = None
        self._let_go: deque[Period] = deque()

    def open(self) -> Period:
        """The period that starts now; the newest one when nothing was touched in it."""
        if self._let_go:
            self._sweep()
        newest = self._newest
        if newest is not None and not newest.paths:
            newest.holders += 1
            return newest
        period = self._newest = Period(newest)
        if newest is not None:
            newest.after = period
        return period

    def let_go(self, period: Period) -> None:
        """One holder fewer. May be called at any moment from any thread, also by the garbage collector."""
        self._let_go.append(period)

    def note(self, path: str) -> None:
        """Something at or below the path changed."""
        if self._let_go:
            self._sweep()
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

    def _sweep(self) -> None:
        while self._let_go:
            period = self._let_go.popleft()
            period.holders -= 1
            if not period.holders:
                self._unlink(period)

    def _unlink(self, period: Period) -> None:
        before, after = period.before, period.after
        if before is not None:
            before.paths |= period.paths
            before.after = after
        if after is not None:
            after.before = before
        else:
            self._newest = before


__all__ = ["Period", "TouchedLog"]
