"""The JSON form in which a model without tools of its own calls them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from weakincentives.adapters import AnswerMessage, CallMessage, ModelMessage, ModelRequest, ToolSpec, UserMessage
from weakincentives.adapters.local import _Reading  # pyright: ignore[reportPrivateUsage] # it needs no llama.cpp
from weakincentives.adapters.local_envelope import AnswerText, chat_messages, read_envelope, response_schema
from weakincentives.serde import schema


@dataclass
class Node:
    name: Annotated[str, Field(pattern="[a-z]", max_length=5000)]
    kind: Annotated[str, Field(pattern="^[a-z]{1,5}$")]
    description: Literal["a", "b"] = "a"
    child: Node | None = None


ADD = ToolSpec("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
GROW = ToolSpec("grow", "Grow a tree.", schema(Node))


def _request(*messages: Any, tools: tuple[ToolSpec, ...] = (ADD, GROW), output: Any = None) -> ModelRequest:
    return ModelRequest(messages or (UserMessage("Go."),), tools, None, output)


def test_without_tools_and_types_anything_may_be_written() -> None:
    """A prompt with neither tools nor an output type puts no bounds on the text."""
    assert response_schema(_request(tools=())) is None


def test_without_tools_the_answer_is_the_output_itself() -> None:
    """A prompt with an output type and no tools is answered in that type, with no envelope around it."""
    made = response_schema(_request(tools=(), output=schema(Node)))
    assert made is not None
    assert made["$ref"] == "#/$defs/output.Node"
    assert made["$defs"]["output.Node"]["properties"]["child"]["anyOf"][0] == {"$ref": "#/$defs/output.Node"}


def test_the_envelope_allows_each_tool_and_an_answer() -> None:
    """One alternative a tool, with its name and its arguments, and one for the answer."""
    made = response_schema(_request())
    assert made is not None
    add, grow, answer = made["anyOf"]
    assert add["properties"]["tool"] == {"const": "add"}
    assert add["required"] == ["tool", "args"]
    assert grow["properties"]["args"] == {"$ref": "#/$defs/grow.Node"}
    assert answer["properties"] == {"answer": {"type": "string"}}


def test_what_a_grammar_cannot_say_is_left_out() -> None:
    """Patterns without anchors, long repetitions and descriptions are dropped; properties of such names are not."""
    made = response_schema(_request())
    assert made is not None
    properties = made["$defs"]["grow.Node"]["properties"]
    assert properties["name"] == {"type": "string"}
    assert properties["kind"]["pattern"] == "^[a-z]{1,5}$"
    assert properties["description"]["enum"] == ["a", "b"]


def test_a_model_that_may_not_call_can_only_answer() -> None:
    """After the last call that is allowed only the answer is left, in the same form."""
    made = response_schema(_request(output={"type": "integer"}), may_call=False)
    assert made is not None
    assert [item["required"] for item in made["anyOf"]] == [["answer"]]


def test_the_conversation_alternates_between_user_and_assistant() -> None:
    """Whatever comes in a row from one side is one message, so that every chat template takes it."""
    messages = chat_messages(
        _request(
            UserMessage("Add."),
            ModelMessage("", (CallMessage("1", "add", '{"a": 1}'), CallMessage("2", "add", '{"a": 2}'))),
            AnswerMessage("1", "one"),
            AnswerMessage("2", "two"),
            UserMessage("And?"),
            ModelMessage("Three."),
        )
    )
    assert [item["role"] for item in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[2]["content"] == '{"tool": "add", "args": {"a": 1}}\n{"tool": "add", "args": {"a": 2}}'
    assert messages[3]["content"] == "Result of add:\none\n\nResult of add:\ntwo\n\nAnd?"
    assert messages[4]["content"] == '{"answer": "Three."}'


def test_the_tools_are_described_above_the_conversation() -> None:
    """Name, description and parameters of every tool are in the system message."""
    system = chat_messages(_request())[0]["content"]
    assert '- add: Add numbers.\n  args: {"a": {"type": "integer"}}' in system
    assert "- grow: " in system


def test_guidance_is_told_with_the_description() -> None:
    """As every other adapter does."""
    told = chat_messages(_request(tools=(ADD._replace(guidance="Never call it for 0."),)))[0]["content"]
    assert "- add: Add numbers.\n\nNever call it for 0.\n" in told


def test_reading_a_call_and_an_answer() -> None:
    """A whole envelope is a call or an answer; typed answers come back as their JSON."""
    assert read_envelope('{"tool": "add", "args": {"a": 1}}', "x") == CallMessage("x", "add", '{"a": 1}')
    assert read_envelope('{"answer": "Hi"}', "x") == "Hi"
    assert read_envelope('{"answer": {"a": [1]}}', "x") == '{"a": [1]}'


@pytest.mark.parametrize("cut", ["", "{", '{"tool": "add", "args": {"a"', '{"answer": "Hel'])
def test_a_cut_envelope_is_neither(cut: str) -> None:
    """What was cut in the middle is not taken for a call."""
    assert read_envelope(cut, "x") is None


@given(st.text(max_size=60), st.booleans(), st.data())
def test_an_answer_is_read_while_it_is_written(text: str, ascii_only: bool, data: st.DataObject) -> None:
    """However the envelope is cut into pieces, the pieces of text add up to the answer, each sound by itself."""
    raw = json.dumps({"answer": text}, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    reading, pieces = AnswerText(), list[str]()
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        pieces.append(reading.feed(raw[begin:end]))
    assert "".join(pieces) == text == reading.text
    if all(not 0xD800 <= ord(char) <= 0xDFFF for char in text):
        "".join(pieces).encode()
        for piece in pieces:
            piece.encode()


def test_nothing_of_a_call_is_read_as_text() -> None:
    """A call has no text, even when its arguments hold an answer."""
    reading = AnswerText()
    assert reading.feed('{"tool": "add", "args": {"answer": "no"}}') == ""


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"tool": "add", "args": {"a": 1, "b"', ""),
        ('{"too', ""),
        ('{"answer": {"verdict": "fi', ""),
        ('{"answer": "It is thr', "It is thr"),
    ],
)
def test_a_call_that_was_cut_is_never_the_answer(written: str, text: str) -> None:
    """What the model wrote of a call, or of an answer that is no text, is not for people to read."""
    heard: list[str] = []
    reading = _Reading(_request()._replace(on_text=heard.append), Event(), 60.0)
    for piece in written:
        assert not reading.take({"choices": [{"delta": {"content": piece}}]})
    assert not reading.take({"choices": [{"delta": {}, "finish_reason": "length"}]})
    turn = reading.turn()
    assert (turn.text, turn.calls, turn.stop_reason) == (text, (), "max_tokens")
    assert "".join(heard) == text
