"""Snapshots of files in memory: each is a root, which never changes."""

from __future__ import annotations

from typing import final

from ..errors import SnapshotError
from .nodes import Directory
from .touched import Period, TouchedLog
from .write_log import MemoryMark


@final
class MemorySnapshot:
    """A moment of an `InMemoryFilesystem`. It owns that state: dropping it is enough to free it.

    `mark` is its place in the log of writes: that of a savepoint, or of a bare one taken while a savepoint was open.
    """

    __slots__ = ("__weakref__", "_hold", "_log", "_root", "mark")

    def __init__(self, root: Directory, log: TouchedLog, period: Period, mark: MemoryMark | None) -> None:
        self._root: Directory | None = root
        self._log = log
        self.mark = mark
        self._hold = log.hold(period, self, mark)

    def state(self, log: TouchedLog) -> tuple[Directory, Period]:
        """What to go back to; `SnapshotError` when it was released or is another filesystem's."""
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


def state_of(snapshot: object, log: TouchedLog) -> tuple[Directory, Period]:
    """What to go back to; `SnapshotError` for what is not a snapshot of that log's filesystem."""
    if not isinstance(snapshot, MemorySnapshot):
        raise SnapshotError(f"A snapshot of this filesystem is needed, not {type(snapshot).__name__}.")
    return snapshot.state(log)


__all__ = ["MemorySnapshot", "state_of"]
