"""Answers to calls that are not run: given by the caller, known from before, unknown, or simply not run.

A model must have one answer to every call, and the log one event. Whoever continues a conversation has calls that
another process ran, or that nobody can say anything about; "not run" is said only where that is certain.
"""

from __future__ import annotations

import logging

from ..crash_log import log_crash
from ..errors import ReducerError
from ..prompt.history import recorded_call
from .answers import answer_of
from .call import KEPT, Refused, ToolCall, ToolReply
from .call_memory import short_id
from .run import Run
from .settle import conclude_now

logger = logging.getLogger(__name__)


def decline(call: ToolCall, text: str, run: Run) -> ToolReply:
    """Say that a call was not run, in one event with the outcome `cancelled`.

    A call of this run that has an event keeps the answer in it: nothing more is recorded.
    """
    event = recorded_call(run.session, short_id(call.id)) if run.memory.knows(short_id(call.id)) else None
    return conclude_now(call, Refused("cancelled", text), run) if event is None else answer_of(event, run)


def answer_open_call(call: ToolCall, run: Run, given: ToolReply | None, recalled: ToolReply | None) -> ToolReply:
    """The answer to a call that was left open, recorded unless the log has it: what was given, else what is known.

    A given answer (a denial, or the result of a call that ran elsewhere) is recorded with its own outcome. `recalled`
    is what `recall_answer` found; a success that only the ledger knows goes to the reducers of its type, as in a
    replay. With neither, the outcome is `unknown`, or `cancelled` for a tool that only reads. Runs no handler.
    """
    reply = recalled if given is None else given
    if reply is None:
        return conclude_now(call, _unknown(call, run), run)
    event = recorded_call(run.session, short_id(call.id))
    if event is not None:
        run.memory.is_new(short_id(call.id))
        # What the engine answered was capped already, with a notice above the cap.
        return reply if reply.text == event.rendered_output else _capped(reply, call, run)
    if given is None and reply.outcome in KEPT:
        _route(reply, run)
    concluded = conclude_now(call, Refused(reply.outcome, reply.text), run, reply.result)
    return reply._replace(text=concluded.text)


def _capped(reply: ToolReply, call: ToolCall, run: Run) -> ToolReply:
    return reply._replace(text=run.cuts.capped_for(call.name, call.id, reply.text))


def _unknown(call: ToolCall, run: Run) -> Refused:
    name = call.name[:100]
    bound = run.tools.get(call.name)
    if bound is not None and bound.tool.annotations.read_only:
        return Refused(
            "cancelled",
            f"The result of '{name}' was lost when the conversation was interrupted.\n"
            "It only reads: call it again if its result is still needed.",
        )
    return Refused(
        "unknown",
        f"The outcome of '{name}' is unknown: the conversation was interrupted before it was recorded.\n"
        "It may have happened, so do not repeat it. Check first, with another tool or by asking a person, "
        "and go on from what you find.",
    )


def _route(reply: ToolReply, run: Run) -> None:
    try:
        run.session.route(reply.result.value)
    except ReducerError as error:  # the effect has happened all the same
        log_crash(logger, "A reducer failed on a recalled result", error, run.log_extra)


__all__ = ["answer_open_call", "decline"]
