"""Parsing: JSON text, bytes or a mapping becomes a typed value, or one error that lists everything wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import from_json

from ..errors import Failure, ParseError
from .adapters import adapter
from .explain import explain
from .secret_fields import unsaid

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


__all__ = ["MAX_INPUT_BYTES", "parse", "parser"]
