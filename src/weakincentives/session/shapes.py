"""What a class looks like in saved text, so that a changed class is noticed when a session is loaded."""

from __future__ import annotations

from typing import Any

from pydantic.errors import PydanticUserError

from ..errors import SessionFormatError
from .encoding import adapter_of, type_name

Shape = dict[str, str]
"""The fields of a class, each with its type in words; a class without fields has one, named ''."""


def shape_of(cls: type[Any]) -> Shape:
    """The shape of a class. Raises SessionFormatError for one that has no JSON form."""
    try:
        schema = adapter_of(cls).json_schema(by_alias=False)
    except PydanticUserError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SessionFormatError(f"{type_name(cls)} cannot be saved: {reason}.") from error
    definitions: dict[str, Any] = schema.get("$defs", {})
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        return {"": _words(schema, definitions, ())}
    return {name: _words(part, definitions, ()) for name, part in schema["properties"].items()}


def shape_changes(saved: Shape, now: Shape) -> str:
    """What differs between two shapes, for people; empty when nothing does."""
    changes = [f"field '{name}' is gone" for name in saved if name not in now]
    changes += [f"field '{name}' is new" for name in now if name not in saved]
    changes += [
        f"field '{name}' was {saved[name]} and is {now[name]}" if name else f"it was {saved[name]}, is {now[name]}"
        for name in saved
        if name in now and saved[name] != now[name]
    ]
    return ", ".join(changes)


def _words(schema: dict[str, Any], definitions: dict[str, Any], above: tuple[str, ...]) -> str:
    if "$ref" in schema:
        name: str = schema["$ref"].rpartition("/")[2]
        if name in above:
            return name
        return name + " " + _words(definitions[name], definitions, (*above, name))

    def inner(part: dict[str, Any]) -> str:
        return _words(part, definitions, above)

    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " | ".join(map(inner, schema[union]))
    if "enum" in schema or "const" in schema:
        return f"one of {schema.get('enum', [schema.get('const')])}"
    if "properties" in schema:
        return "{" + ", ".join(f"{name}: {inner(part)}" for name, part in schema["properties"].items()) + "}"
    kind: str = schema.get("format") or schema.get("type") or "anything"
    if "prefixItems" in schema:
        return f"{kind} of ({', '.join(map(inner, schema['prefixItems']))})"
    of = schema.get("items", schema.get("additionalProperties"))
    return f"{kind} of {inner(of)}" if isinstance(of, dict) else kind  # pyright: ignore[reportUnknownArgumentType]


__all__ = ["Shape", "shape_changes", "shape_of"]
