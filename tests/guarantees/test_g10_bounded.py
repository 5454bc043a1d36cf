"""G10, bounded: nothing unbounded reaches the model or stays behind."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator
from tests.world import Go, World, fine, make_tool, ok, outcomes

from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import Tool, ToolContext, ToolResult
from weakincentives.prompt.tool import DEFAULT_MAX_RESULT_CHARS
from weakincentives.runtime import ToolCall
from weakincentives.runtime.redaction import ended_text

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


@pytest.mark.slow
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


class Unrenderable:
    """A value whose `render` raises with a text of its own."""

    def __init__(self, size: int) -> None:
        self.size = size

    def render(self) -> str:
        raise RuntimeError("b" * self.size)


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("limit", [1_000, DEFAULT_MAX_RESULT_CHARS])
def test_a_result_that_cannot_be_rendered_is_capped(success: bool, limit: int) -> None:
    """A value with a broken `render()` makes no unbounded reply, neither on success nor on failure."""

    def act(params: Go) -> ToolResult[Any]:
        return ToolResult("m" * BIG, Unrenderable(BIG), success=success)

    world = World(make_tool(act, max_result_chars=limit))
    reply = world.call()
    assert reply.outcome == "crashed"
    assert len(reply.text) < limit + 200
    assert "read_tool_result" in reply.text
    assert world.events[0].rendered_output == reply.text


def test_refusals_are_capped_as_the_tool_says() -> None:
    """A refusal is no longer than the tool allows its results to be, and neither is what the log keeps of it."""
    world = World(make_tool(fine, max_result_chars=1_000), policies=[Wordy()])
    reply = world.call()
    assert reply.outcome == "refused"
    assert len(reply.text) < 1_200
    (event,) = world.events
    assert event.result is not None
    assert len(event.result.message) < 1_200
    assert world.call("read_tool_result", {"call_id": "call-1", "offset": 1_000}).success


@pytest.mark.parametrize("size", [200, 5_000, BIG])
def test_a_long_id_makes_no_long_answer(size: int) -> None:
    """The notice of a cut names a short handle; an id of megabytes is refused, and the log keeps its beginning."""
    world = World(make_tool(talk, max_result_chars=1_000))
    reply = world.call(arguments={"number": 3_000}, call_id="i" * size)
    assert reply.call_id == "i" * size
    assert len(reply.text) < 1_400
    (event,) = world.events
    assert event.call_id is not None
    assert len(event.call_id) <= 16 * 1024
    assert reply.success is (size < BIG)
    if reply.success:
        handle = re.search(r'call_id="([^"]+)"', reply.text)
        assert handle is not None
        assert world.call("read_tool_result", {"call_id": handle[1], "offset": 2_000}).success
    assert world.call(arguments={"number": 3_000}, call_id="i" * size).duplicate
    assert world.executor.execute(ToolCall("i" * (size - 1) + "j", "act", "{}")).duplicate is False
    assert len({event.call_id for event in world.events}) == len(world.events)


def test_a_long_name_is_not_kept() -> None:
    """Of a tool's name that no tool can have the log keeps the beginning."""
    world = World(make_tool(fine))
    world.call("n" * BIG)
    assert len(world.events[0].tool_name) < 300


def test_what_ends_an_evaluation_makes_no_long_answers() -> None:
    """The answers to calls that an exception left open tell little of it, without credentials."""
    text = ended_text(PromptEvaluationError("password=hunter22 " + "x" * BIG))
    assert text.startswith("The evaluation ended: password=[masked] xxx")
    assert len(text) < 2_100


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
    for number in range(10):
        assert world.call(arguments="{}").text == "done"
        assert world.call("other", arguments={"number": number}).text == "done"


def test_the_same_mapping_in_another_order_is_the_same_call() -> None:
    """A mapping is compared by its content."""
    world = World(make_tool(fine))
    pairs = [("how", "x"), ("number", 1)]
    ends = [world.call(arguments=dict(pairs if number % 2 else pairs[::-1])).outcome for number in range(5)]
    assert ends == ["succeeded"] * 4 + ["refused"]


SPELLINGS: list[Any] = [
    '{"how": "x", "amount": 10}',
    '{"amount":10,"how":"x"}',
    '{ "how" : "\\u0078",\n "amount": 10.0 }',
    b'{"amount": 1e1, "how": "x"}',
    {"how": "x", "amount": 10},
]
"""One call in five ways."""


@dataclass(frozen=True)
class Pay:
    amount: float
    how: str = ""


@dataclass(slots=True, eq=False)
class Plain:
    """Params whose class does not compare them."""

    number: int


class Hostile:
    """A value that cannot be compared."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


@dataclass
class Odd:
    """Params with such a value."""

    number: Annotated[Any, AfterValidator(Hostile)]


def pay(params: Pay) -> ToolResult[Any]:
    return ok()


@pytest.mark.parametrize("turn", [0, 1, 2, 3, 4])
def test_calls_are_compared_by_what_they_say(turn: int) -> None:
    """Order of keys, white space, escapes and the spelling of numbers make no other call of it."""
    world = World(Tool[Pay, Any](name="act", description="Pay.", handler=pay))
    replies = [world.call(arguments=SPELLINGS[(turn + number) % 5]) for number in range(6)]
    assert [reply.outcome for reply in replies] == ["succeeded"] * 4 + ["refused"] * 2
    assert ["in a row" in reply.text for reply in replies] == [False, False, True, True, True, True]


def test_nothing_is_nothing_however_it_is_spelled() -> None:
    """A call without arguments is the same whether nothing, null or an empty object was sent."""

    def now(params: None) -> ToolResult[Any]:
        return ok()

    world = World(Tool[None, Any](name="act", description="The time.", handler=now))
    spelled: list[Any] = [None, "", "{}", "null", {}]
    ends = [world.call(arguments=arguments).outcome for arguments in spelled]
    assert ends == ["succeeded"] * 4 + ["refused"]


@pytest.mark.parametrize("form", ["text", "mapping"])
def test_fields_are_compared_whatever_the_class_says(form: str) -> None:
    """Params of a class without equality are the same when their fields are."""

    def act(params: Plain) -> ToolResult[Any]:
        return ok()

    world = World(Tool[Plain, Any](name="act", description="Act.", handler=act))
    arguments: Any = '{"number": 1}' if form == "text" else {"number": 1}
    assert [world.call(arguments=arguments).outcome for _ in range(5)] == ["succeeded"] * 4 + ["refused"]
    assert {world.call(arguments={"number": number}).outcome for number in range(9)} == {"succeeded"}


def test_params_that_cannot_be_compared_are_other_params() -> None:
    """Where comparing raises, only the same text is the same call."""

    def act(params: Odd) -> ToolResult[Any]:
        return ok()

    world = World(Tool[Odd, Any](name="act", description="Act.", handler=act))
    assert {world.call(arguments={"number": 1}).outcome for _ in range(8)} == {"succeeded"}
    ends = [world.call(arguments='{"number": 1}').outcome for _ in range(5)]
    assert ends == ["succeeded"] * 4 + ["refused"]


def test_two_calls_in_turn_are_stopped() -> None:
    """A, B, A, B, ...: the fifth time that each has given the same answer it is refused, and so on."""
    world = World(make_tool(fine), make_tool(fine, "other"))
    replies = [world.call(name) for _ in range(30) for name in ("act", "other")]
    assert [reply.outcome for reply in replies] == ["succeeded"] * 8 + ["refused"] * 52
    assert "in turn with 'other'" in replies[8].text
    assert "in turn with 'act'" in replies[9].text
    assert world.call(arguments={"number": 1}).success
    assert world.call("other", {"number": 2}).success
    assert world.call().success


def test_two_calls_of_one_tool_in_turn_are_stopped() -> None:
    """The two calls may be of one tool; their arguments tell them apart."""
    world = World(make_tool(talk))
    ends = [world.call(arguments={"how": "error", "number": 1 + step % 2}).outcome for step in range(10)]
    assert ends == ["failed"] * 8 + ["refused"] * 2


def test_two_calls_in_turn_that_get_on_are_not_stopped() -> None:
    """Stepping and looking, again and again: as long as an answer differs the two are at work."""
    steps: list[int] = []

    def step(params: Go) -> ToolResult[Any]:
        steps.append(1)
        return ok()

    def look(params: Go) -> ToolResult[Any]:
        return ok(f"at {len(steps)}")

    world = World(make_tool(step, "step"), make_tool(look, "look"))
    assert {world.call(name).outcome for _ in range(12) for name in ("step", "look")} == {"succeeded"}


def test_three_calls_in_turn_are_not_stopped() -> None:
    """The rule is about one call, or two in turn; longer rounds end with the limit of turns."""
    world = World(make_tool(fine))
    assert {world.call(arguments={"number": step % 3}).outcome for step in range(30)} == {"succeeded"}


def test_a_tool_that_polls_may_repeat_itself() -> None:
    """`max_repeats=None` turns it off, also for calls in turn; another number sets it."""
    world = World(
        make_tool(fine, max_repeats=None),
        make_tool(fine, "poll", max_repeats=None),
        make_tool(fine, "twice", max_repeats=2),
    )
    assert {world.call().text for _ in range(20)} == {"done"}
    assert {world.call(name).text for _ in range(20) for name in ("act", "poll")} == {"done"}
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
