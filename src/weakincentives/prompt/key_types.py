"""Which types of params keys can be made of, as far as their annotations show it."""

from __future__ import annotations

import types
from collections import abc
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel

from .canonical import has_form

_UNIONS = (Union, types.UnionType)
_ABSTRACT = (abc.Sequence, abc.MutableSequence, abc.Collection)
"""What pydantic fills with lists and the like."""


def unkeyable(params_type: Any, names: tuple[str, ...] = ()) -> str | None:
    """What in the type keeps keys from being made of its values, in words; None when nothing is known to.

    Only the fields in `names` are looked at, if there are any. Annotations that say nothing (`Any`, a type variable,
    a name that cannot be resolved here) are left to the call.
    """
    look = _Look()
    hints = _hints(get_origin(params_type) or params_type)
    for name in names:
        if name in hints:
            look.at(f"its field {name!r}", hints[name])
    if not names:
        look.at("it", params_type)
    return look.problem


@final
class _Look:
    """A walk through annotations that ends at the first problem."""

    __slots__ = ("_classes", "problem")

    def __init__(self) -> None:
        self._classes: dict[str, Any] = {}
        self.problem: str | None = None

    def at(self, where: str, hint: Any) -> None:
        origin = get_origin(hint)
        said = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)  # NewType, `type X = ...`
        if self.problem is not None or origin is Literal or _says_nothing(hint):
            return
        if origin is Annotated or said is not None:
            self.at(where, get_args(hint)[0] if said is None else said)
            return
        cls = origin or hint
        if isinstance(cls, type) and cls not in _UNIONS and not _is_known(cls):  # forward references show nothing
            self.problem = f"{where} holds values of the class {cls.__qualname__}, which cannot be compared"
        for inner in get_args(hint):
            self.at(where, inner)
        if self.problem is None:
            self._inside(where, cls)

    def _inside(self, where: str, cls: Any) -> None:
        """Look at a class that is known by its name, once."""
        hints = _hints(cls)
        if not hints and not (isinstance(cls, type) and issubclass(cls, Enum)):
            return
        known = self._classes.get(cls.__qualname__)
        if known is cls:
            return
        if known is not None:
            self.problem = f"{where} holds values of two classes named {cls.__qualname__}, which cannot be told apart"
        self._classes[cls.__qualname__] = cls
        for name, hint in hints.items():
            self.at(f"its field {name!r}" if where == "it" else f"{where}, in {cls.__qualname__}.{name},", hint)


def _says_nothing(hint: Any) -> bool:
    """Also pydantic's markers, such as `AwareDatetime`: their values are of other classes."""
    if hint is None or hint is Any or hint is object or hint is ... or isinstance(hint, str | TypeVar):
        return True
    return str(getattr(hint, "__module__", "")).partition(".")[0] == "pydantic" and not _is_known(hint)


def _is_known(cls: Any) -> bool:
    return is_typeddict(cls) or cls in _ABSTRACT or (isinstance(cls, type) and has_form(cast("type[Any]", cls)))


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, BaseModel)


def _hints(cls: Any) -> dict[str, Any]:
    """The annotations of a record's fields; nothing for other classes, and for names that cannot be resolved."""
    if _is_model(cls):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    names: Any = getattr(cls, "_fields", None)
    if is_dataclass(cls):
        names = [item.name for item in fields(cls)]
    if names is None and not is_typeddict(cls):
        return {}
    try:
        hints = get_type_hints(cls)
    except Exception:  # noqa: BLE001 - annotations are users' code, and may need names that are not here
        return {}
    return hints if names is None else {name: hints[name] for name in names if name in hints}


__all__ = ["unkeyable"]
