"""Protocols shared by packages that must not know one another."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

SnapshotT = TypeVar("SnapshotT")


@runtime_checkable
class Snapshotable(Protocol[SnapshotT]):
    """Something whose state can be taken back.

    `snapshot()` must be cheap: one is taken for every tool call. `restore(s)` brings back exactly the state at
    `snapshot()`, any number of times; it must leave the object usable even when it raises. A class may
    also have `release(s)`: it says that `s` will not be restored again, so whatever is kept for it may go; releasing
    twice does nothing.
    """

    def snapshot(self) -> SnapshotT:
        """Remember the state as it is now."""
        ...

    def restore(self, snapshot: SnapshotT, /) -> None:
        """Bring the remembered state back."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A resource with something to clean up."""

    def close(self) -> None:
        """Clean up; called once, by whoever built it."""
        ...


@runtime_checkable
class PostConstruct(Protocol):
    """A resource with set-up work after construction."""

    def post_construct(self) -> None:
        """Called once, right after the provider returned."""
        ...


__all__ = ["Closeable", "PostConstruct", "Snapshotable"]
