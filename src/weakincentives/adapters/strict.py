"""Strict schemas: every property is required and optional ones are nullable; null is read as the default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

_KEPT = frozenset(
    {
        "type", "description", "enum", "const", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "minItems", "maxItems",
    }
)  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_NULL = {"type": "null"}
_DEFS = "#/$defs/"


class _NotStrictError(Exception):
    """Part of the schema has no strict form."""


def strict_schema(schema: Schema) -> dict[str, Any] | None:
    """The schema in the strict dialect, or None where it has no such form: open mappings, tuples, anything goes.

    Keywords the dialect does not know are left out; the engine checks them when the call comes.
    """
    try:
        made = _strict(schema)
        if made.get("type") != "object":
            return None
        definitions = cast(Mapping[str, Schema], schema.get("$defs", {}))
        if definitions:
            made["$defs"] = {name: _strict(each) for name, each in definitions.items()}
    except _NotStrictError:
        return None
    return made


def _strict(schema: Schema) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside it
    made = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        made["anyOf"] = [_strict(each) for each in choices]
    if "properties" in schema or schema.get("type") == "object":
        made.update(_object(schema))
    if schema.get("type") == "array":
        if "items" not in schema or "prefixItems" in schema:
            raise _NotStrictError
        made["items"] = _strict(schema["items"])
    if not made.keys() & {"type", "anyOf", "enum", "const"}:
        raise _NotStrictError
    return made


def _object(schema: Schema) -> dict[str, Any]:
    if schema.get("additionalProperties") is not False:
        raise _NotStrictError
    properties = cast(Mapping[str, Schema], schema.get("properties", {}))
    required = set(cast(list[str], schema.get("required", [])))
    made = {
        name: _strict(each) if name in required or accepts_null(each) else _nullable(_strict(each))
        for name, each in properties.items()
    }
    return {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}


def _nullable(made: dict[str, Any]) -> dict[str, Any]:
    text = made.pop("description", None)
    wrapped: dict[str, Any] = {"anyOf": [*made["anyOf"], _NULL] if set(made) == {"anyOf"} else [made, _NULL]}
    return wrapped if text is None else {"description": text, **wrapped}


def accepts_null(schema: Schema) -> bool:
    """Whether null is a value of its own here, not a way to leave something out."""
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind) or None in schema.get("enum", ()):
        return True
    choices = cast(list[Schema], schema.get("anyOf") or schema.get("oneOf") or [])
    return any(map(accepts_null, choices))


def without_nulls(schema: Schema, text: str) -> str:
    """JSON text with the nulls taken out that stand for an optional property left out; other text as it is."""
    if "null" not in text:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cleaned = _cleaned(schema, value, cast(Schema, schema.get("$defs", {})))
    return text if cleaned == value else json.dumps(cleaned, ensure_ascii=False)


def _cleaned(schema: Schema, value: Any, definitions: Schema) -> Any:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _cleaned(definitions.get(reference.removeprefix(_DEFS), {}), value, definitions)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        chosen = _choice(choices, value, definitions)
        return value if chosen is None else _cleaned(chosen, value, definitions)
    if isinstance(value, list):
        items = schema.get("items")
        each = cast(list[Any], value)
        return each if items is None else [_cleaned(items, item, definitions) for item in each]
    if not isinstance(value, dict):
        return value
    properties = cast(Mapping[str, Schema], schema.get("properties", {}))
    required = schema.get("required", ())
    return {
        name: _cleaned(properties.get(name, {}), item, definitions)
        for name, item in cast(dict[str, Any], value).items()
        if item is not None or name in required or name not in properties or accepts_null(properties[name])
    }


def _choice(choices: list[Schema], value: Any, definitions: Schema) -> Schema | None:
    """The alternative a value is meant for: objects by their property names and constants, lists by being lists."""
    for each in choices:
        reference = each.get("$ref")
        schema = definitions.get(reference.removeprefix(_DEFS), {}) if isinstance(reference, str) else each
        if isinstance(value, list) and schema.get("type") == "array":
            return schema
        if isinstance(value, dict) and "properties" in schema and _fits(schema["properties"], cast(Schema, value)):
            return schema
    return None


def _fits(properties: Mapping[str, Schema], value: Mapping[str, Any]) -> bool:
    return value.keys() <= properties.keys() and all(
        properties[name].get("const", item) == item for name, item in value.items()
    )
