"""The conversation kept with an exception, and answers to open calls; `PromptResponse` is in `runtime.response`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..runtime.call import ToolReply
from ..runtime.messages import CallMessage, History
from ..runtime.response import OpenCall, PromptResponse

_HISTORY = "wink_history"
_MAX_LISTED = 20


# The conversation up to an exception, so that it can be continued after one.


def attach_history(error: BaseException, history: History) -> None:
    """Keep the conversation with the exception that ended it; an inner evaluation's is not overwritten."""
    error.__dict__.setdefault(_HISTORY, history)


def history_of(error: BaseException) -> History | None:
    """The conversation that ended with this exception, every call answered; None when there was none.

    Works for whatever `evaluate` raised, `KeyboardInterrupt` and cancellation included.
    """
    found = error.__dict__.get(_HISTORY)
    return found if isinstance(found, History) else None


# What `tool_results=` was given: answers of the engine, or given in its place.


def by_call(results: Iterable[ToolReply]) -> dict[str, ToolReply]:
    """The answers by the ids of their calls; of several the one that is not a duplicate."""
    replies: dict[str, ToolReply] = {}
    for reply in results:
        if not reply.duplicate or reply.call_id not in replies:
            replies[reply.call_id] = reply
    return replies


def check_open(replies: Mapping[str, ToolReply], calls: Iterable[CallMessage], *, where: str) -> None:
    """Raise ValueError when there are answers to calls that are not open; duplicates of old ones do no harm.

    `where` names the conversation in the message. Called before anything is recorded, closed or sent.
    """
    known = [call.id for call in calls]
    given = [reply.call_id for reply in replies.values() if not reply.duplicate]
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise ValueError(
            f"tool_results= holds answers to calls that are not open: {_listed(unknown)}. "
            f"Open in {where}: {_listed(known) or 'none'}. "
            "Leave these answers out, or continue the conversation that made the calls."
        )


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(call_id[:100] for call_id in ids[:_MAX_LISTED]) + more


__all__ = ["OpenCall", "PromptResponse", "attach_history", "by_call", "check_open", "history_of"]
