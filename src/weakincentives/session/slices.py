"""What code that is handed a session uses: `SessionProtocol`, and `session[T]`, the slice of one type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

from ..fence import Guard
from .events import Dispatcher, DispatchResult, SlicePolicy
from .reducers import Reducer, checked, checked_all
from .snapshots import SliceChange, Snapshot
from .state import SessionState
from .vector import Vector

T = TypeVar("T")
E = TypeVar("E")


@final
class Slice(Generic[T]):
    """The items of one type in a session.

    It holds no content of its own: every read shows the session as it is then. Reading never waits. Writing enters
    the guard of the handle it came from, so it raises once that handle's call is over.
    """

    __slots__ = ("_core", "_guard", "_type")

    def __init__(self, core: SessionState, guard: Guard | None, slice_type: type[T]) -> None:
        self._core = core
        self._guard = guard
        self._type = slice_type

    def latest(self) -> T | None:
        """The newest item, or None when there is none."""
        return self._core.latest(self._type)

    def all(self) -> Vector[T]:
        """All items, oldest first: a view that never changes, in constant time; later writes do not show in it."""
        return self._core.view(self._type)

    def count(self) -> int:
        """How many items there are."""
        return len(self._core.view(self._type))

    def where(self, predicate: Callable[[T], object]) -> tuple[T, ...]:
        """The items that satisfy `predicate`, oldest first, as they are now."""
        return tuple(item for item in self._core.view(self._type) if predicate(item))

    @property
    def policy(self) -> SlicePolicy:
        """Whether a restore resets the slice (STATE) or leaves it as it is (LOG)."""
        return self._core.policy(self._type)

    def seed(self, values: T | Iterable[T], /) -> None:
        """Make one item, or several, the only content; no reducer or subscriber is called.

        Raises TypeError for an item of another type, SessionError for a LOG slice that is not empty.
        """
        several: Iterable[Any] = (values,) if isinstance(values, self._type) else self._iterable(values)
        content = Vector(checked_all(several, self._type))
        if self._guard is None:
            self._core.replace(self._type, content)
            return
        with self._guard:
            self._core.replace(self._type, content)

    def append(self, value: T, /) -> None:
        """Add an item at the end; no reducer or subscriber is called. Raises TypeError for another type."""
        checked(value, self._type)
        if self._guard is None:
            self._core.append(self._type, value)
            return
        with self._guard:
            self._core.append(self._type, value)

    def clear(self, predicate: Callable[[T], object] | None = None, /) -> None:
        """Remove the items that satisfy `predicate`, or all of them.

        What the predicate raises passes through, and nothing is removed. Raises SessionError for a LOG slice.
        """
        if self._guard is None:
            self._core.clear(self._type, predicate)
            return
        with self._guard:
            self._core.clear(self._type, predicate)

    def register(self, event_type: type[E], reducer: Reducer[T, E], /, *, policy: SlicePolicy | None = None) -> None:
        """Run `reducer` on this slice for every dispatched event whose class is exactly `event_type`.

        Several reducers of one event run in the order of their registration; registering an equal one again changes
        nothing. Registrations are not state: no restore removes them, but the undo of a call removes its own.
        `policy` makes this slice a LOG (or says that it is STATE); raises SessionError if it is something else already.
        """
        if not isinstance(event_type, type):
            raise TypeError(f"register() takes an event class, not {event_type!r}.")
        if self._guard is None:
            self._core.register(self._type, event_type, reducer, policy)
            return
        with self._guard:
            self._core.register(self._type, event_type, reducer, policy)

    def __repr__(self) -> str:
        return f"<{self.policy.name} slice of {self._type.__qualname__}: {self.count()} items>"

    def _iterable(self, values: object) -> Iterable[Any]:
        if isinstance(values, Iterable) and not isinstance(values, str | bytes):
            return values  # pyright: ignore[reportUnknownVariableType] - each item is checked next
        raise TypeError(
            f"seed() takes a {self._type.__qualname__} or an iterable of them, not a {type(values).__qualname__}."
        )


@runtime_checkable
class SessionProtocol(Protocol):
    """State by type, changed by events, that can be restored. `Session` is the implementation."""

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
        """Record the event without calling subscribers."""
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
        """Restore the STATE slices."""
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
