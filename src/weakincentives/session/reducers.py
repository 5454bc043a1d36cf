"""Reducers: pure functions from a slice's content and an event to an operation.

`(view, event) -> Append | Extend | Replace | Clear`. A reducer runs under the session's lock, so it must be quick and
must not write to the session (that raises). One that raises makes the dispatch raise `ReducerError`, and nothing of
that dispatch is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast, final

from ..errors import ReducerError
from .vector import EMPTY, Vector

# What a reducer asks for: the four things that can happen to a slice. No slots: on Python 3.11 a generic dataclass
# that is frozen and has slots breaks when made as `Append[int](1)`.


T = TypeVar("T")


@final
@dataclass(frozen=True)
class Append(Generic[T]):
    """Add one item at the end.

    >>> apply(Append(3), Vector([1, 2]), int, append_only=False)
    Vector([1, 2, 3])
    """

    value: T


@final
@dataclass(frozen=True)
class Extend(Generic[T]):
    """Add items at the end, in their order.

    >>> apply(Extend([3, 4]), Vector([1, 2]), int, append_only=False)
    Vector([1, 2, 3, 4])
    """

    values: Iterable[T]


@final
@dataclass(frozen=True)
class Replace(Generic[T]):
    """Make these the only items. A `Vector` (such as `view.set(0, item)`) is taken as it is, in constant time.

    >>> apply(Replace([9]), Vector([1, 2]), int, append_only=False)
    Vector([9])
    """

    values: Iterable[T]


@final
@dataclass(frozen=True)
class Clear(Generic[T]):
    """Remove the items that satisfy `predicate`, or all of them without one.

    >>> apply(Clear(lambda number: number == 1), Vector([1, 2]), int, append_only=False)
    Vector([2])
    """

    predicate: Callable[[T], object] | None = None


SliceOp = Append[T] | Extend[T] | Replace[T] | Clear[T]
"""What a reducer returns."""


def apply(op: object, content: Vector[Any], slice_type: type[Any], *, append_only: bool) -> Vector[Any]:
    """The slice's content after `op`.

    Raises TypeError for something that is not an operation, for an item that is not an instance of the slice's type,
    and for anything but adding to an append-only slice.
    """
    return _apply(type(op), op, content, slice_type, append_only)


def _apply(kind: type[object], op: Any, content: Vector[Any], slice_type: type[Any], append_only: bool) -> Vector[Any]:
    if kind is Append:
        return content.append(checked(op.value, slice_type))
    if kind is Extend:
        return content.extend(checked_all(op.values, slice_type))
    if kind is not Replace and kind is not Clear:
        raise TypeError(
            f"a reducer returns Append, Extend, Replace or Clear, but this one returned {kind.__qualname__}"
        )
    if append_only:
        raise TypeError(
            f"{slice_type.__qualname__} is a LOG slice: it takes Append and Extend, not {kind.__qualname__}"
        )
    if kind is Replace:
        values: Iterable[Any] = op.values
        return values if isinstance(values, Vector) else EMPTY.extend(checked_all(values, slice_type))
    return EMPTY if op.predicate is None else content.without(op.predicate)


def checked(value: object, slice_type: type[Any]) -> Any:
    """The value, if it belongs in the slice; raises TypeError if it does not."""
    if isinstance(value, slice_type):
        return value
    raise TypeError(f"the slice of {slice_type.__qualname__} cannot hold a {type(value).__qualname__}")


def checked_all(values: Iterable[Any], slice_type: type[Any]) -> list[Any]:
    """All of the values, if they belong in the slice; raises TypeError if one does not."""
    items = list(values)
    for item in items:
        if not isinstance(item, slice_type):
            checked(item, slice_type)
    return items


E = TypeVar("E")
S = TypeVar("S")

Reducer = Callable[[Vector[T], E], SliceOp[T]]
"""`(view, event) -> operation`. The view never changes; keeping it is safe."""

_MARK = "__wink_reducer_on__"


def append_all(view: Vector[T], event: T, /) -> SliceOp[T]:
    """Add the event to the slice: what happens to an event without reducers.

    >>> append_all(Vector([1]), 2)
    Append(value=2)
    """
    del view
    return Append(event)


def replace_latest(view: Vector[T], event: T, /) -> SliceOp[T]:
    """Keep the event alone: a slice that holds one current value.

    >>> replace_latest(Vector([1]), 2)
    Replace(values=(2,))
    """
    del view
    return Replace((event,))


@final
@dataclass(frozen=True, slots=True)
class _UpsertBy:
    key: Callable[[Any], Hashable]

    def __call__(self, view: Vector[Any], event: Any, /) -> SliceOp[Any]:
        wanted = self.key(event)
        same = [place for place, item in enumerate(view) if self.key(item) == wanted]
        if not same:
            return Append(event)
        *older, place = same
        replaced = view.set(place, event)
        if not older:
            return Replace(replaced)
        # Duplicates come from elsewhere: a seed, an append, a slice that was filled before this reducer was registered.
        gone = set(older)
        return Replace(Vector([item for index, item in enumerate(replaced) if index not in gone]))


@final
@dataclass(frozen=True, slots=True)
class _ReplaceLatestBy:
    key: Callable[[Any], Hashable]

    def __call__(self, view: Vector[Any], event: Any, /) -> SliceOp[Any]:
        wanted = self.key(event)
        return Replace(view.without(lambda item: self.key(item) == wanted).append(event))


def upsert_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """One item per key: an event takes the place of the newest item with its key, or is added at the end.

    Older items with its key are removed. Finding them is linear in the slice; putting the event there is not.

    >>> first_letter = upsert_by(lambda word: word[0])
    >>> first_letter(Vector(["ant", "bee"]), "asp").values
    Vector(['asp', 'bee'])
    """
    return _UpsertBy(key)


def replace_latest_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """One item per key, newest last: items with the event's key go, and the event is added at the end.

    >>> first_letter = replace_latest_by(lambda word: word[0])
    >>> first_letter(Vector(["ant", "bee"]), "asp").values
    Vector(['bee', 'asp'])
    """
    return _ReplaceLatestBy(key)


def reducer(*, on: type[E]) -> Callable[[Callable[[S, E], S | SliceOp[S]]], Callable[[S, E], S | SliceOp[S]]]:
    """Make a method of a frozen dataclass the reducer of `on` events, once `session.install` has been told of it.

    The method gets the latest state as `self` (the initial one while the slice is empty) and the event. It returns
    the new state, which becomes the slice's only item, or an operation. It may be decorated for several events.
    """
    if not isinstance(on, type):
        raise TypeError(f"@reducer(on=...) takes an event class, not {on!r}.")

    def mark(method: Callable[[S, E], S | SliceOp[S]]) -> Callable[[S, E], S | SliceOp[S]]:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), on))
        return method

    return mark


@final
@dataclass(frozen=True, slots=True)
class MethodReducer:
    """A method of an installed state type, as a reducer of its slice."""

    state_type: type[Any]
    name: str
    initial: Vector[Any] = field(compare=False)

    def __call__(self, view: Vector[Any], event: Any, /) -> SliceOp[Any]:
        """Call the method on the latest state."""
        states = view or self.initial
        outcome = getattr(states[-1], self.name)(event)
        if isinstance(outcome, self.state_type):
            return Replace((outcome,))
        if type(outcome) in (Append, Extend, Replace, Clear):
            return cast("SliceOp[Any]", outcome)
        raise TypeError(
            f"{self.state_type.__qualname__}.{self.name} must return a {self.state_type.__qualname__} or an "
            f"operation, but returned {type(outcome).__qualname__}"
        )


@lru_cache(maxsize=256)  # every evaluation installs some
def reducer_methods(state_type: type[Any]) -> tuple[tuple[type[Any], str], ...]:
    """The (event type, method name) pairs of a state type, bases first, in the order of their definition.

    Raises TypeError when it is not a frozen dataclass or has no such method.
    """
    params = getattr(state_type, "__dataclass_params__", None)
    if not is_dataclass(state_type) or not getattr(params, "frozen", False):
        raise TypeError(f"{state_type.__qualname__} must be a frozen dataclass to be installed.")
    names = dict.fromkeys(name for base in reversed(state_type.__mro__) for name in vars(base))
    pairs: list[tuple[type[Any], str]] = []
    for name in names:
        marks: tuple[type[Any], ...] = getattr(getattr(state_type, name, None), _MARK, ())
        pairs += [(event_type, name) for event_type in marks]
    if not pairs:
        raise TypeError(f"{state_type.__qualname__} has no method decorated with @reducer(on=Event).")
    return tuple(pairs)


def initial_state(state_type: type[T], initial: T | Callable[[], T] | None) -> T:
    """The state that `install(state_type, initial=initial)` begins with; TypeError when there is none."""
    if isinstance(initial, state_type):
        return cast("T", initial)
    name = state_type.__qualname__
    if initial is not None and not callable(initial):
        raise TypeError(f"initial= must be a {name} or make one, not a {type(initial).__qualname__}.")
    make: Callable[[], Any] = state_type if initial is None else initial
    try:
        made = make()
    except TypeError as error:
        if initial is not None:
            raise
        raise TypeError(f"{name} cannot be made without arguments: pass install({name}, initial=...).") from error
    if not isinstance(made, state_type):
        raise TypeError(f"initial= made a {type(made).__qualname__}, not a {name}.")
    return made


# Which reducers run for an event, and what one of them makes of a slice.


AnyReducer = Callable[[Vector[Any], Any], object]


class ReducerStep(NamedTuple):
    """One reducer to run for an event, and the slice it reduces."""

    slice_type: type[Any]
    reducer: AnyReducer


class DispatchPlan(NamedTuple):
    """What recording an event of one type does; worked out once, until something is registered."""

    appends: bool
    is_log: bool
    steps: tuple[tuple[ReducerStep, bool], ...]
    is_pending: bool
    """Whether it is a LOG only because of a call that may still be undone."""


def with_step(step: ReducerStep, steps: tuple[ReducerStep, ...] | None) -> tuple[ReducerStep, ...]:
    """The steps of an event with one more; an equal one is replaced where it stands."""
    if steps is None or step not in steps:
        return (*(steps or ()), step)
    return tuple(step if known == step else known for known in steps)


def reduced(step: ReducerStep, content: Vector[Any], event: object, append_only: bool) -> Vector[Any]:
    """The slice's content after the event; `ReducerError` when the reducer raises."""
    slice_type, reducer = step
    try:
        return apply(reducer(content, event), content, slice_type, append_only=append_only)
    except Exception as error:
        text = str(error).encode("ascii", "backslashreplace").decode()
        raise ReducerError(
            f"The reducer of {slice_type.__qualname__} for {type(event).__qualname__} raised "
            f"{type(error).__qualname__}: {text}. Nothing of this dispatch was applied."
        ) from error


def repeated(step: ReducerStep, event: object, content: Vector[Any]) -> Vector[Any]:
    """The same once more, on the content as it is without the undone writes; raises what the reducer raises."""
    slice_type, reducer = step
    return apply(reducer(content, event), content, slice_type, append_only=False)
