"""Dumping: typed values become plain JSON data, under the names that `parse` reads.

Those names are pydantic's aliases, read from the schemas it makes of a class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from operator import is_
from types import NoneType
from typing import Any, NamedTuple, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from ..content import KINDS_MADE, for_readers
from ..errors import SchemaError
from .type_adapters import adapter


def dump(value: object, *, computed: bool = False) -> Any:
    """Plain dicts, lists, strings, numbers, booleans and None that `parse` turns back into `value`.

    Fields have the names that `parse` reads, their aliases. What a class sets itself (`field(init=False)`, computed
    fields of pydantic models) is left out, since `parse` refuses it. `computed=True` is for readers: it keeps that, and
    an `Image` or a `Document` is its one line of text instead of base64.

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
        if computed and KINDS_MADE:
            with for_readers():
                return from_json(to_json(renamed(value, computed), inf_nan_mode="strings"))
        return from_json(to_json(renamed(value, computed), inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def dump_json(value: object, *, indent: int | None = None, computed: bool = False) -> str:
    """`dump` as JSON text; compact unless an indent is given."""
    try:
        if computed and KINDS_MADE:
            with for_readers():
                return to_json(renamed(value, computed), indent=indent, inf_nan_mode="strings").decode()
        return to_json(renamed(value, computed), indent=indent, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error


def _no_form(value: object, error: Exception) -> SchemaError:
    return SchemaError(
        f"A {type(value).__name__} could not be written as JSON: {error}. "
        "Use dataclasses, text, numbers, lists, dicts and the standard value types."
    )


# The fields of a class, as JSON knows them.


_RECORDS = frozenset({"dataclass", "model", "typed-dict"})
_OWN_WRITERS = frozenset({"function-plain", "function-wrap"})


class JsonField(NamedTuple):
    """A field of a class, as JSON knows it.

    Attributes:
        name: the attribute.
        json_name: the name that `parse` reads and the schema has.
        is_input: False for `field(init=False)`: the class sets it, and `parse` refuses it.
        writes_alias: whether pydantic writes `json_name`, or a name that the class chose for writing.
        writes_itself: whether a serialiser of the user's writes the field.
    """

    name: str
    json_name: str
    is_input: bool
    writes_alias: bool
    writes_itself: bool


def fields_in(record: Mapping[str, Any]) -> Iterator[JsonField]:
    """The fields of a dataclass, model or TypedDict by its core schema; `SchemaError` for a name no schema can say."""
    node: Any = record
    # A dataclass's own node has a list of bare names under "fields"; what is wanted is that of its arguments.
    while node is not None and (node["type"] == "dataclass" or "fields" not in node):
        node = node.get("schema")
    if node is None:
        return  # a root model: it has content, and no fields
    listed: Any = node["fields"]
    if isinstance(listed, list):
        listed = {field["name"]: field for field in cast("list[Any]", listed)}
    for name, field in listed.items():
        json_name = _json_name(name, field)
        yield JsonField(
            name,
            json_name,
            is_input=field.get("init") is not False,
            writes_alias=json_name == name or "serialization_alias" in field,
            writes_itself=_writes_itself(field["schema"]),
        )


def _json_name(name: str, field: Mapping[str, Any]) -> str:
    alias = field.get("validation_alias", name)
    if isinstance(alias, str):
        return alias
    for path in alias:  # a list of paths; of an AliasPath alone it is the path's own steps
        if isinstance(path, list) and len(cast("list[str]", path)) == 1:
            return cast("list[str]", path)[0]
    raise SchemaError(
        f"Field {name!r} is read from inside another value (AliasPath), which a schema cannot say. "
        "Give it a name of its own: alias=, or an AliasChoices with a plain name in it."
    )


def _writes_itself(node: object) -> bool:
    """Whether a serialiser is attached to the field, or to the items in it; those of other classes are theirs."""
    if isinstance(node, list | tuple):
        return any(map(_writes_itself, cast("list[object]", node)))
    if not isinstance(node, Mapping):
        return False
    schema = cast("Mapping[str, Any]", node)
    if _has_own_writer(schema):
        return True
    return schema.get("type") not in _RECORDS and any(map(_writes_itself, schema.values()))


def _has_own_writer(schema: Mapping[str, Any]) -> bool:
    return schema.get("serialization", {}).get("type") in _OWN_WRITERS


def _records_in(node: object) -> Iterator[Mapping[str, Any]]:
    """All dataclasses, models and TypedDicts in a core schema."""
    if isinstance(node, list | tuple):
        for item in cast("list[object]", node):
            yield from _records_in(item)
    elif isinstance(node, Mapping):
        schema = cast("Mapping[str, Any]", node)
        if schema.get("type") in _RECORDS:
            yield schema
        for part in schema.values():
            yield from _records_in(part)


class JsonRecord(NamedTuple):
    """What is different about a class in JSON.

    Attributes:
        fields: of the class itself.
        writes_itself: whether a serialiser of the user's writes the whole value.
        computes: whether pydantic adds computed fields, which `parse` refuses.
        has_named_dicts: whether a TypedDict with aliases is in it: a dict does not know its type by itself.
    """

    fields: tuple[JsonField, ...] = ()
    writes_itself: bool = False
    computes: bool = False
    has_named_dicts: bool = False


def holds(cls: Any, wanted: Collection[type[Any]]) -> bool:
    """Whether a value of the type may hold one of these classes, at any depth, by what it declares."""
    return any(record.get("cls") in wanted for record in _records_in(adapter(cls).core_schema))


@lru_cache(maxsize=4096)
def record_of(cls: type[Any]) -> JsonRecord | None:
    """What is different about a dataclass or model; None for a class that has no schema."""
    try:
        records = list(_records_in(adapter(cls).core_schema))
        own: Mapping[str, Any] = next((record for record in records if record.get("cls") is cls), {"type": ""})
        dicts = [record for record in records if record["type"] == "typed-dict"]
        return JsonRecord(
            tuple(fields_in(own)),
            writes_itself=_has_own_writer(own),
            computes=any(map(_computes, records)),
            has_named_dicts=any(field.json_name != field.name for record in dicts for field in fields_in(record)),
        )
    except SchemaError:
        return None


def _computes(record: object) -> bool:
    node: Any = record
    while isinstance(node, Mapping):
        schema = cast("Mapping[str, Any]", node)
        if schema.get("computed_fields"):
            return True
        node = schema.get("schema")
    return False


# Values as JSON names them: pydantic knows the aliases of its own classes, but not those of plain dataclasses.


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
