"""G6, strict: arguments are checked before the handler, without coercion, and all errors are told at once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.world import World, ok

from weakincentives.prompt import Tool, ToolResult
from weakincentives.serde import parse


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Item:
    name: str
    count: int


@dataclass(frozen=True)
class Order:
    customer: str
    items: tuple[Item, ...]
    express: bool = False
    weight: float = 1.0
    colour: Colour = Colour.RED
    size: Literal["s", "m", "l"] = "m"
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict[str, int])


GOOD: dict[str, Any] = {"customer": "Ada", "items": [{"name": "tea", "count": 2}]}


def ordering() -> tuple[World, list[Order]]:
    ran: list[Order] = []

    def order(params: Order) -> ToolResult[Any]:
        ran.append(params)
        return ok()

    return World(Tool[Order, Any](name="order", description="Order.", handler=order, max_repeats=None)), ran


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a number as text": ({"items": [{"name": "tea", "count": "2"}]}, ["items.0.count"]),
    "text as a number": ({"customer": 7}, ["customer"]),
    "a boolean as a number": ({"items": [{"name": "tea", "count": True}]}, ["items.0.count"]),
    "a number as a boolean": ({"express": 1}, ["express"]),
    "a boolean as text": ({"express": "true"}, ["express"]),
    "a float for an integer": ({"items": [{"name": "tea", "count": 2.0}]}, ["items.0.count"]),
    "an unknown enum value": ({"colour": "green"}, ["colour"]),
    "the enum's name": ({"colour": "RED"}, ["colour"]),
    "an unknown literal": ({"size": "xl"}, ["size"]),
    "an extra key": ({"discount": 5}, ["discount"]),
    "an extra key deep inside": ({"items": [{"name": "tea", "count": 2, "colour": "red"}]}, ["items.0.colour"]),
    "a missing key": ({"items": [{"name": "tea"}]}, ["items.0.count"]),
    "null where there must be text": ({"customer": None}, ["customer"]),
    "an object for a list": ({"items": {"name": "tea", "count": 2}}, ["items"]),
    "everything": (
        {"customer": 1, "items": [{"name": 2}, "tea"], "express": "no", "weight": "heavy", "discount": 5},
        ["customer", "items.0.name", "items.0.count", "items.1", "express", "weight", "discount"],
    ),
}


@pytest.mark.parametrize("name", list(WRONG))
@pytest.mark.parametrize("form", ["text", "mapping", "bytes"])
def test_wrong_arguments_are_refused(name: str, form: str) -> None:
    """Wrong arguments never reach the handler; the reply names each path, what was expected and what came."""
    world, ran = ordering()
    change, paths = WRONG[name]
    arguments: Any = {**GOOD, **change}
    if form != "mapping":
        arguments = json.dumps(arguments)
    reply = world.call("order", arguments.encode() if form == "bytes" else arguments)
    assert (reply.outcome, ran) == ("invalid", [])
    details = json.loads(reply.text)["details"]
    assert sorted(details) == sorted(paths)
    assert all(details.values())
    assert world.events[0].params == (arguments.encode() if form == "bytes" else arguments)


def test_good_arguments_arrive_typed() -> None:
    """Good arguments arrive as an instance of the params type, nested ones and enums too."""
    world, ran = ordering()
    assert world.call("order", json.dumps({**GOOD, "colour": "blue", "weight": 2, "tags": {"a": 1}})).success
    assert ran == [Order("Ada", (Item("tea", 2),), weight=2.0, colour=Colour.BLUE, tags={"a": 1})]
    assert world.events[0].params == ran[0]


def test_a_check_of_the_params_type_itself() -> None:
    """What `__post_init__` raises is told like any other wrong argument."""

    @dataclass(frozen=True)
    class Span:
        start: int
        end: int

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValueError("end must not be before start")

    def span(params: Span) -> ToolResult[Any]:
        return ok()

    world = World(Tool[Span, Any](name="span", description="Span.", handler=span))
    reply = world.call("span", {"start": 2, "end": 1})
    assert reply.outcome == "invalid"
    assert "end must not be before start" in reply.text


def test_a_tool_without_params_takes_nothing() -> None:
    """A tool without params accepts nothing, null and an empty object, and refuses anything else."""

    def now(params: None) -> ToolResult[Any]:
        return ok()

    world = World(Tool[None, Any](name="now", description="The time.", handler=now, max_repeats=None))
    nothing: list[Any] = [None, "", "{}", "null", {}, b"{}"]
    for arguments in nothing:
        assert world.call("now", arguments).success, arguments
    for arguments in ('{"tz": 1}', {"tz": 1}, "[1]", "7", "nul"):
        assert world.call("now", arguments).outcome == "invalid", arguments


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(arguments=st.dictionaries(st.sampled_from([*Order.__dataclass_fields__, "extra"]), JSON, max_size=6))
def test_the_handler_runs_exactly_when_the_arguments_parse(arguments: dict[str, Any]) -> None:
    """Whatever the arguments, the handler runs only on what `parse` accepts, as text and as a mapping alike."""
    world, ran = ordering()
    try:
        expected = [parse(Order, json.dumps(arguments))]
    except ValueError:
        expected = []
    world.call("order", json.dumps(arguments))
    assert ran == expected
    world.call("order", arguments)
    assert ran == expected * 2
