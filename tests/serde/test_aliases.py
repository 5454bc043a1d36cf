"""Fields with another name in JSON: what is read, written, saved, replayed and shown agrees."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, computed_field, field_serializer
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from weakincentives.errors import ParseError, PromptValidationError, SchemaError
from weakincentives.loop.request import tool_spec
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolExample, ToolResult
from weakincentives.results import render_value
from weakincentives.runtime import IdempotencyConfig, SqliteEffectLedger, ToolCall, ToolInvoked
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger.effects import load_result, store_result
from weakincentives.serde import dump, dump_json, parse, schema
from weakincentives.session import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Leaf:
    """Names that would be mistaken for one another if both were read."""

    left: int = field(metadata={"alias": "right"})
    right: str = field(default="", metadata={"alias": "left"})
    kind: str = field(default="leaf", init=False)


@dataclass(frozen=True)
class Total:
    parts: tuple[int, ...]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.parts))


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True)

    from_: Annotated[int, Field(alias="from")]
    leaf: Leaf
    read: int = Field(default=0, validation_alias="asRead")
    choice: int = Field(default=0, validation_alias=AliasChoices(AliasPath("a", 0), "b"))

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.from_


@pydantic_dataclass(frozen=True)
class Pydantic:
    value: Annotated[str, Field(alias="the value")]
    leaves: frozenset[Leaf] = frozenset()


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    long_name: str


class Movie(TypedDict):
    made_in: Annotated[int, Field(alias="madeIn")]


@dataclass(frozen=True)
class Page(Generic[T]):
    items: tuple[T, ...] = field(metadata={"alias": "the items"})


@dataclass(frozen=True)
class Everything:
    leaf: Leaf
    inner: Inner
    pydantic: Pydantic
    camel: Camel
    movie: Movie
    total: Total
    mapping: dict[str, Leaf] = field(default_factory=dict[str, Leaf], metadata={"alias": "a mapping"})
    either: Leaf | Total | None = None
    page: Page[Leaf] | None = None
    children: tuple[Everything, ...] = ()


def make_inner(number: int, leaf: Leaf, read: int) -> Inner:
    return Inner.model_validate({"from": number, "leaf": leaf, "asRead": read, "b": read})


def make_pydantic(text: str, many: frozenset[Leaf]) -> Pydantic:
    return parse(Pydantic, {"the value": text, "leaves": dump(many)})


def make_camel(text: str) -> Camel:
    return Camel.model_validate({"longName": text})


def make_movie(year: int) -> Movie:
    return Movie(made_in=year)


leaves = st.builds(Leaf, st.integers(), st.text())
totals = st.builds(Total, st.tuples(st.integers(), st.integers()))
inners = st.builds(make_inner, st.integers(), leaves, st.integers())
pydantics = st.builds(make_pydantic, st.text(), st.frozensets(leaves, max_size=3))


def everything(children: st.SearchStrategy[tuple[Everything, ...]]) -> st.SearchStrategy[Everything]:
    return st.builds(
        Everything,
        leaves,
        inners,
        pydantics,
        st.builds(make_camel, st.text()),
        st.builds(make_movie, st.integers()),
        totals,
        st.dictionaries(st.text(), leaves, max_size=2),
        st.none() | leaves | totals,
        st.none() | st.builds(Page[Leaf], st.tuples(leaves)),
        children,
    )


@given(st.one_of(leaves, totals, inners, pydantics, everything(st.tuples(everything(st.just(()))))))
def test_what_was_dumped_is_parsed_again(value: Any) -> None:
    """`parse(dump(v)) == v`, whatever names the fields have."""
    kind = cast("type[Any]", type(value))
    assert parse(kind, dump(value)) == value
    assert parse(kind, dump_json(value)) == value


@given(leaves, totals, inners)
def test_a_session_with_such_values_is_saved_and_restored(leaf: Leaf, total: Total, inner: Inner) -> None:
    """Saved text has the names of attributes, so swapped aliases cannot mix them up."""
    session = Session()
    for value in (leaf, total, inner):
        session.dispatch(value)
    saved = Session.from_json(session.to_json(), types=(Leaf, Total, Inner))
    assert [saved[kind].latest() for kind in (Leaf, Total, Inner)] == [leaf, total, inner]


def test_the_schema_has_the_names_that_are_read() -> None:
    """With the docstrings of attributes, and without what the class sets itself."""

    @dataclass
    class Described:
        class_: str = field(metadata={"alias": "class"})
        """What kind."""
        made: int = field(default=3, init=False)
        set_later: int = field(init=False)

    assert schema(Described)["properties"] == {"class": {"type": "string", "description": "What kind."}}
    assert list(schema(Leaf)["properties"]) == ["right", "left"]
    for sent in ({"class": "a", "made": 3}, {"class": "a", "set_later": 3}, {"class_": "a"}):
        with pytest.raises(ParseError, match="Unknown field"):
            parse(Described, sent)


def test_a_default_in_the_schema_could_be_sent() -> None:
    """It has the names that are read, at any depth, and nothing that the class sets itself."""

    @dataclass
    class Plain:
        leaf: Leaf = field(default=Leaf(1))
        leaves: tuple[Leaf, ...] = (Leaf(2, "b"),)

    class Model(BaseModel):
        leaf: Leaf = Field(default=Leaf(1), alias="theLeaf")

    properties = schema(Plain)["properties"]
    assert properties["leaf"]["default"] == {"right": 1, "left": ""}
    assert properties["leaves"]["default"] == [{"right": 2, "left": "b"}]
    assert schema(Model)["properties"]["theLeaf"]["default"] == {"right": 1, "left": ""}
    for kind in (Plain, Model):
        assert parse(kind, {name: item["default"] for name, item in schema(kind)["properties"].items()}) == kind()


def test_a_name_inside_another_value_is_refused() -> None:
    """No schema can say where such a field is read from."""

    class Deep(BaseModel):
        first: int = Field(validation_alias=AliasPath("values", 0))

    with pytest.raises(SchemaError, match="'first' is read from inside another value"):
        schema(Deep)


def test_a_reader_sees_what_the_class_computes() -> None:
    """Rendering keeps the fields that only `parse` must not see, under the names that the schema has."""
    assert render_value(Total((1, 2))) == '{"parts":[1,2],"total":3}'
    assert dump(Total((1, 2))) == {"parts": [1, 2]}
    assert json.loads(render_value(Leaf(1, "x"))) == {"right": 1, "left": "x", "kind": "leaf"}
    inner = parse(Inner, {"from": 1, "leaf": {"right": 1}})
    assert dump(inner, computed=True)["double"] == 2
    assert "double" not in dump(inner)


def test_serialisers_of_the_users_get_what_they_were_written_for() -> None:
    """A field that is written by its own function is left to it."""

    class Written(BaseModel):
        leaf: Leaf

        @field_serializer("leaf")
        def write(self, leaf: Leaf) -> str:
            return f"leaf {leaf.left}"

    assert dump(Written(leaf=Leaf(1))) == {"leaf": "leaf 1"}


def test_values_without_other_names_are_written_as_before() -> None:
    """Subclasses in the place of their base, and classes without a schema, keep all of their fields."""

    @dataclass
    class Base:
        n: int

    @dataclass
    class Derived(Base):
        more: str

    @dataclass
    class Open:
        held: Any

    class Thing:
        pass

    @dataclass
    class NoSchema:
        thing: Thing | None
        made: int = field(default=1, init=False)

    assert dump([Open(Derived(1, "x"))]) == [{"held": {"n": 1, "more": "x"}}]
    assert dump(Open([Leaf(1)])) == {"held": [{"right": 1, "left": ""}]}
    assert dump(NoSchema(None)) == {"thing": None, "made": 1}


def handle(params: Leaf, *, context: ToolContext) -> ToolResult[Leaf]:
    return ToolResult.ok(params)


def test_examples_are_accepted_and_shown_as_the_model_would_send_them() -> None:
    """The example's input fits the schema beside it."""
    tool = Tool[Leaf, Leaf](
        name="grow",
        description="Grow.",
        handler=handle,
        examples=(ToolExample("One.", Leaf(1, "x"), Leaf(1, "x")),),
    )
    (example,) = tool_spec(tool).examples
    assert example["input"] == {"right": 1, "left": "x"}
    assert tool.parse(example["input"]) == Leaf(1, "x")


def test_a_wrong_example_is_refused_by_the_name_the_model_knows() -> None:
    """The checks of arguments see an aliased field, too."""
    with pytest.raises(PromptValidationError, match="field 'right' is wrong"):
        Tool[Leaf, Leaf](
            name="grow",
            description="Grow.",
            handler=handle,
            examples=(ToolExample("One.", Leaf("text"), Leaf(1)),),  # pyright: ignore[reportArgumentType]
        )


@given(st.one_of(leaves, totals, inners, st.tuples(leaves, totals)))
def test_a_ledger_gives_the_value_back(value: Any) -> None:
    """As its declared type, and as what it is where nothing is declared."""
    kinds: tuple[Any, ...] = (cast("type[Any]", type(value)), Any)
    for declared in kinds:
        assert load_result(store_result(ToolResult.ok(value), declared), declared).value == value


def test_a_replay_keeps_its_value(tmp_path: Path) -> None:
    """A second process gets the first one's result, typed, and its session can be saved."""
    tool = Tool[Leaf, Leaf](
        name="grow", description="Grow.", handler=handle, idempotency=IdempotencyConfig(scope="shop")
    )
    for outcome in ("succeeded", "replayed"):
        session = Session()
        prompt = Prompt(
            PromptTemplate(ns="t", key="t", sections=[MarkdownSection(title="T", template="Text.", tools=[tool])])
        )
        with (
            SqliteEffectLedger(tmp_path / "ledger.db") as ledger,
            ToolExecutor(prompt=prompt, session=session, effect_ledger=ledger) as executor,
        ):
            executor.execute(ToolCall("c1", "grow", '{"right": 7, "left": "x"}'))
        saved = Session.from_json(session.to_json(), types=(ToolInvoked, Leaf, ToolResult))
        event = saved[ToolInvoked].latest()
        assert event is not None
        assert event.result is not None
        assert (event.outcome, event.params, event.result.value) == (outcome, Leaf(7, "x"), Leaf(7, "x"))


@dataclass
class Short:
    text: Annotated[str, {"min_length": 1}]


@dataclass
class Deep:
    items: list[dict[str, Short]]


class ShortModel(BaseModel):
    texts: tuple[Annotated[str, {"pattern": "a"}], ...]


class ShortDict(TypedDict):
    text: Annotated[str, {"min_length": 1}]


@dataclass
class Unresolved:
    shared: ClassVar[NotDefinedAnywhere]  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownVariableType]
    text: Annotated[str, {"min_length": 1}]


@dataclass
class Labelled:
    text: Annotated[str, {"widget": "area"}, "a text"]


@pytest.mark.parametrize("kind", [Short, Deep, ShortModel, ShortDict, Unresolved, list[Short]])
def test_a_limit_in_a_dict_is_refused(kind: Any) -> None:
    """`Annotated[str, {"min_length": 1}]` would be ignored; the error says what to write."""
    with pytest.raises(SchemaError, match=r"in Annotated, where it would be ignored. Write Annotated\[..., Field\("):
        schema(kind)
    with pytest.raises(SchemaError):
        parse(kind, "{}")


def test_a_limit_in_a_dict_is_seen_in_local_classes_and_tools() -> None:
    """The tool is refused when it is built."""

    @dataclass
    class Local:
        n: Annotated[int, {"ge": 1}]

    def handler(params: Local) -> ToolResult[None]:
        raise NotImplementedError

    with pytest.raises(PromptValidationError, match=r"because of its field 'n'.*would be ignored"):
        Tool[Local, None](name="t", description="T.", handler=handler)


def test_other_metadata_is_left_alone() -> None:
    """Keys that `field(metadata=)` does not know mean something to other code."""
    assert parse(Labelled, {"text": ""}) == Labelled("")
