"""Functions that a section asks when it is rendered: whether it is there, and how much of it shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

from ..signatures import signature_of

T = TypeVar("T")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@final
class Condition(Generic[T]):
    """A function of the section's params, or of nothing, called in one way. TypeError when it is neither."""

    __slots__ = ("_function", "wants_params")

    def __init__(self, function: Callable[..., T]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError("it is async, but sections are rendered without waiting. Use a plain function")
        self._function = function
        self.wants_params = _takes_argument(function)

    def __call__(self, params: object) -> T:
        """What the function says; whatever it raises passes through."""
        return self._function(params) if self.wants_params else self._function()


def _takes_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return True
    required = [p for p in parameters if p.default is p.empty and p.kind in _POSITIONAL]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError("it must take the section's params, or nothing")
    return bool(required) or any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters)


__all__ = ["Condition"]
