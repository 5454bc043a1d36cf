"""JSON schemas: what a model is told about a type."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any, cast

from pydantic import Secret, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..errors import SchemaError
from .adapters import adapter
from .docstrings import attribute_docs, class_doc
from .json_names import fields_in
from .renaming import renamed

_DEFS = "#/$defs/"
_VERBATIM = frozenset({"default", "const", "enum", "examples"})


def schema(cls: Any) -> dict[str, Any]:
    """The JSON schema of a type, a copy the caller may change.

    References are inlined but for types that contain themselves; every object refuses further properties;
    descriptions come from field metadata, `Annotated` and attribute docstrings. `SchemaError` when the type has no
    JSON form.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Search:
    ...     query: str = field(metadata={"description": "What to look for"})
    >>> schema(Search)["properties"]
    {'query': {'description': 'What to look for', 'type': 'string'}}
    """
    return deepcopy(shared_schema(cls))


@lru_cache(maxsize=4096)
def shared_schema(cls: Any) -> dict[str, Any]:
    """`schema`, made once and not to be changed."""
    try:
        made = adapter(cls).json_schema(schema_generator=_Generator, ref_template=_DEFS + "{model}")
    except PydanticInvalidForJsonSchema as error:
        raise SchemaError(f"{getattr(cls, '__name__', cls)} has a part with no JSON schema: {error}") from error
    definitions = cast(dict[str, Any], made.pop("$defs", {}))
    inlined = _Inliner(definitions)
    result = cast(dict[str, Any], inlined.resolve(made))
    if inlined.kept:
        result["$defs"] = inlined.kept
    return result


class _Generator(GenerateJsonSchema):
    """Adds descriptions and closes objects; leaves out titles, which only repeat names."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _describe(super().dataclass_schema(schema), schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _describe(super().model_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        made = super().typed_dict_schema(schema)
        return made if schema.get("cls") is None else _describe(made, schema)

    def field_is_present(self, field: Any) -> bool:
        """Not for `field(init=False)`: the class sets it, so it cannot be sent."""
        return field.get("init") is not False

    def json_or_python_schema(self, schema: core_schema.JsonOrPythonSchema) -> JsonSchemaValue:
        made = super().json_or_python_schema(schema)
        # pydantic marks SecretStr and SecretBytes by itself, but not the other kinds of Secret.
        writes: Any = schema.get("serialization", {})
        return {**made, "writeOnly": True} if writes.get("function") in _secret_writers() else made

    def encode_default(self, dft: Any) -> Any:
        """Under the names that are read: pydantic does not know those of plain dataclasses."""
        return super().encode_default(renamed(dft, computed=False))

    def emit_warning(self, kind: Any, detail: str) -> None:
        """A default that has no JSON form is left out, which is what a model should see."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


@cache
def _secret_writers() -> list[Any]:
    """How pydantic writes a `Secret`; none when it has another way of doing so."""
    writes: Any = TypeAdapter(Secret[int]).core_schema.get("serialization", {})
    return [writes["function"]] if "function" in writes else []


def _describe(made: JsonSchemaValue, record: Any) -> JsonSchemaValue:
    if "properties" not in made and made.get("type") != "object":
        return made  # a root model: the schema is that of its content
    made.pop("title", None)
    made["additionalProperties"] = False
    made.setdefault("properties", {})
    text = class_doc(record["cls"])
    if text and "description" not in made:
        made["description"] = text
    docs = attribute_docs(record["cls"])
    for field in fields_in(record):
        described = made["properties"].get(field.json_name)
        if described is not None and field.name in docs:
            described.setdefault("description", docs[field.name])
    return made


class _Inliner:
    """Replaces references by what they refer to; `kept` collects the recursive ones, which must stay."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._recursive = {name for name in definitions if _reaches(name, name, definitions)}
        self.kept: dict[str, Any] = {}

    def resolve(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.resolve(item) for item in cast(list[Any], node)]
        if not isinstance(node, dict):
            return node
        node = cast(dict[str, Any], node)
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return {key: self._value(key, value) for key, value in node.items() if key != "title"}
        name = reference.removeprefix(_DEFS)
        rest = {key: self.resolve(value) for key, value in node.items() if key not in {"$ref", "title"}}
        if name in self._recursive:
            if name not in self.kept:
                self.kept[name] = None  # marks it as under way: it refers to itself
                self.kept[name] = self.resolve(self._definitions[name])
            return {"$ref": reference, **rest}
        return {**self.resolve(self._definitions[name]), **rest}

    def _value(self, key: str, value: Any) -> Any:
        """What a keyword holds; names of properties and plain values are the user's and stay as they are."""
        if key == "properties":
            return {name: self.resolve(item) for name, item in value.items()}
        return value if key in _VERBATIM else self.resolve(value)


def _reaches(name: str, target: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    open_names = [name]
    while open_names:
        for found in _references(definitions[open_names.pop()]):
            if found == target:
                return True
            if found not in seen:
                seen.add(found)
                open_names.append(found)
    return False


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for item in cast(list[Any], node) for name in _references(item)]
    if not isinstance(node, dict):
        return []
    node = cast(dict[str, Any], node)
    reference = node.get("$ref")
    found = [reference.removeprefix(_DEFS)] if isinstance(reference, str) else []
    return found + [name for value in node.values() for name in _references(value)]


__all__ = ["schema", "shared_schema"]
