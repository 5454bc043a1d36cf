"""What a reducer asks for: the four things that can happen to a slice."""

# No slots: on Python 3.11 a generic dataclass that is frozen and has slots breaks when made as `Append[int](1)`.

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from .vector import EMPTY, Vector

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

    Raises TypeError for something that is no operation, for an item that is no instance of the slice's type, and for
    anything but adding to an append-only slice.
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


__all__ = ["Append", "Clear", "Extend", "Replace", "SliceOp", "apply", "checked", "checked_all"]
