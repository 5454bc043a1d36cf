"""Making events for listeners in half the time that their constructors take: a run makes very many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from .progress import ProgressEvent, RunEvent


@cache
def unfrozen(kind: Callable[..., ProgressEvent]) -> Callable[..., Any]:
    """What makes such an event from its fields by position, the common ones first and all of them given.

    The caller sets its `__class__`. In the constructor of a frozen dataclass each field is set by a function call.
    """
    its: Any = kind
    common = {each.name for each in fields(RunEvent)}
    parts: list[Any] = [
        each.name if each.name in common or each.default is MISSING else (each.name, Any, field(default=each.default))
        for each in fields(its)
    ]
    filled = make_dataclass(its.__name__, parts, repr=False, eq=False)
    settable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(its.__name__, (its,), {"__slots__": (), "__init__": filled.__init__, **settable})


def placed(event: ProgressEvent, run_id: str | None, step: int | None, path: tuple[str, ...]) -> ProgressEvent:
    """The same event as part of another run or agent; what `dataclasses.replace` does, for less."""
    kind = type(event)
    _, _, turn, at, _, *values = _fields_of(kind)(event)
    copy = unfrozen(kind)(run_id, step, turn, at, path, *values)
    copy.__class__ = kind
    return copy


@cache
def _fields_of(kind: type[ProgressEvent]) -> Callable[[ProgressEvent], tuple[Any, ...]]:
    return attrgetter(*[each.name for each in fields(kind)])


__all__ = ["placed", "unfrozen"]
