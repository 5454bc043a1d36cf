"""Snapshots of files on disk: a stack of positions in a list of changes. Taking one touches no disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final
from weakref import ref

from ...errors import SnapshotError
from ...fence import Owner
from ..ownership import TouchedPaths, covers


class Mark:
    """A position that somebody may want to go back to.

    A savepoint recovers after a crash; a bare mark ends with its process. `owner` is whose changes are undone, with
    `for_all` those outside of calls as well; None stands for everybody's. `manifest` is only set by `watch="scan"`.
    `touched` holds the paths of its changes; it is only made when somebody else writes meanwhile.
    """

    __slots__ = ("alive", "for_all", "manifest", "note", "owner", "position", "savepoint", "touched")

    manifest: Any
    note: Any

    def __init__(
        self, position: int, savepoint: bool = False, owner: Owner | None = None, for_all: bool = False
    ) -> None:
        self.position = position
        self.savepoint = savepoint
        self.owner = owner
        self.for_all = for_all
        self.alive = True
        self.touched: TouchedPaths | None = None

    def covers(self, writer: Owner | None) -> bool:
        """Whether a change of that writer is undone with it."""
        if covers(self.owner, writer, for_all=self.for_all):
            return True
        # A bare mark that outlives the call it was made in is nobody's in particular any more.
        return not self.savepoint and self.owner is not None and self.owner.holder is None


@final
class HostSnapshot:
    """A state of a `HostFilesystem`, to be given back to it.

    It is worthless once it was released, or once an older one was restored. One that nobody holds any more
    counts as released.
    """

    __slots__ = ("__weakref__", "dropped", "mark")

    def __init__(self, mark: Mark, dropped: list[Dropped]) -> None:
        self.mark = mark
        self.dropped = dropped

    def __repr__(self) -> str:
        return f"<HostSnapshot {'valid' if self.mark.alive else 'over'}>"


@final
class Dropped(ref[HostSnapshot]):
    """Leaves a note when a snapshot is gone, which may be at any moment in any thread.

    The note is made by `list.append` itself: in Python code of ours an interrupt could be raised, and would be lost.
    """

    __slots__ = ("mark",)

    mark: Mark


@final
class Savepoints:
    """The live marks, oldest first, and the notes of those that were dropped."""

    __slots__ = ("dropped", "live")

    def __init__(self) -> None:
        self.live: list[Mark] = []
        self.dropped: list[Dropped] = []

    def push(self, mark: Mark) -> HostSnapshot:
        """One more, the newest."""
        snapshot = HostSnapshot(mark, self.dropped)
        note = mark.note = Dropped(snapshot, self.dropped.append)
        note.mark = mark
        self.live.append(mark)  # last: interrupted before, there is nothing to release
        return snapshot

    def check(self, snapshot: object) -> Mark:
        """The snapshot's mark; `SnapshotError` when it is another filesystem's or over."""
        mark = self._own(snapshot)
        if not mark.alive:
            raise SnapshotError("This snapshot is over: it was released, or an older one was restored. Take a new one.")
        return mark

    def check_restorable(self, snapshot: object) -> Mark:
        """As `check`; a bare one below a live savepoint is refused, as that could then not be restored any more."""
        mark = self.check(snapshot)
        if not mark.savepoint and any(newer.savepoint for newer in self._newer(mark)):
            raise SnapshotError(
                "This snapshot is older than a call or transaction that is still open, whose own undo it would take "
                "away. Restore it when that is over, or take a snapshot inside."
            )
        return mark

    def release(self, snapshot: object) -> Mark | None:
        """Forget it; None when it was over already."""
        mark = self._own(snapshot)
        if not mark.alive:
            return None
        self._forget(mark)
        return mark

    def rewind(self, mark: Mark) -> None:
        """Make all newer ones worthless that belong to it."""
        if self.live[-1] is not mark:
            for newer in list(self._newer(mark)):
                if covers(mark.owner, newer.owner, for_all=mark.for_all):
                    self._forget(newer)

    def lower(self, position: int) -> None:
        """No mark is above that position: changes below it were undone."""
        for mark in reversed(self.live):
            if mark.position <= position:
                break
            mark.position = position

    def collect(self) -> bool:
        """Forget those that nobody holds; whether there were any."""
        found = False
        while self.dropped:
            mark = self.dropped.pop().mark
            if mark.alive:
                self._forget(mark)
                found = True
        return found

    def clear(self) -> None:
        """Forget all."""
        for mark in self.live:
            mark.alive, mark.note = False, None
        self.live.clear()

    def _newer(self, mark: Mark) -> Iterator[Mark]:
        for other in reversed(self.live):
            if other is mark:
                return
            yield other

    def _own(self, snapshot: object) -> Mark:
        if not isinstance(snapshot, HostSnapshot) or snapshot.dropped is not self.dropped:
            raise SnapshotError("This snapshot is not of this filesystem; restore it where it was taken.")
        return snapshot.mark

    def _forget(self, mark: Mark) -> None:
        mark.alive = False
        mark.note = None
        live = self.live
        if live and live[-1] is mark:  # nearly always; this runs for every tool call
            live.pop()
        elif mark in live:
            live.remove(mark)


__all__ = ["HostSnapshot", "Mark", "Savepoints"]
