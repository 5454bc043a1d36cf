"""Tool calls for models without tool support: the model may write only a call or an answer, as JSON of this form.

    {"tool": "add", "args": {"a": 1, "b": 2}}       one of the tools, with arguments of its schema
    {"answer": "Three."}                            or the end

The schema is turned into a grammar that decides which tokens are allowed, so there are no broken or invented calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from ..loop.request import ModelRequest, ToolSpec
from ..runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage, UserMessage

_DEFS = "#/$defs/"
_MAX_COUNT = 1000
"""Longer repetitions make grammars that llama.cpp refuses; the engine checks the arguments anyway."""
_FORMATS = frozenset({"date", "time", "date-time", "uuid"})
_PLAIN_PATTERN = re.compile(r"\^(?:(?!\(\?|\\[bBAZ]).)*\$", re.DOTALL)


def response_schema(request: ModelRequest, *, may_call: bool = True) -> dict[str, Any] | None:
    """What the model may write; None for any text. Unless it `may_call`, it can only answer, in the same form."""
    if not request.tools:
        return None if request.output_schema is None else _Grammar("output").rooted(request.output_schema)
    alternatives: list[Any] = []
    definitions: dict[str, Any] = {}
    for tool in request.tools if may_call else ():
        grammar = _Grammar(tool.name)
        alternatives.append(_object(tool={"const": tool.name}, args=grammar.of(tool.schema)))
        definitions |= grammar.definitions
    grammar = _Grammar("output")
    answer = {"type": "string"} if request.output_schema is None else grammar.of(request.output_schema)
    alternatives.append(_object(answer=answer))
    definitions |= grammar.definitions
    return {"anyOf": alternatives, "$defs": definitions} if definitions else {"anyOf": alternatives}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@final
class _Grammar:
    """A schema without what grammars cannot say; its definitions get names of their own."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.definitions: dict[str, Any] = {}

    def rooted(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        made = self.of(schema)
        return {**made, "$defs": self.definitions} if self.definitions else made

    def of(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        for name, definition in schema.get("$defs", {}).items():
            self.definitions[self._named(name)] = self._node(definition)
        return self._node(schema)

    def _named(self, name: str) -> str:
        return f"{self._owner}.{name}"

    def _node(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._node(item) for item in cast(list[Any], node)]
        if not isinstance(node, Mapping):
            return node
        made: dict[str, Any] = {}
        for key, value in cast(Mapping[str, Any], node).items():
            if key == "$ref":
                made[key] = _DEFS + self._named(str(value).removeprefix(_DEFS))
            elif key in {"properties", "patternProperties"}:
                made[key] = {name: self._node(item) for name, item in value.items()}
            elif key in {"const", "enum", "required", "type"}:
                made[key] = value
            elif _can_be_said(key, value):
                made[key] = self._node(value)
        return made


def _can_be_said(key: str, value: Any) -> bool:
    if key in {"$defs", "title", "description", "default", "examples", "discriminator", "deprecated"}:
        return False
    if key in {"minLength", "maxLength", "minItems", "maxItems"}:
        return value <= _MAX_COUNT
    if key == "format":
        return value in _FORMATS
    return key != "pattern" or _PLAIN_PATTERN.fullmatch(value) is not None


# What the model reads.


def chat_messages(request: ModelRequest) -> list[dict[str, str]]:
    """The conversation for a chat template that knows system, user and assistant, who speak in turns."""
    instructions = [part for part in (request.system, _tools_text(request)) if part]
    spoken = [("system", "\n\n".join(instructions))] if instructions else []
    names = _names(request.messages)
    spoken += [_spoken(message, names, enveloped=bool(request.tools)) for message in request.messages]
    merged: list[dict[str, str]] = []
    for role, text in spoken:
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += f"\n\n{text}"
        else:
            merged.append({"role": role, "content": text})
    return merged


def _tools_text(request: ModelRequest) -> str:
    if not request.tools:
        return ""
    answer = '"your answer"' if request.output_schema is None else "(your answer, as the response format says)"
    return "\n".join(
        [
            "You can call tools. Reply with one JSON object: either a call of a tool,",
            '{"tool": "its name", "args": {...}}',
            "or, once you know what the user wants to know,",
            f'{{"answer": {answer}}}',
            "",
            "Tools:",
            *map(_tool_text, request.tools),
        ]
    )


def _tool_text(tool: ToolSpec) -> str:
    properties = {
        name: {key: value for key, value in item.items() if key != "additionalProperties"}
        for name, item in tool.schema.get("properties", {}).items()
    }
    return f"- {tool.name}: {tool.text}\n  args: {_json(properties)}"


def _names(messages: Sequence[Message]) -> dict[str, str]:
    return {call.id: call.name for message in messages if isinstance(message, ModelMessage) for call in message.calls}


def _spoken(message: Message, names: Mapping[str, str], *, enveloped: bool) -> tuple[str, str]:
    if isinstance(message, UserMessage):
        return "user", message.text
    if isinstance(message, AnswerMessage):
        return "user", f"Result of {names.get(message.call_id, 'the call')}:\n{message.text}"
    if not message.calls:
        return "assistant", _json({"answer": message.text}) if enveloped else message.text
    calls = "\n".join(f'{{"tool": {_json(call.name)}, "args": {call.arguments or "{}"}}}' for call in message.calls)
    return "assistant", f"{message.text}\n{calls}" if message.text else calls


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# What the model wrote.


def read_envelope(text: str, call_id: str) -> CallMessage | str | None:
    """The call, or the answer as text; None when the text was cut before its end."""
    try:
        written = json.loads(text)
    except ValueError:
        return None
    if "tool" in written:
        return CallMessage(call_id, written["tool"], _json(written["args"]))
    answer = written["answer"]
    return answer if isinstance(answer, str) else _json(answer)


@final
class AnswerText:
    """Reads the text of an answer out of the envelope while it is being written; of a call it reads nothing."""

    _BEGIN = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
    _WHOLE = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
    _HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
    """The first half of a character that is written as two: it waits for the second."""

    def __init__(self) -> None:
        self._raw = ""
        self._at: int | None = None
        self.text: str = ""

    def feed(self, piece: str) -> str:
        """What the piece adds to the text."""
        self._raw += piece
        if self._at is None:
            begin = self._BEGIN.match(self._raw)
            if begin is None:
                return ""
            self._at = begin.end()
        found = self._WHOLE.match(self._raw, self._at)
        whole = "" if found is None else found[0]
        half = self._HALF.search(whole)
        whole = whole if half is None else whole[: half.start()]
        self._at += len(whole)
        added = json.loads(f'"{whole}"', strict=False)
        self.text += added
        return added
