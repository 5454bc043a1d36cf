"""Dumping: typed values become plain JSON data."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import SchemaError
from .renaming import renamed


def dump(value: object, *, computed: bool = False) -> Any:
    """Plain dicts, lists, strings, numbers, booleans and None that `parse` turns back into `value`.

    Fields have the names that `parse` reads, their aliases. What a class sets itself (`field(init=False)`, computed
    fields of pydantic models) is left out, since `parse` refuses it; `computed=True` keeps it, for a reader.

    Not-a-number and infinities become strings, since JSON has no form for them. `SchemaError` when something inside
    has no JSON form or contains itself.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    ...     tags: tuple[str, ...] = ()
    >>> dump(Point(1, ("a",)))
    {'x': 1, 'tags': ['a']}
    """
    try:
        return from_json(to_json(renamed(value, computed), inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def dump_json(value: object, *, indent: int | None = None, computed: bool = False) -> str:
    """`dump` as JSON text; compact unless an indent is given."""
    try:
        return to_json(renamed(value, computed), indent=indent, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def _no_form(value: object, error: Exception) -> SchemaError:
    return SchemaError(
        f"A {type(value).__name__} could not be written as JSON: {error}. "
        "Use dataclasses, text, numbers, lists, dicts and the standard value types."
    )


__all__ = ["dump", "dump_json"]
