"""The names that fields have in JSON: pydantic's aliases, read from the schemas it makes of a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ..errors import SchemaError
from .adapters import adapter

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


__all__ = ["JsonField", "JsonRecord", "fields_in", "record_of"]
