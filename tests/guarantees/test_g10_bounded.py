"""G10, bounded: nothing unbounded reaches the model or stays behind."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from tests.world import Go, World, fine, make_tool, ok, outcomes

from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.prompt.tool import DEFAULT_MAX_RESULT_CHARS

BIG = 5_000_000


def talk(params: Go) -> ToolResult[Any]:
    match params.how:
        case "value":
            return ToolResult.ok("v" * params.number)
        case "error":
            return ToolResult.error("e" * params.number)
        case "raise":
            raise RuntimeError("r" * params.number)
        case "excluded":
            return ToolResult("short", "x" * params.number, exclude_value_from_context=True)
        case _:
            return ok("m" * params.number)


class Wordy:
    def check(self, tool_name: str, params: Any, context: ToolContext) -> str:
        return "p" * BIG


@pytest.mark.parametrize("how", ["", "value", "error", "raise"])
def test_replies_are_capped(how: str) -> None:
    """However long a result, an error or an exception is, the model reads at most the cap and a notice."""
    world = World(make_tool(talk))
    reply = world.call(arguments={"how": how, "number": BIG})
    assert len(reply.text) < DEFAULT_MAX_RESULT_CHARS + 200
    assert re.search(r"\[Cut: 32768 of (50000\d\d|655\d\d) characters shown\. Call read_tool_result", reply.text)


def test_what_fits_exactly_is_not_cut() -> None:
    """A result as long as the cap is sent whole; one character more is cut, and the rest can be read."""
    world = World(make_tool(talk, max_result_chars=1000))
    assert world.call(arguments={"number": 1000}).text == "m" * 1000
    assert "read_tool_result" not in [tool.name for tool in world.executor.tools]
    assert "[Cut: 1000 of 1001" in world.call(arguments={"number": 1001}).text
    assert "read_tool_result" in [tool.name for tool in world.executor.tools]


def test_refusals_are_capped() -> None:
    """A policy, a tool's name, an id or arguments of any length make no unbounded reply."""
    refused = World(make_tool(fine), policies=[Wordy()]).call()
    world = World(make_tool(fine))
    world.call(call_id="i" * BIG)
    replies = [
        refused,
        world.call(call_id="i" * BIG),
        world.call("n" * BIG),
        world.call(arguments="a" * BIG),
        world.call(arguments={"k" * BIG: 1}),
        world.call(arguments={f"key{number}": 1 for number in range(100_000)}),
        world.call(arguments={"how": ["x"] * 100_000}),
        world.call(arguments={"number": "7" * BIG}),
    ]
    for reply in replies:
        assert not reply.success
        assert len(reply.text) < DEFAULT_MAX_RESULT_CHARS + 300, reply.text[:200]


def test_excluded_values_are_neither_shown_nor_readable() -> None:
    """A value that is kept from the model cannot be read with `read_tool_result` either."""
    world = World(make_tool(talk))
    assert world.call(arguments={"how": "excluded", "number": BIG}).text == "short"
    assert world.call("read_tool_result", {"call_id": "call-1"}).outcome == "unknown_tool"


def test_identical_calls_are_told_then_stopped() -> None:
    """The third identical call in a row is told so, the fifth and all after it are refused."""
    world = World(make_tool(fine))
    replies = [world.call(arguments={"how": "same"}) for _ in range(7)]
    assert [reply.outcome for reply in replies] == ["succeeded"] * 4 + ["refused"] * 3
    assert ["in a row" in reply.text for reply in replies] == [False, False, True, True, True, True, True]


@pytest.mark.parametrize("form", ["text", "mapping", "one mapping that changes"])
def test_other_calls_are_not_stopped(form: str) -> None:
    """Calls with other arguments, or of another tool in between, are not repetitions."""
    world = World(make_tool(fine), make_tool(fine, "other"))
    shared: dict[str, Any] = {}
    for number in range(10):
        shared["number"] = number
        arguments = {"text": f'{{"number": {number}}}', "mapping": {"number": number}}.get(form, shared)
        assert world.call(arguments=arguments).text == "done"
    for _ in range(10):
        assert world.call(arguments="{}").text == "done"
        assert world.call("other", arguments="{}").text == "done"


def test_the_same_mapping_in_another_order_is_the_same_call() -> None:
    """A mapping is compared by its content."""
    world = World(make_tool(fine))
    pairs = [("how", "x"), ("number", 1)]
    ends = [world.call(arguments=dict(pairs if number % 2 else pairs[::-1])).outcome for number in range(5)]
    assert ends == ["succeeded"] * 4 + ["refused"]


def test_a_tool_that_polls_may_repeat_itself() -> None:
    """`max_repeats=None` turns it off, another number sets it."""
    world = World(make_tool(fine, max_repeats=None), make_tool(fine, "twice", max_repeats=2))
    assert {world.call().text for _ in range(20)} == {"done"}
    assert [world.call("twice").outcome for _ in range(3)] == ["succeeded", "refused", "refused"]


def test_a_failed_call_counts_as_a_repetition_too() -> None:
    """A model that repeats a failing call is stopped as well."""
    world = World(make_tool(talk))
    for _ in range(6):
        world.call(arguments={"how": "error", "number": 1})
    assert outcomes(world.events) == ["failed"] * 4 + ["refused"] * 2


def test_what_is_remembered_of_ids_is_little() -> None:
    """Every id is remembered, at the price of a fraction of what the log holds of its call."""
    world = World(make_tool(fine, max_repeats=None))
    sizes: list[int] = []
    for ids in (range(2_000), range(2_000, 4_000)):
        tracemalloc.start()
        for number in ids:
            world.executor._run.memory.is_new(f"id-{number}")
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sum(sizes) / 4_000 < 250
