"""Answers that were given before, read from the log."""

from __future__ import annotations

from typing import Any

from ..prompt.events import ToolInvoked
from ..prompt.history import recorded_call, was_undone
from ..results import ToolResult
from ..serde import has_secrets, without_secrets
from .call import Refused, ToolCall, ToolReply
from .call_memory import same_params, short_id
from .run import Run

UNEXPECTED: frozenset[str] = frozenset({"crashed", "undone", "unknown"})
"""Outcomes that nobody meant to happen; providers are told that these answers are errors."""

_UNDONE = "This call succeeded, but what it changed was undone later."


def answered_before(call: ToolCall, refused: Refused, run: Run) -> ToolReply:
    """The recorded answer to this very call; only the refusal while it runs, or when another call had its id."""
    event = recorded_call(run.session, short_id(call.id))
    if event is None or event.tool_name != call.name or not _same_params(call, event.params, run):
        return ToolReply(call.id, refused.text, ToolResult.error(refused.text), refused.outcome, duplicate=True)
    return answer_of(event, run)._replace(call_id=call.id, duplicate=True)


def shown_arguments(call: ToolCall, run: Run) -> Any:
    """What events keep of arguments that were not parsed: as the model sent them, but for the tool's secret fields."""
    bound = run.tools.get(call.name) if isinstance(call.name, str) else None
    if bound is None or not has_secrets(bound.tool.params_type):
        return call.arguments
    return without_secrets(bound.tool.params_type, call.arguments)


def _same_params(call: ToolCall, params: Any, run: Run) -> bool:
    try:
        if call.arguments == params or shown_arguments(call, run) == params:
            return True
        bound = run.tools.get(call.name)
        return bound is not None and same_params(bound.tool.parse(call.arguments or "{}"), params)
    except Exception:  # noqa: BLE001 - arguments that cannot be read, or params of somebody else's making
        return False


def answer_of(event: ToolInvoked, run: Run) -> ToolReply:
    """The answer that was recorded with a call; of a success that was undone since, that."""
    if was_undone(run.session, event):
        text = f"{_UNDONE}\nCheck what is there now before you call '{event.tool_name}' again."
        return ToolReply(event.call_id or "", text, ToolResult.error(text), "undone", is_error=True)
    text = event.rendered_output
    result = ToolResult.error(text) if event.result is None else event.result
    return ToolReply(event.call_id or "", text, result, event.outcome, event.outcome in UNEXPECTED)


__all__ = ["UNEXPECTED", "answer_of", "answered_before", "shown_arguments"]
