"""Looking up, in the log and the ledger, how a call without an answer ended. Nothing is run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from ..crash_log import log_crash
from ..errors import ReducerError
from ..prompt.events import Outcome, ToolInvoked
from ..prompt.policies import recorded_call
from ..prompt.tool import Tool
from ..results import ToolResult
from .call import KEPT, Refused, ToolCall, ToolReply, short_id
from .conclude import conclude_now, reply_from_event
from .effects import INEXACT, ClaimRequest, claim_request, former_key, running_text, runs_here, unknown_text
from .ledger.effects import LedgerEntry, load_result
from .ledger.protocol import is_same_tool
from .run import Run

logger: logging.Logger = logging.getLogger(__name__)


def recall_answer(call: ToolCall, run: Run) -> ToolReply | None:
    """The answer to a call of an earlier turn or process, if anything is known of it; None when nothing is.

    For a conversation that is continued although its last call was not answered: the process may have ended between
    the effect and the answer. Looked up in this order:

    1. the session's log: the event of a success with this id and tool is the answer that was given then, unless it
       was undone since;
    2. for an idempotent tool, its ledger: a success is the answer again (outcome `replayed`); a call that is running,
       or in doubt, is `unknown`, and the text says which;
    3. the log again: the event of a call that did not succeed, or was undone.

    Runs no handler, asks no `reconcile`, claims nothing, records no event and remembers no id. None also for unknown
    tools and for arguments that the tool refuses: such a call did not run. A ledger that cannot be read answers
    `unknown`. No exception leaves this, but it may wait for a disk or a server: async code calls it in a thread.
    """
    event = _recorded(call, run)
    recorded = None if event is None else reply_from_event(event, run)
    if recorded is not None and recorded.success:
        return recorded
    return _from_ledger(call, run) or recorded


def _from_ledger(call: ToolCall, run: Run) -> ToolReply | None:
    bound = run.tools.get(call.name) if isinstance(call.name, str) else None
    if bound is None or bound.tool.idempotency is None:
        return None
    tool = bound.tool
    try:
        params = tool.parse(call.arguments or "{}")
        asked = claim_request(tool, params, run)
    except Exception:  # noqa: BLE001 - refused arguments, or a key function that raises: without a key nothing ran
        return None
    if asked is None:
        return None
    try:
        if runs_here(asked, run):
            return _unknown(call, running_text(tool.name))
        entry = _find(asked, tool, params, run)
        return None if entry is None else _answer(call, tool, entry, run)
    except Exception as error:  # noqa: BLE001 - a ledger that cannot be used
        log_crash(logger, "The ledger cannot be read", error, run.log_extra)
        return _in_doubt(call, tool, "the ledger cannot be read")


def _recorded(call: ToolCall, run: Run) -> ToolInvoked | None:
    """The newest event of this call; ids are the model's, so the tool must be the same one as well."""
    for event in reversed(run.session[ToolInvoked].all()):
        if event.call_id == call.id and event.tool_name == call.name:
            return event
    return None


def _find(asked: ClaimRequest, tool: Tool[Any, Any], params: Any, run: Run) -> LedgerEntry | None:
    """The call's row; under its former key if it has none under its own."""
    ledger = run.ledger()
    entry = ledger.find(asked.effect_id)
    if entry is not None and _is_same_call(asked, entry):
        return entry
    former = former_key(asked, tool, params, run) if ledger.former_keys else None
    entry = None if former is None else ledger.find(former.asked.effect_id)
    if former is None or entry is None or not _is_same_call(former.asked, entry):
        return None
    return entry if former.exact else replace(entry, state="unknown", effect=None, why=INEXACT)


def _is_same_call(asked: ClaimRequest, entry: LedgerEntry) -> bool:
    same_params = not asked.strict_params or asked.params_hash == entry.params_hash
    return same_params and is_same_tool(entry.tool_name, asked.tool_name)


def _answer(call: ToolCall, tool: Tool[Any, Any], entry: LedgerEntry, run: Run) -> ToolReply:
    if entry.effect is not None:
        result = load_result(entry.effect.stored, tool.result_type)
        return _reply(call, tool, result, "replayed", run)
    if entry.state == "started" and entry.lease_left > 0:
        return _in_doubt(call, tool, "it is still running")
    return _in_doubt(call, tool, "it did not end as it should" if run.hide_errors else entry.why)


def _reply(call: ToolCall, tool: Tool[Any, Any], result: ToolResult[Any], outcome: Outcome, run: Run) -> ToolReply:
    try:
        text = result.render()
    except Exception as error:  # noqa: BLE001 - values are users' code, and so is their render()
        log_crash(logger, f"A recalled result of {tool.name} cannot be rendered", error, run.log_extra)
        text = result.message
    return ToolReply(call.id, run.truncated.truncate(call.id, text, tool.max_result_chars), result, outcome)


def _in_doubt(call: ToolCall, tool: Tool[Any, Any], why: str) -> ToolReply:
    assert tool.idempotency is not None
    return _unknown(call, unknown_text(tool.name, why, tool.idempotency))


def _unknown(call: ToolCall, text: str) -> ToolReply:
    result: ToolResult[Any] = ToolResult.error(text)
    return ToolReply(call.id, result.message, result, "unknown", is_error=True)


# Answers to calls that are not run: given by the caller, known from before, unknown, or simply not run.
#
# A model must have one answer to every call, and the log one event. A conversation that is continued may have calls
# that another process ran, or whose outcome is unknown; "not run" is said only where that is certain.


def decline(call: ToolCall, text: str, run: Run) -> ToolReply:
    """Say that a call was not run, in one event with the outcome `cancelled`.

    A call of this run that has an event keeps the answer in it: nothing more is recorded.
    """
    event = recorded_call(run.session, short_id(call.id)) if run.memory.knows(short_id(call.id)) else None
    return conclude_now(call, Refused("cancelled", text), run) if event is None else reply_from_event(event, run)


def answer_open_call(call: ToolCall, run: Run, given: ToolReply | None, recalled: ToolReply | None) -> ToolReply:
    """The answer to a call that was left open, recorded unless the log has it: what was given, else what is known.

    A given answer (a denial, or the result of a call that ran elsewhere) is recorded with its own outcome. `recalled`
    is what `recall_answer` found; a success that only the ledger knows goes to the reducers of its type, as in a
    replay. With neither, the outcome is `unknown`, or `cancelled` for a tool that only reads. Runs no handler.
    """
    reply = recalled if given is None else given
    if reply is None:
        return conclude_now(call, _unknown_answer(call, run), run)
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
    return reply._replace(text=run.truncated.truncate_for(call.name, call.id, reply.text))


def _unknown_answer(call: ToolCall, run: Run) -> Refused:
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
        run.session.dispatch_value(reply.result.value)
    except ReducerError as error:  # the effect has happened all the same
        log_crash(logger, "A reducer failed on a recalled result", error, run.log_extra)
