"""What code that is handed a session may rely on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..fence import Guard
from .events import Dispatcher, DispatchResult
from .slices import Slice
from .snapshots import SliceChange, Snapshot

T = TypeVar("T")


@runtime_checkable
class SessionProtocol(Protocol):
    """State by type, changed by events, that can be taken back. `Session` is the implementation."""

    @property
    def session_id(self) -> str:
        """The same for every handle of the session, and after it was saved and loaded."""
        ...

    @property
    def tags(self) -> Mapping[str, str]:
        """What its creator noted about it."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """Where subscribers are; dispatching there changes no slice."""
        ...

    @property
    def event_bus(self) -> Dispatcher:
        """The same object as `dispatcher`."""
        ...

    def __getitem__(self, slice_type: type[T], /) -> Slice[T]:
        """The slice of a type."""
        ...

    def dispatch(self, event: object, /) -> DispatchResult:
        """Record the event, then tell the subscribers."""
        ...

    def record(self, event: object, /) -> None:
        """Record the event and tell nobody."""
        ...

    def note(self, key: object, value: object, /) -> None:
        """Remember a fact beside the slices; None forgets it."""
        ...

    def noted(self, key: object, /) -> Any:
        """What was noted under the key, or None."""
        ...

    def install(self, state_type: type[T], /, *, initial: T | Callable[[], T] | None = None) -> None:
        """Register the `@reducer` methods of a state type."""
        ...

    def snapshot(self) -> Snapshot:
        """Remember the content as it is now."""
        ...

    def restore(self, snapshot: Snapshot, /) -> None:
        """Bring the STATE slices back."""
        ...

    def release(self, snapshot: Snapshot, /) -> None:
        """Forget a snapshot."""
        ...

    def changes(self, since: Snapshot, /, *, logs: bool = False) -> tuple[SliceChange, ...]:
        """The slices written to since a snapshot."""
        ...

    def reset(self) -> None:
        """Give the STATE slices their initial content."""
        ...

    def fork(self) -> SessionProtocol:
        """A child with the same content; neither sees what the other does afterwards."""
        ...

    def guarded(self, guard: Guard, /) -> SessionProtocol:
        """Another handle on this session, whose every write happens inside `guard`."""
        ...


__all__ = ["SessionProtocol"]
