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
    refused = run.memory.refusal_of(call_id)
    if refused is not None:
        raise refused
    bound = run.tools.get(name) if isinstance(name, str) else None
    if bound is None:
        raise Refused("unknown_tool", _unknown(name, run.tools))
    if bound.tool.handler is None:
        raise Refused("refused", f"Tool '{name}' has no handler here, so it cannot be called.\nUse another tool.")
    if arguments is None or (type(arguments) is str and not arguments):
        arguments = "{}"
    try:
        params = bound.tool.parse(arguments)
    except ParseError as error:
        raise Refused("invalid", error_text(error, f"tool '{name}'")) from None
    except Exception:  # noqa: BLE001 - a mapping of somebody else's making, or an object that is none
        raise Refused("invalid", f"The arguments of '{name}' cannot be read.\nSend them as a JSON object.") from None
    return make(Request, (call, bound, params))


def _unknown(name: object, known: Iterable[str]) -> str:
    names = list(known)
    asked = name[:100] if isinstance(name, str) else type(name).__name__
    near = get_close_matches(asked, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    hint = f"Did you mean: {', '.join(near)}?\n" if near else ""
    return f"Unknown tool {asked!r}\n{hint}Available tools: {listed or 'none'}"


__all__ = ["parse"]
