"""Stage 1: from a call to a request, the tool known and the params typed. Nothing is touched."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ..errors import ParseError
from ..serde import error_text
from .call import Refused, Request, ToolCall, make
from .run import Run

_MAX_LISTED = 20


def parse(call: ToolCall, run: Run) -> Request:
    """Look up the tool and check the arguments; `Refused` says what the model should do instead."""
    call_id, name, arguments = call
    if not isinstance(call_id, str) or not call_id:
        raise Refused("invalid", "The call has no id, so it was not run.\nSend every call with an id of its own.")
    if not run.memory.is_new(call_id):
        raise Refused("invalid", f"The id {call_id!r} was used before, so this call was not run.", duplicate=True)
    bound = run.tools.get(name) if isinstance(name, str) else None
    if bound is None:
        raise Refused("unknown_tool", _unknown(name, run.tools))
    if bound.tool.handler is None:
        raise Refused("refused", f"Tool '{name}' has no handler here, so it cannot be called.\nUse another tool.")
    try:
        params = bound.tool.parse("{}" if arguments is None or arguments == "" else arguments)
    except ParseError as error:
        raise Refused("invalid", error_text(error, f"tool '{name}'")) from None
    return make(Request, (call, bound, params))


def _unknown(name: object, known: Iterable[str]) -> str:
    names = list(known)
    asked = str(name)[:100]
    near = get_close_matches(asked, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    hint = f"Did you mean: {', '.join(near)}?\n" if near else ""
    return f"Unknown tool {asked!r}\n{hint}Available tools: {listed or 'none'}"


__all__ = ["parse"]
