"""Masking of JSON data: its texts one by one, and those whose name alone says what they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from .redact import leaving, redact


def masked_data(data: Any, mask: Callable[[str], str] = redact) -> Any:
    """JSON data with its texts masked. `mask` is done to each text; under a telling name all of it is masked.

    >>> masked_data({"password": "hunter2", "note": "Authorization: Bearer q8Zk2LmX7vTn4RwP"})
    {'password': '[masked]', 'note': 'Authorization: Bearer [masked]'}
    """
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, Mapping):
        members = cast("Mapping[Any, Any]", data)
        return {key: _member(str(key), value, mask) for key, value in members.items()}
    if isinstance(data, list | tuple):
        return [masked_data(item, mask) for item in cast("list[Any]", data)]
    return data


def _member(key: str, value: Any, mask: Callable[[str], str]) -> Any:
    """A text under a name that says what it is, such as `password`, is masked as if name and text were one."""
    if not isinstance(value, str):
        return masked_data(value, mask)
    value = mask(value)
    pair = _json({key: value})
    hidden = redact(pair)
    if hidden == pair:
        return value
    try:
        return next(iter(json.loads(hidden).values()))
    except (ValueError, AttributeError, StopIteration):
        return value


def leaving_data(data: Any) -> Any:
    """JSON data as it may leave the program: its texts masked, very long ones cut.

    >>> leaving_data({"user": "amy", "password": "hunter2", "note": "mail amy"})
    {'user': 'amy', 'password': '[masked]', 'note': 'mail amy'}
    """
    return masked_data(data, leaving)


_json = json.JSONEncoder(ensure_ascii=False).encode

__all__ = ["leaving_data", "masked_data"]
