"""Protocols shared by packages that must not import one another."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

SnapshotT = TypeVar("SnapshotT")


@runtime_checkable
class Snapshotable(Protocol[SnapshotT]):
    """Something whose state can be restored.

    `snapshot()` must be cheap: one is taken for every tool call. `restore(s)` restores exactly the state at
    `snapshot()`, any number of times; it must leave the object usable even when it raises. A class may also be a
    `ReleasingSnapshotable` or a `ReportingSnapshotable`; the engine looks for that once, when a call has ended.
    """

    def snapshot(self) -> SnapshotT:
        """Remember the state as it is now."""
        ...

    def restore(self, snapshot: SnapshotT, /) -> None:
        """Restore the remembered state."""
        ...


@runtime_checkable
class ReleasingSnapshotable(Snapshotable[SnapshotT], Protocol[SnapshotT]):
    """One that keeps something for each snapshot, and wants to know when it may drop that."""

    def release(self, snapshot: SnapshotT, /) -> None:
        """The snapshot will not be restored again; releasing twice does nothing."""
        ...


@runtime_checkable
class ReportingSnapshotable(Snapshotable[SnapshotT], Protocol[SnapshotT]):
    """One that can say what a call changed, for the call's event and for the text that the model reads."""

    def changes(self, since: SnapshotT, /) -> object:
        """What differs from the snapshot: a `FileChanges`, or something else that the engine leaves out."""
        ...


@runtime_checkable
class Recordable(Snapshotable[SnapshotT], Protocol[SnapshotT]):
    """One whose state can be on record, so that a run that was interrupted goes on with it.

    Deltas are JSON data: dicts with texts as keys, lists, texts, numbers, booleans, None. One that would not come back
    from JSON as it is ends the run with `RunFormatError`, and its call is undone; so does a `record_delta` that raises.
    The record keeps a snapshot of its own from one row to the next, beside those of calls, and gives it back in any
    order: snapshots must not depend on one another. Both methods are called where `snapshot` is, and must not wait.
    """

    def record_delta(self, since: SnapshotT | None, /) -> Any:
        """What changed since one of its snapshots, None when nothing did. Without a snapshot: all that it holds."""
        ...

    def apply(self, delta: Any, /) -> None:
        """Make the changes again that `record_delta` told; one of all that it held replaces what is there.

        Deltas come in the order in which they were told, each once, first one of all that it held. When it raises, the
        resource is restored from a snapshot and the run does not go on.
        """
        ...


@runtime_checkable
class Closeable(Protocol):
    """A resource with something to clean up."""

    def close(self) -> None:
        """Clean up; called once, by the context that built it."""
        ...


@runtime_checkable
class PostConstruct(Protocol):
    """A resource with set-up work after construction."""

    def post_construct(self) -> None:
        """Called once, right after the provider returned."""
        ...
