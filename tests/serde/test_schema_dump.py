"""Schemas say everything a model must know; dumps are plain JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from weakincentives.errors import SchemaError
from weakincentives.serde import dump, dump_json, schema


@dataclass(frozen=True, slots=True)
class Filter:
    """Narrows a search."""

    kind: Literal["name", "size"]
    """What to compare."""


@dataclass(frozen=True, slots=True)
class Base:
    tenant: str
    """Inherited description."""


@dataclass(frozen=True, slots=True)
class Query(Base):
    text: str = field(metadata={"description": "From metadata", "min_length": 1})
    limit: Annotated[int, Field(description="From Annotated", ge=1)] = 10
    filters: tuple[Filter, ...] = ()
    """From a docstring."""
    main: Filter | None = None
    title: str = ""
    meta: dict[str, int] = field(default_factory=lambda: {"title": 1})


@dataclass(frozen=True, slots=True)
class Tree:
    value: int
    children: tuple[Tree, ...] = ()


class Movie(TypedDict):
    title: str


class Model(BaseModel):
    """A model."""

    movie: Movie
    tree: Tree


def objects(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [item for child in cast(list[Any], node) for item in objects(child)]
    if not isinstance(node, dict):
        return []
    node = cast(dict[str, Any], node)
    return ([node] if "properties" in node else []) + objects(list(node.values()))


def test_descriptions_come_from_everywhere() -> None:
    """Metadata, Annotated, attribute docstrings (inherited too) and class docstrings reach the schema."""
    made = schema(Query)
    properties = made["properties"]
    assert properties["tenant"]["description"] == "Inherited description."
    assert properties["text"] == {"type": "string", "description": "From metadata", "minLength": 1}
    assert properties["limit"] == {"type": "integer", "description": "From Annotated", "minimum": 1, "default": 10}
    assert properties["filters"]["description"] == "From a docstring."
    assert properties["filters"]["items"] == {
        "type": "object",
        "description": "Narrows a search.",
        "properties": {"kind": {"type": "string", "enum": ["name", "size"], "description": "What to compare."}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    assert "description" not in made  # `@dataclass` wrote that docstring, not the user


def test_references_are_inlined_and_objects_closed() -> None:
    """No `$ref` where it can be avoided, no titles, no further properties at any level."""
    made = schema(Query)
    assert "$ref" not in json.dumps(made)
    assert "$defs" not in made
    assert made["properties"]["title"] == {"type": "string", "default": ""}, "a field called title stays"
    assert made["properties"]["meta"]["additionalProperties"] == {"type": "integer"}
    assert all(node["additionalProperties"] is False for node in objects(made))


def test_recursive_types_keep_their_reference() -> None:
    """Only the type that contains itself is referred to."""
    made = schema(Model)
    assert set(made["$defs"]) == {"Tree"}
    assert made["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert made["properties"]["movie"]["properties"] == {"title": {"type": "string"}}
    assert all(node["additionalProperties"] is False for node in objects(made))


def test_the_caller_may_change_the_schema() -> None:
    """Each call gives a copy."""
    schema(Query)["properties"].clear()
    assert schema(Query)["properties"]


def test_a_type_without_source_has_a_schema_all_the_same() -> None:
    """Attribute docstrings need the source; nothing else does."""
    namespace: dict[str, Any] = {"dataclass": dataclass, "__name__": "json"}
    exec("@dataclass\nclass Made:\n    n: int\n    'unseen'\n", namespace)
    assert schema(namespace["Made"])["properties"] == {"n": {"type": "integer"}}


def test_local_classes_have_their_docstrings() -> None:
    """Classes defined inside functions are found by their qualified name."""

    @dataclass
    class Local:
        n: int
        """Seen."""

    assert schema(Local)["properties"]["n"]["description"] == "Seen."


def test_local_types_may_refer_to_one_another() -> None:
    """Under postponed annotations the names of the enclosing function are found."""

    @dataclass
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner

    assert schema(Outer)["properties"]["inner"]["properties"] == {"n": {"type": "integer"}}


def test_an_empty_dataclass_is_an_empty_object() -> None:
    """A tool without parameters takes `{}` and nothing else."""

    @dataclass
    class Nothing:
        pass

    assert schema(Nothing) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_type_without_schema_is_refused() -> None:
    """The error names the type."""

    class Opaque:
        pass

    @dataclass
    class Worse:
        thing: Opaque

    with pytest.raises(SchemaError, match="Worse"):
        schema(Worse)


def test_dumping_what_has_no_json_form_is_refused() -> None:
    """The error says what to use instead; a value that contains itself is refused too."""
    with pytest.raises(SchemaError, match="could not be written as JSON"):
        dump(object())
    loop: list[Any] = []
    loop.append(loop)
    for function in (dump, dump_json):
        with pytest.raises(SchemaError):
            function(loop)


def test_dumps_are_plain_json() -> None:
    """Not-a-number becomes a string, since JSON cannot say it."""
    assert dump({"x": float("inf"), "y": {1, 2}}) == {"x": "Infinity", "y": [1, 2]}
    assert dump_json({"a": (1, None)}, indent=None) == '{"a":[1,null]}'
    assert dump_json({"a": 1}, indent=2) == '{\n  "a": 1\n}'


def test_a_default_without_json_form_is_left_out() -> None:
    """The schema has the field, without a default that could not be sent, and nothing warns."""

    @dataclass
    class Odd:
        n: int = field(default_factory=int)
        thing: Any = object()  # noqa: RUF009 - that is the point

    assert schema(Odd)["properties"] == {"n": {"type": "integer"}, "thing": {}}
