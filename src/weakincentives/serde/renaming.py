"""Values as JSON names them: pydantic knows the aliases of its own classes, but not those of plain dataclasses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from operator import is_
from types import NoneType
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from .adapters import adapter
from .json_names import JsonRecord, record_of

_LEAVES: frozenset[type[Any]] = frozenset(
    (str, int, float, bool, NoneType, bytes, datetime, date, time, timedelta, Decimal, UUID)
)


def renamed(value: Any, computed: bool) -> Any:
    """The value itself, or data in its place where JSON has other names for fields than Python, or fewer fields.

    With `computed` the fields that a class sets itself are kept: a reader wants them, `parse` refuses them. A value
    that contains itself raises RecursionError.
    """
    walk = _walker(cast("type[Any]", type(value)), computed)
    return value if walk is None else walk(value)


@lru_cache(maxsize=4096)
def _walker(cls: type[Any], computed: bool) -> Callable[[Any], Any] | None:
    """What looks into the values of a class; None for those that have nothing in them."""
    if issubclass(cls, dict):
        return partial(_renamed_dict, computed=computed)
    if issubclass(cls, list | tuple | set | frozenset | deque):
        return partial(_renamed_items, computed=computed)
    if hasattr(cls, "__pydantic_serializer__"):
        return partial(_renamed_model, computed=computed)
    return _dataclass_walker(cls, computed) if is_dataclass(cls) else None


def _all_leaves(items: Iterable[Any]) -> bool:
    return _LEAVES.issuperset(map(type, items))


def _renamed_dict(value: dict[Any, Any], computed: bool) -> Any:
    if _all_leaves(value.values()):
        return value
    made = {key: renamed(item, computed) for key, item in value.items()}
    return value if all(map(is_, made.values(), value.values())) else made


def _renamed_items(value: list[Any], computed: bool) -> Any:
    if _all_leaves(value):
        return value
    made = [renamed(item, computed) for item in value]
    return value if all(map(is_, made, value)) else made


def _dataclass_walker(cls: type[Any], computed: bool) -> Callable[[Any], Any]:
    record = record_of(cls)
    if record is not None and record.has_named_dicts:
        serializer = adapter(cls).serializer
        return lambda value: _written_by_pydantic(
            _with_renamed_parts(value, record, computed), serializer, record, computed
        )
    aliases = {} if record is None else {field.name: field.json_name for field in record.fields}
    # A class without a schema is never parsed into, so nothing needs to be left out.
    names = [field.name for field in fields(cls) if field.init or computed or record is None]
    json_names = [aliases.get(name, name) for name in names]
    same = json_names == [field.name for field in fields(cls)]

    def walk(value: Any) -> Any:
        parts = [getattr(value, name) for name in names]
        if same and _all_leaves(parts):
            return value
        made = [renamed(part, computed) for part in parts]
        if same and all(map(is_, made, parts)):
            return value
        return dict(zip(json_names, made, strict=True))

    return walk


def _renamed_model(value: Any, computed: bool) -> Any:
    """A class with a serialiser of pydantic's own, which knows the aliases; only what it does not know is changed."""
    cls = cast("type[Any]", type(value))
    record = record_of(cls)
    if record is None or record.writes_itself:
        return value
    value = _with_renamed_parts(value, record, computed)
    if all(field.writes_alias and field.is_input for field in record.fields) and not (record.computes and not computed):
        return value
    return _written_by_pydantic(value, cls.__pydantic_serializer__, record, computed)


def _with_renamed_parts(value: Any, record: JsonRecord, computed: bool) -> Any:
    changed: dict[str, Any] = {}
    for field in record.fields:
        if not field.writes_itself:  # a serialiser of the user's must get what it was written for
            part = getattr(value, field.name)
            new = renamed(part, computed)
            if new is not part:
                changed[field.name] = new
    if not changed:
        return value
    if isinstance(value, BaseModel):
        return value.model_copy(update=changed)
    made = copy(value)
    for name, part in changed.items():
        object.__setattr__(made, name, part)
    return made


def _written_by_pydantic(value: Any, serializer: Any, record: JsonRecord, computed: bool) -> Any:
    data = serializer.to_python(
        value, mode="json", by_alias=True, warnings=False, exclude_computed_fields=not computed
    )  # fmt: skip
    if not isinstance(data, dict):
        return data
    names = {field.name: field.json_name for field in record.fields if not field.writes_alias}
    left_out = {field.json_name for field in record.fields if not (field.is_input or computed)}
    members = cast("dict[str, Any]", data)
    return {names.get(key, key): item for key, item in members.items() if key not in left_out}


__all__ = ["renamed"]
