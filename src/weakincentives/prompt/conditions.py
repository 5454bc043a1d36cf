"""Functions that a section asks when it is rendered: whether it is there, and how much of it shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, final

from ..session.protocols import SessionProtocol
from ..signatures import signature_of

T = TypeVar("T")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@final
class Condition(Generic[T]):
    """A function of the section's params, of the session, of both or of nothing, called in one way.

    The session is what a parameter named `session` gets; it is None where a prompt is rendered without one, unless
    that parameter has a default. TypeError for a function that cannot be called like that.
    """

    __slots__ = ("_function", "_session_first", "_session_kind", "_session_optional", "needs_session", "wants_params")

    def __init__(self, function: Callable[..., T]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError("it is async, but sections are rendered without waiting. Use a plain function")
        self._function = function
        parameters = _parameters(function)
        session = _session_parameter(parameters)
        others = [parameter for parameter in parameters if parameter is not session]
        self.wants_params = _takes_argument(others)
        self._session_kind = None if session is None else session.kind
        self._session_optional = session is not None and session.default is not session.empty
        self._session_first = session is not None and session is parameters[0]
        self.needs_session = session is not None and not self._session_optional

    def __call__(self, params: object, session: SessionProtocol | None = None) -> T:
        """What the function says; whatever it raises passes through."""
        given = [params] if self.wants_params else []
        if self._session_kind is None or (session is None and self._session_optional):
            return self._function(*given)
        if self._session_kind is inspect.Parameter.KEYWORD_ONLY:
            return self._function(*given, session=session)
        return self._function(*((session, *given) if self._session_first else (*given, session)))


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return [inspect.Parameter("params", inspect.Parameter.POSITIONAL_ONLY)]


def _session_parameter(parameters: Sequence[inspect.Parameter]) -> inspect.Parameter | None:
    """The parameter that the session is passed to, by its name."""
    return next((p for p in parameters if p.name == "session" and p.kind not in _VARIADIC), None)


@lru_cache(maxsize=512)
def takes_session(method: Callable[..., Any]) -> bool:
    """Whether a method of a subclass knows of the session; those written without it are called without."""
    return _session_parameter(_parameters(method)) is not None


def _takes_argument(parameters: Sequence[inspect.Parameter]) -> bool:
    required = [p for p in parameters if p.default is p.empty and p.kind in _POSITIONAL]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError("it must take the section's params, or nothing, and may take session beside them")
    return bool(required) or any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters)


__all__ = ["Condition", "takes_session"]
