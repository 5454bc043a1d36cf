"""Made-up requests, for looking at an agent whose tools do not depend on the request."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any, cast


class NoStandInError(Exception):
    """Nothing can be made up for a type."""


def stand_in(wanted: Any, which: int, name: str = "request") -> Any:
    """A value of the type. That for `which` 0 differs from that for 1 wherever the type allows it.

    `NoStandInError` for types that are neither plain data nor dataclasses of it, and for values that a class refuses.
    """
    if wanted is str:
        return f"(the {name})" if which == 0 else f"(another {name})"
    if wanted in {int, float, bool}:
        return wanted(which)
    if wanted is type(None):
        return None
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _made(wanted, which)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return list(wanted)[-which]
    return _composed(typing.get_origin(wanted) or wanted, typing.get_args(wanted), which, name)


def _composed(origin: Any, arguments: tuple[Any, ...], which: int, name: str) -> Any:
    if origin in {typing.Annotated, typing.Union, types.UnionType}:
        return stand_in(arguments[0], which, name)
    if origin is typing.Literal:
        return arguments[-which]
    if origin in {list, tuple, set, frozenset, dict}:
        items = [stand_in(arguments[0], which, name)] if which and arguments and origin is not dict else []
        return cast("Any", origin)(items)
    raise NoStandInError(str(origin))


def _made(cls: type[Any], which: int) -> Any:
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(cls, include_extras=True)
        fields = [field for field in dataclasses.fields(cls) if field.init]
        return cls(**{field.name: stand_in(hints[field.name], which, field.name) for field in fields})
    except NoStandInError:
        raise
    except Exception as error:
        raise NoStandInError(cls.__name__) from error


__all__ = ["NoStandInError", "stand_in"]
