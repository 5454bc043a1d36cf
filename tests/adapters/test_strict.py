"""Strict schemas: what optional fields become, what comes back, and what has no strict form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from tests.adapters.loopback import LoopbackServer
from tests.adapters.wires import connected

from weakincentives.adapters.chat_format import chat_arguments
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.strict import strict_schema, without_nulls
from weakincentives.loop.request import ModelRequest, tool_spec
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolExample, ToolResult
from weakincentives.serde import dump, dump_json, parse, schema
from weakincentives.session import Session
from weakincentives.testing import call_raw, say


@dataclass(frozen=True)
class Item:
    name: str
    count: int = 1
    note: str | None = "none"


@dataclass(frozen=True)
class Circle:
    kind: Literal["circle"]
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    kind: Literal["square"]
    side: float = 2.0


@dataclass(frozen=True)
class Tree:
    label: str = "leaf"
    children: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Order:
    who: str = field(metadata={"description": "For whom"})
    items: tuple[Item, ...] = ()
    shape: Circle | Square | None = None
    due: date | None = None
    level: Annotated[int, Field(ge=1, le=9)] = 5
    code: Annotated[str, Field(min_length=2)] = "ab"
    tree: Tree = Tree()
    mode: Literal["slow", "fast"] = "slow"


def every_object(node: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if isinstance(node, dict):
        properties = cast("dict[str, Any]", node)
        if properties.get("type") == "object":
            found.append(properties)
        for value in properties.values():
            found += every_object(value)
    elif isinstance(node, list):
        for value in cast("list[Any]", node):
            found += every_object(value)
    return found


def test_every_property_is_required() -> None:
    """Optional fields become nullable, defaults and unknown keywords go, descriptions stay."""
    made = strict_schema(schema(Order))
    assert made is not None
    for node in every_object(made):
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    text = json.dumps(made)
    assert '"default"' not in text
    assert "minLength" not in text
    assert made["properties"]["who"]["description"] == "For whom"
    assert {"type": "null"} in made["properties"]["level"]["anyOf"]
    assert made["properties"]["level"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert made["properties"]["due"]["anyOf"].count({"type": "null"}) == 1


def nulled(full: Any, sparse: Any) -> Any:
    """What a strict model writes: everything is there, null for what it leaves out."""
    if isinstance(full, dict):
        items = cast("dict[str, Any]", full).items()
        return {key: nulled(value, sparse[key]) if key in sparse else None for key, value in items}
    if isinstance(full, list):
        return [nulled(a, b) for a, b in zip(cast("list[Any]", full), sparse, strict=True)]
    return sparse


@pytest.mark.parametrize(
    "given",
    [
        {"who": "me"},
        {"who": "me", "items": [{"name": "tea", "note": "x"}, {"name": "pot", "count": 2, "note": None}]},
        {"who": "me", "shape": {"kind": "square"}, "level": 9},
        {"who": "me", "tree": {"children": [{"label": "x"}, {}]}, "mode": "fast"},
    ],
)
def test_nulls_come_back_as_defaults(given: dict[str, Any]) -> None:
    """What the model left out is as if it had not been mentioned; a null that means something stays."""
    expected = parse(Order, json.dumps(given))
    written = json.dumps(nulled(dump(expected), given))
    assert parse(Order, without_nulls(schema(Order), written)) == expected


def test_a_null_of_its_own_is_kept() -> None:
    """`note` may be null, so null is not "left out"."""
    text = without_nulls(schema(Item), '{"name": "tea", "count": null, "note": null}')
    assert parse(Item, text) == Item("tea", 1, None)


@given(st.text() | st.sampled_from(["null", "[null]", '{"a": null}', "{", '{"who": null}', "nullnull"]))
def test_any_text_is_taken(text: str) -> None:
    """Text that is no JSON object passes through as it is; nothing raises."""
    cleaned = without_nulls(schema(Order), text)
    assert isinstance(cleaned, str)
    if "null" not in text:
        assert cleaned == text


@given(
    st.builds(
        Order,
        who=st.text(max_size=5),
        items=st.lists(st.builds(Item, name=st.text(max_size=3), note=st.none() | st.text(max_size=3))).map(tuple),
        shape=st.none() | st.just(Circle("circle", 3.0)) | st.just(Square("square")),
        due=st.none() | st.dates(),
        level=st.integers(1, 9),
    )
)
def test_full_arguments_are_left_alone(order: Order) -> None:
    """Arguments that say everything mean the same before and after."""
    assert parse(Order, without_nulls(schema(Order), dump_json(order))) == order


@dataclass(frozen=True)
class Open:
    anything: dict[str, int]


@dataclass(frozen=True)
class Pair:
    both: tuple[int, str]


@dataclass(frozen=True)
class Whatever:
    value: Any = None


@pytest.mark.parametrize("cls", [Open, Pair, Whatever, int, list[int]])
def test_some_types_have_no_strict_form(cls: Any) -> None:
    """Open mappings, tuples of fixed length, anything, and what is no object are sent as they are."""
    assert strict_schema(schema(cls)) is None


def handle(params: Order) -> ToolResult[str]:
    return ToolResult.ok(f"{params.who} {params.level} {params.code}")


def order_prompt() -> Prompt[Any]:
    example = ToolExample(description="A simple one", input=Order("you"), output="you 5 ab")
    tool = Tool[Order, str](name="order", description="Take an order.", handler=handle, examples=[example])
    section = MarkdownSection(title="Desk", template="Serve.", tools=[tool])
    return Prompt(PromptTemplate[Order](ns="strict", key="desk", sections=[section]))


@pytest.mark.slow  # a server and the real clients
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_schema_descriptions_and_examples_reach_the_service(wire: str) -> None:
    """The request holds the schema, the parameter's description and the example; nulls come back as defaults."""
    arguments = '{"who":"me","items":null,"shape":null,"due":null,"level":null,"code":"xy","tree":null,"mode":null}'
    turn = call_raw("order", '{"who": "me", "code": "xy"}' if wire == "messages" else arguments)
    final = say('{"who": "all"}' if wire == "messages" else '{"who": "all", "level": null}')
    with connected(wire, turn, final) as (adapter, server):
        response = adapter.evaluate(order_prompt(), Session())
        body = server.received[0].body
    assert response.output == Order("all")
    assert "me 5 xy" in str(response.history)
    (tool,) = body["tools"]
    tool = tool.get("function", tool)
    sent = tool.get("parameters") or tool["input_schema"]
    assert tool["name"] == "order"
    assert sent["properties"]["who"]["description"] == "For whom"
    assert "A simple one" in tool["description"]
    assert '"who": "you"' in tool["description"]
    assert tool.get("strict", False) is (wire != "messages")


@pytest.mark.slow  # a server and the real client
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_strictness_can_be_left_out(api: Any) -> None:
    """For servers that do not know it."""
    with (
        LoopbackServer(say('{"who": "all"}')) as server,
        OpenAIAdapter("m", api=api, base_url=server.url, strict=False, native_output=False) as adapter,
    ):
        assert adapter.evaluate(order_prompt(), Session()).output == Order("all")
        body = server.received[0].body
    assert "response_format" not in body
    assert "text" not in body
    tool = body["tools"][0]
    assert not tool.get("function", tool).get("strict", False)


def test_an_example_without_a_json_form_is_shown_as_text() -> None:
    """A result may be of any type; its example is rendered as the model would read it."""

    @dataclass(frozen=True)
    class Odd:
        thing: Any

        def render(self) -> str:
            return "an odd thing"

    def odd(params: Item) -> ToolResult[Odd]:
        return ToolResult.ok(Odd(object()))

    example = ToolExample(description="Odd", input=Item("x"), output=Odd(object()))
    tool = Tool[Item, Odd](name="odd", description="Odd.", handler=odd, examples=[example])
    assert "an odd thing" in tool_spec(tool).text


@pytest.mark.parametrize("strict", [False, True])
def test_a_library_that_rewrites_a_schema_in_place_changes_no_other_request(strict: bool) -> None:
    """A tool is described once for all requests, and LiteLLM rewrites schemas for some providers."""
    tool = Tool[Order, None](name="order", description="Order.")
    request = ModelRequest((), (tool_spec(tool),))
    assert tool_spec(tool) is request.tools[0]
    (sent,) = chat_arguments(request, strict=strict, native_output=False)["tools"]
    sent["function"]["parameters"]["properties"]["who"].clear()
    sent["function"]["parameters"].pop("type")
    assert tool_spec(tool).schema == tool.schema() == schema(Order)
