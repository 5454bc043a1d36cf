"""Parsing: JSON text, bytes or a mapping becomes a typed value, or one error that lists everything wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import Failure, ParseError, SchemaError
from .aliases import renamed
from .explain import explain
from .secret_fields import unsaid
from .type_adapters import adapter

T = TypeVar("T")

MAX_INPUT_BYTES = 16 * 1024 * 1024
"""What `parse` reads at most unless told otherwise."""


@lru_cache(maxsize=4096)
def _validator(cls: Any) -> Callable[..., Any]:
    return adapter(cls).validator.validate_json


def parse(
    cls: type[T],
    data: str | bytes | Mapping[str, Any],
    *,
    extra: Literal["forbid", "ignore"] = "forbid",
    max_bytes: int | None = MAX_INPUT_BYTES,
) -> T:
    """Make a `cls` of JSON text, UTF-8 bytes or a mapping, strictly: nothing is coerced.

    A mapping passes the same checks as its JSON text. `ParseError` holds all failures; `SchemaError` says that
    `cls` itself cannot be parsed into. `extra="ignore"` drops unknown keys instead of refusing them. Of duplicate
    keys the last wins.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Search:
    ...     query: str
    ...     limit: int = 10
    >>> parse(Search, '{"query": "tea"}')
    Search(query='tea', limit=10)
    >>> parse(Search, {"query": "tea", "limit": "5"})
    Traceback (most recent call last):
    ...
    weakincentives.errors.ParseError: limit: Expected type integer, got string '5'
    """
    text = data if isinstance(data, str | bytes) else _text_of(data)
    if max_bytes is not None and len(text) > max_bytes:
        raise ParseError([Failure("", f"Input is too long: {len(text)} bytes, at most {max_bytes} are read")])
    validate = _validator(cls)
    try:
        parsed = validate(text, strict=True, extra=extra)
    except ValidationError as error:
        raise ParseError(explain(error, cls, text, extra=extra)) from None
    except Exception as error:  # a `__post_init__` or validator of the user's raised
        raise ParseError([Failure("", unsaid(cls, str(error), text) or type(error).__name__)]) from error
    if _is_open(cls):
        failures = list(_not_finite(from_json(text), ""))
        if failures:
            raise ParseError(failures)
    return parsed


def parser(cls: type[T]) -> Callable[[str | bytes | Mapping[str, Any]], T]:
    """`parse` for one type, looked up once: for what is parsed again and again. `SchemaError` as `parse`."""
    validate, is_open = _validator(cls), _is_open(cls)

    def parse_one(data: str | bytes | Mapping[str, Any]) -> T:
        if not is_open and type(data) is str and len(data) <= MAX_INPUT_BYTES:
            try:
                return validate(data, strict=True, extra="forbid")
            except Exception:  # noqa: BLE001, S110 - explained below
                pass
        return parse(cls, data)

    return parse_one


@lru_cache(maxsize=4096)
def _is_open(cls: Any) -> bool:
    """Whether something in the type takes any value: pydantic checks no number there."""
    return _has_any(adapter(cls).core_schema)


def _has_any(part: object) -> bool:
    if isinstance(part, Mapping):
        schema = cast(Mapping[str, object], part)
        return schema.get("type") == "any" or any(map(_has_any, schema.values()))
    return isinstance(part, list | tuple) and any(map(_has_any, cast("list[object]", part)))


def _not_finite(value: Any, path: str) -> Iterator[Failure]:
    """Numbers that JSON has no form for, although its parser takes them."""
    if isinstance(value, float) and not isfinite(value):
        yield Failure(path, f"Expected a finite number, got number {value}")
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _not_finite(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _not_finite(item, f"{path}[{index}]")


def _text_of(data: object) -> str:
    try:
        return json.dumps(data, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ParseError([Failure("", f"Not JSON data: {error}")]) from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    raise TypeError(f"a {type(value).__name__} is not JSON; use text, numbers, booleans, null, arrays and objects")


# Dumping: typed values become plain JSON data.


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
