"""Metadata that pydantic would ignore: a dict in `Annotated`, where `field(metadata=)` takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, Field

from ..errors import SchemaError

_KNOWN = frozenset(inspect.signature(Field).parameters)
"""What a field's metadata may say; other keys are somebody else's business in both places."""


def refuse_unread_metadata(form: Any, names_for: Callable[[Any], dict[str, Any]]) -> None:
    """Raise `SchemaError` for a limit that would not be kept: `Annotated[str, {"min_length": 1}]`, at any depth.

    `names_for` gives the names that annotations of a class inside a function may use.
    """
    _look(form, getattr(form, "__name__", str(form)), names_for, set())


def _look(form: Any, where: str, names_for: Callable[[Any], dict[str, Any]], seen: set[Any]) -> None:
    said: Any = getattr(form, "__supertype__", None) or getattr(form, "__value__", None)  # NewType, `type X = ...`
    if said is not None and not isinstance(form, type):
        _look(said, where, names_for, seen)
        return
    if get_origin(form) is Annotated:
        form, *metadata = get_args(form)
        for item in metadata:
            _check(item, where)
        _look(form, where, names_for, seen)
        return
    for part in get_args(form):
        _look(part, where, names_for, seen)
    cls = get_origin(form) or form
    if isinstance(cls, type) and cls not in seen and _has_fields(cls):
        seen.add(cls)
        for name, hint in _hints(cls, names_for).items():
            _look(hint, f"{cls.__name__}.{name}", names_for, seen)


def _check(metadata: object, where: str) -> None:
    known = [str(key) for key in cast("Mapping[Any, Any]", metadata) if key in _KNOWN] if _is_dict(metadata) else []
    if known:
        raise SchemaError(
            f"{where} has {metadata!r} in Annotated, where it would be ignored. "
            f"Write Annotated[..., Field({known[0]}=...)], or field(metadata={{{known[0]!r}: ...}})."
        )


def _is_dict(metadata: object) -> bool:
    return isinstance(metadata, Mapping)


def _has_fields(cls: type[Any]) -> bool:
    return is_dataclass(cls) or is_typeddict(cls) or hasattr(cls, "_fields") or issubclass(cls, BaseModel)


def _hints(cls: type[Any], names_for: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    try:
        return get_type_hints(cls, localns=names_for(cls), include_extras=True)
    except Exception:  # noqa: BLE001 - pydantic resolved them in another way, or not at all: then it has said so
        return {}


__all__ = ["refuse_unread_metadata"]
