"""What the model reads of a result: rendered, noted, capped."""

from __future__ import annotations

from typing import Any

from ..results import ToolResult
from .call import Admitted
from .run import Run

_TELL_REPEATS = 3


def reply_text(admitted: Admitted, result: ToolResult[Any], run: Run) -> str:
    """Message and value, at most as long as the tool allows; from the third identical call on a note says so."""
    text = result.render()
    if type(text) is not str:
        raise TypeError(f"the message of a ToolResult must be a str, got {type(text).__name__}")
    request, tool, repeats, _ = admitted
    if len(text) > tool.max_result_chars:
        text = run.cuts.capped(request.call.id, text, tool.max_result_chars)
    if repeats >= _TELL_REPEATS:
        text = f"{text}\n[This is call number {repeats} in a row with the same arguments.]"
    return text


__all__ = ["reply_text"]
