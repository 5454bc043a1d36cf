"""JSON schemas: what a model is told about a type."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..errors import SchemaError
from ..interrupts import Lock
from .dumping import fields_in, renamed
from .type_adapters import adapter

# Descriptions written as strings below the attributes they describe, where the source is at hand.


_NONE: Mapping[str, str] = {}


def attribute_docs(cls: type) -> Mapping[str, str]:
    """What the source says of each attribute, inherited ones included; empty where there is no source."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        file = getattr(module, "__file__", None)
        if file is not None:
            docs.update(_docs_in(file).get(base.__qualname__, _NONE))
    return docs


def class_doc(cls: type) -> str | None:
    """The class's own docstring; not the signature that `@dataclass` writes, nor an inherited one."""
    doc = cls.__dict__.get("__doc__")
    if not doc or doc.startswith(f"{cls.__name__}("):
        return None
    return inspect.cleandoc(doc)


@lru_cache(maxsize=1024)
def _docs_in(file: str) -> Mapping[str, Mapping[str, str]]:
    """Attribute docstrings of every class in a file, by the class's qualified name."""
    try:
        with open(file, "rb") as source:  # noqa: PTH123 - the path is a module's, as Python gives it
            tree = _parsed(source.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, Mapping[str, str]] = {}
    _collect(tree, "", found)
    return found


_parsing = Lock()
_TRIES = 5


def _parsed(source: bytes) -> ast.Module:
    # Python 3.11 counts the depth of the trees it makes for all threads together. When the garbage collector lets
    # another thread run in the middle of one, and that makes a tree too, `SystemError` says that the count is wrong.
    with _parsing:
        for _ in range(_TRIES):
            with suppress(SystemError):  # another library's tree
                return ast.parse(source)
        return ast.parse(source)


def _collect(node: ast.AST, prefix: str, found: dict[str, Mapping[str, str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found[prefix + child.name] = _attributes(child)
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(child, f"{prefix}{child.name}.<locals>.", found)
        elif isinstance(child, ast.stmt):
            _collect(child, prefix, found)


def _attributes(node: ast.ClassDef) -> Mapping[str, str]:
    docs: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[statement.target.id] = inspect.cleandoc(following.value.value)
    return docs


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
    return cast(dict[str, Any], copied(shared_schema(cls)))


def copied(node: Any) -> Any:
    """A copy of JSON data; `deepcopy` takes six times as long."""
    if type(node) is dict:
        return {key: copied(value) for key, value in cast(dict[str, Any], node).items()}
    return [copied(item) for item in cast(list[Any], node)] if type(node) is list else node


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
    from pydantic import Secret  # noqa: PLC0415 - a third of importing pydantic

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


# Following a value through a JSON schema: what a part of the value may be, by the schema's nodes.


Nodes = Sequence[Mapping[str, Any]]


_ALTERNATIVES = frozenset({"anyOf", "oneOf", "allOf"})


def branches(nodes: Nodes, definitions: Mapping[str, Any]) -> Nodes:
    """The nodes with references followed and alternatives spread out."""
    found: list[Mapping[str, Any]] = []
    for node in nodes:
        if "$ref" in node:
            node = definitions[node["$ref"].rpartition("/")[2]]
        if _ALTERNATIVES.isdisjoint(node):
            found.append(node)
            continue
        alternatives = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
        found += branches(alternatives, definitions) if alternatives else (node,)
    return found


def below(nodes: Nodes, key: int | str) -> Nodes:
    """The nodes of an item or a member; none where the schema does not know it."""
    found: list[Mapping[str, Any]] = []
    for node in nodes:
        if isinstance(key, int):
            prefix = node.get("prefixItems", ())
            inner = prefix[key] if key < len(prefix) else node.get("items")
        else:
            inner = node.get("properties", {}).get(key) or node.get("additionalProperties")
        if isinstance(inner, dict):
            found.append(cast("dict[str, Any]", inner))
    return found
