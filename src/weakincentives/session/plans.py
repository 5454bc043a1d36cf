"""What recording an event does to the slices: which reducers run, and what one of them makes of a slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ReducerError
from .operations import apply
from .vector import Vector

AnyReducer = Callable[[Vector[Any], Any], object]


class Step(NamedTuple):
    """One reducer to run for an event, and the slice it reduces."""

    slice_type: type[Any]
    reducer: AnyReducer


class Plan(NamedTuple):
    """What recording an event of one type does; worked out once, until something is registered."""

    appends: bool
    is_log: bool
    steps: tuple[tuple[Step, bool], ...]
    is_pending: bool
    """Whether it is a LOG only because of a call that may still be undone."""


def with_step(step: Step, steps: tuple[Step, ...] | None) -> tuple[Step, ...]:
    """The steps of an event with one more; an equal one is replaced where it stands."""
    if steps is None or step not in steps:
        return (*(steps or ()), step)
    return tuple(step if known == step else known for known in steps)


def reduced(step: Step, content: Vector[Any], event: object, append_only: bool) -> Vector[Any]:
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


def repeated(step: Step, event: object, content: Vector[Any]) -> Vector[Any]:
    """The same once more, on the content as it is without what an undo took away; raises what the reducer raises."""
    slice_type, reducer = step
    return apply(reducer(content, event), content, slice_type, append_only=False)


__all__ = ["AnyReducer", "Plan", "Step", "reduced", "repeated", "with_step"]
