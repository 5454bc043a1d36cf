"""Results too long for the model: the beginning is sent, the rest can be read on with a tool."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import final

from ..interrupts import Lock
from ..prompt.tool import DEFAULT_MAX_RESULT_CHARS, Tool
from ..prompt.tool_metadata import ToolAnnotations
from ..prompt.tree import BoundTool
from ..results import ToolResult
from .call import short_id

READ_TOOL = "read_tool_result"
_MAX_KEPT = 64
_MAX_HANDLE_CHARS = 100
_MAX_KEPT_CHARS = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadToolResult:
    """Which part of a result to read."""

    call_id: str = field(metadata={"description": "The id named in the notice of the cut result"})
    offset: int = field(default=0, metadata={"description": "The first character to read", "ge": 0})
    limit: int = field(
        default=DEFAULT_MAX_RESULT_CHARS // 2,
        metadata={"description": "How many characters to read", "ge": 1, "le": DEFAULT_MAX_RESULT_CHARS // 2},
    )


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result."""

    text: str

    def render(self) -> str:
        """The part as it is."""
        return self.text


@final
class TruncatedResults:
    """The full texts of results that were truncated; the oldest go when there are too many."""

    __slots__ = ("_chars", "_lock", "_texts", "_tools")

    def __init__(self, tools: dict[str, BoundTool]) -> None:
        self._tools = tools
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._chars = 0
        self._lock = Lock()

    def truncate(self, call_id: str, text: str, limit: int) -> str:
        """The text, or its beginning with a notice; from the first truncation on the tool to read on is offered."""
        if len(text) <= limit:
            return text
        call_id = short_id(call_id, _MAX_HANDLE_CHARS)
        with self._lock:
            self._keep(call_id, text)
            if READ_TOOL not in self._tools:
                self._tools[READ_TOOL] = BoundTool(self._tool())
        return (
            f"{text[:limit]}\n[Cut: {limit} of {len(text)} characters shown. "
            f'Call {READ_TOOL}(call_id="{call_id}", offset={limit}) to read on.]'
        )

    def truncate_for(self, tool_name: str, call_id: str, text: str) -> str:
        """The text, truncated as this tool's results are; an unknown tool has the usual limit."""
        bound = self._tools.get(tool_name)
        return self.truncate(call_id, text, DEFAULT_MAX_RESULT_CHARS if bound is None else bound.tool.max_result_chars)

    def full_text(self, call_id: str) -> str | None:
        """The whole of a result that was truncated and is still kept."""
        return self._texts.get(short_id(call_id, _MAX_HANDLE_CHARS))

    def restore(self, call_id: str, text: str) -> None:
        """Keep the whole of a result that was truncated in an earlier process."""
        self.truncate(call_id, text, 0)

    def _keep(self, call_id: str, text: str) -> None:
        self._chars += len(text) - len(self._texts.pop(call_id, ""))
        self._texts[call_id] = text
        while len(self._texts) > 1 and (len(self._texts) > _MAX_KEPT or self._chars > _MAX_KEPT_CHARS):
            self._chars -= len(self._texts.popitem(last=False)[1])

    def _tool(self) -> Tool[ReadToolResult, ResultPart]:
        return Tool[ReadToolResult, ResultPart](
            name=READ_TOOL,
            description="Read on in a tool result that was cut because it was too long.",
            handler=self._read,
            blocking=False,
            annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        )

    def _read(self, params: ReadToolResult) -> ToolResult[ResultPart]:
        text = self._texts.get(params.call_id)
        if text is None:
            known = ", ".join(self._texts)
            return ToolResult.error(
                f"No cut result with the id {params.call_id[:100]!r}\nResults that can be read: {known}"
            )
        end = min(params.offset + params.limit, len(text))
        if params.offset >= len(text):
            return ToolResult.error(f"The result has {len(text)} characters\nUse an offset below that")
        more = f", read on at offset {end}" if end < len(text) else ", the end"
        return ToolResult.ok(
            ResultPart(text[params.offset : end]), message=f"Characters {params.offset} to {end} of {len(text)}{more}"
        )
