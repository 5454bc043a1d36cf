"""`session[T]`: reading and writing the slice of one type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, final

from ..fence import Guard
from .events import SlicePolicy
from .operations import checked, checked_all
from .reducers import Reducer
from .state import Core
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

    def __init__(self, core: Core, guard: Guard | None, slice_type: type[T]) -> None:
        self._core = core
        self._guard = guard
        self._type = slice_type

    def latest(self) -> T | None:
        """The newest item, or None when there is none."""
        return self._core.view(self._type).latest()

    def all(self) -> Vector[T]:
        """All items, oldest first: a view that never changes, in constant time, whoever writes meanwhile."""
        return self._core.view(self._type)

    def count(self) -> int:
        """How many items there are."""
        return len(self._core.view(self._type))

    def where(self, predicate: Callable[[T], object]) -> tuple[T, ...]:
        """The items that satisfy `predicate`, oldest first, as they are now."""
        return tuple(item for item in self._core.view(self._type) if predicate(item))

    @property
    def policy(self) -> SlicePolicy:
        """Whether a restore takes the slice back (STATE) or not (LOG)."""
        return self._core.policy(self._type)

    def seed(self, values: T | Iterable[T], /) -> None:
        """Make one item, or several, the only content; no reducer runs and nobody is told.

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
        """Add an item at the end; no reducer runs and nobody is told. Raises TypeError for another type."""
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
        nothing. Registrations are not state: no restore takes them back, but the undo of a call takes its own back.
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


__all__ = ["Slice"]
