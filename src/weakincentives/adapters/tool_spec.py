"""What a model is told about a tool: name, description with guidance and examples, schema."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..errors import SchemaError
from ..prompt.tool import Tool
from ..results import render_value
from ..serde import dump


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


__all__ = ["ToolSpec", "tool_spec"]
