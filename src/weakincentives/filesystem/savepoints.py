"""Snapshots of files on disk: a stack of positions in a list of changes. Taking one touches no disk."""

from __future__ import annotations

from typing import Any, final

from ..errors import SnapshotError


@final
class Mark:
    """A position that somebody may want to go back to. `manifest` belongs to `watch="scan"`."""

    __slots__ = ("alive", "manifest", "position")

    def __init__(self, position: int, manifest: Any = None) -> None:
        self.position = position
        self.manifest = manifest
        self.alive = True


@final
class HostSnapshot:
    """A state of a `HostFilesystem`, to be given back to it.

    It is worthless once it was released, or once an older one was restored. One that nobody holds any more
    counts as released.
    """

    __slots__ = ("dropped", "mark")

    def __init__(self, mark: Mark, dropped: list[Mark]) -> None:
        self.mark = mark
        self.dropped = dropped

    def __del__(self) -> None:
        # May run at any moment in any thread, so it only leaves a note.
        if self.mark.alive:
            self.dropped.append(self.mark)

    def __repr__(self) -> str:
        return f"<HostSnapshot {'valid' if self.mark.alive else 'over'}>"


@final
class Savepoints:
    """The live marks, oldest first, and the notes of those that were dropped."""

    __slots__ = ("dropped", "live")

    def __init__(self) -> None:
        self.live: list[Mark] = []
        self.dropped: list[Mark] = []

    def push(self, position: int, manifest: Any = None) -> HostSnapshot:
        """One more, the newest."""
        mark = Mark(position, manifest)
        self.live.append(mark)
        return HostSnapshot(mark, self.dropped)

    def check(self, snapshot: object) -> Mark:
        """The snapshot's mark; `SnapshotError` when it is another filesystem's or over."""
        mark = self._own(snapshot)
        if not mark.alive:
            raise SnapshotError("This snapshot is over: it was released, or an older one was restored. Take a new one.")
        return mark

    def release(self, snapshot: object) -> bool:
        """Forget it; False when it was over already."""
        mark = self._own(snapshot)
        if not mark.alive:
            return False
        if self.live[-1] is mark:  # nearly always; this runs for every tool call
            mark.alive = False
            self.live.pop()
        else:
            self._forget(mark)
        return True

    def rewind(self, mark: Mark) -> None:
        """Make all newer ones worthless."""
        while self.live[-1] is not mark:
            self.live.pop().alive = False

    def collect(self) -> bool:
        """Forget those that nobody holds; whether there were any."""
        found = False
        while self.dropped:
            mark = self.dropped.pop()
            if mark.alive:
                self._forget(mark)
                found = True
        return found

    def clear(self) -> None:
        """Forget all."""
        for mark in self.live:
            mark.alive = False
        self.live.clear()

    def _own(self, snapshot: object) -> Mark:
        if not isinstance(snapshot, HostSnapshot) or snapshot.dropped is not self.dropped:
            raise SnapshotError("This snapshot is not of this filesystem; restore it where it was taken.")
        return snapshot.mark

    def _forget(self, mark: Mark) -> None:
        mark.alive = False
        if self.live[-1] is mark:
            self.live.pop()
        else:
            self.live.remove(mark)


__all__ = ["HostSnapshot", "Mark", "Savepoints"]
