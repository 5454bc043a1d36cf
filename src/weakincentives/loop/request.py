"""One question to a model and its answer, in words no provider owns: what a new adapter has to translate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..budget import TokenUsage
from ..errors import SchemaError
from ..prompt.tool import Tool
from ..results import render_value
from ..runtime.messages import CallMessage, Message
from ..serde import dump

# What a model is told about a tool: name, description with guidance and examples, schema.


class ToolSpec(NamedTuple):
    """One tool, ready to be put into a provider's words. Treat `schema` as read-only: it is shared.

    Attributes:
        guidance: what else the model should know, or None.
        examples: what to send, what came back and why, as plain data.
    """

    name: str
    description: str
    schema: dict[str, Any]
    examples: tuple[dict[str, Any], ...] = ()
    read_only: bool = False
    guidance: str | None = None

    @property
    def text(self) -> str:
        """The description, then the guidance and the examples: providers have one place for all three."""
        parts = [self.description] if self.guidance is None else [self.description, self.guidance]
        if self.examples:
            lines = [
                f"- {item['description']}: {_json(item['input'])} -> {_json(item['output'])}" for item in self.examples
            ]
            parts.append("\n".join(["Examples:", *lines]))
        return "\n\n".join(parts)


def tool_spec(tool: Tool[Any, Any]) -> ToolSpec:
    """Everything a provider can be told about the tool."""
    examples = tuple(
        {"description": item.description, "input": _plain(item.input), "output": _output(item.output)}
        for item in tool.examples
    )
    return ToolSpec(tool.name, tool.description, tool.schema(), examples, tool.annotations.read_only, tool.guidance)


def _plain(params: object) -> Any:
    return {} if params is None else dump(params)


def _output(value: object) -> Any:
    """Results may be of any type; one without a JSON form is shown as the model would read it."""
    try:
        return dump(value, computed=True)
    except SchemaError:
        return render_value(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause", "error"]
"""Why a model, or an evaluation, stopped.

end_turn: it had nothing more to say; tool_use: it waits for answers; max_tokens: it was cut; refusal: it declined;
pause: the provider wants to be asked again; error: only in `PromptExecuted`, of an evaluation that raised.
"""


class ModelRequest(NamedTuple):
    """What to ask.

    Attributes:
        messages: the whole conversation, the rendered prompt included.
        tools: what may be called.
        system: words that stand above the conversation, or None.
        output_schema: the JSON schema of the final answer, or None for plain text.
        timeout: seconds until the deadline, or None when there is none.
        on_text: takes text as it comes; None when nobody listens and streaming is needless.
        out_of_time: whether the deadline has passed; to be asked between the pieces of a stream.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    system: str | None = None
    output_schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    on_text: Callable[[str], object] | None = None
    out_of_time: Callable[[], bool] | None = None


class ModelTurn(NamedTuple):
    """What came back. `native` is what must go back as it came; see `ModelMessage`."""

    text: str = ""
    calls: tuple[CallMessage, ...] = ()
    usage: TokenUsage = TokenUsage()
    stop_reason: StopReason = "end_turn"
    native: tuple[dict[str, Any], ...] = ()
