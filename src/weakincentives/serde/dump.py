"""Dumping: typed values become plain JSON data."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import SchemaError


def dump(value: object) -> Any:
    """Plain dicts, lists, strings, numbers, booleans and None that `parse` turns back into `value`.

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
        return from_json(to_json(value, inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def dump_json(value: object, *, indent: int | None = None) -> str:
    """`dump` as JSON text; compact unless an indent is given."""
    try:
        return to_json(value, indent=indent, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def _no_form(value: object, error: Exception) -> SchemaError:
    return SchemaError(
        f"A {type(value).__name__} could not be written as JSON: {error}. "
        "Use dataclasses, text, numbers, lists, dicts and the standard value types."
    )


__all__ = ["dump", "dump_json"]
