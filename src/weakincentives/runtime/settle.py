"""Stage 7: the end of a call. Keep or undo, tell, record, answer; in this order, for every call."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import ReducerError, RollbackError
from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.events import ToolInvoked
from ..prompt.policy import notify_policies
from ..results import ToolResult
from .call import KEPT, Admitted, Ran, Refused, Request, ToolCall, ToolReply, make
from .contexts import CallContext
from .invoke import internal_error
from .reply import reply_text
from .run import Run
from .transactions import Savepoint

logger = logging.getLogger(__name__)

_UNEXPECTED: frozenset[str] = frozenset({"crashed", "undone", "unknown"})


def settle(admitted: Admitted, ran: Ran, context: CallContext, savepoint: Savepoint, run: Run) -> ToolReply:
    """End an admitted call; raises what must propagate, after everything is undone, told and recorded."""
    call, _, params = admitted.request
    text = ""
    if ran.outcome in KEPT:
        ran, text = _accept(admitted, ran, context, run)
    context.end(ran.outcome)
    changes = savepoint.changes()
    if ran.outcome not in KEPT:
        ran, text = _undo(admitted, ran, changes, savepoint, run)
    event = _event(call, params, ran, text, changes, admitted.started, run)
    told = run.tell(event)
    if told.errors and ran.outcome in KEPT:
        ran = _unheard(told.errors[0][1], ran, run)
        ran, text = _undo(admitted, ran, changes, savepoint, run)
        event = _event(call, params, ran, text, changes, admitted.started, run)
    result, outcome, _, raises = ran
    if outcome in KEPT:
        savepoint.keep()
    _record(event, run)
    if raises is not None:
        raise raises
    return make(ToolReply, (call.id, text, result, outcome, outcome in _UNEXPECTED, False))


def conclude(call: ToolCall, refused: Refused, run: Run) -> ToolReply:
    """End a call that was not admitted: one event, one answer, nothing to undo."""
    result: ToolResult[Any] = ToolResult.error(refused.text)
    params = call.arguments if refused.params is None else refused.params
    event = _event(call, params, Ran(result, refused.outcome), refused.text, NO_CHANGES, None, run)
    run.tell(event)
    _record(event, run)
    logger.info("Call of %s was not run (%s): %s", call.name, refused.outcome, refused.text, extra=run.log_extra)
    call_id = call.id if isinstance(call.id, str) else ""
    return ToolReply(call_id, refused.text, result, refused.outcome, duplicate=refused.duplicate)


def answer_of(event: ToolInvoked) -> ToolReply:
    """The answer to a call that raised, from what was recorded of it."""
    text = event.rendered_output
    result = ToolResult.error(text) if event.result is None else event.result
    return ToolReply(event.call_id or "", text, result, event.outcome, event.outcome in _UNEXPECTED)


def abort(request: Request, error: BaseException, run: Run) -> ToolReply:
    """End an admitted call whose savepoint could not be opened; passes on what is not an ordinary error."""
    if isinstance(error, Exception):
        name = request.call.name
        logger.error("The savepoint of a call of %s could not be opened", name, exc_info=error, extra=run.log_extra)
        return conclude(request.call, Refused("crashed", internal_error(error, run), params=request.params), run)
    text = "The call was interrupted before it began."
    conclude(request.call, Refused("cancelled", text, params=request.params), run)
    raise error


def _accept(admitted: Admitted, ran: Ran, context: CallContext, run: Run) -> tuple[Ran, str]:
    """Route the value to its reducers, tell the policies, render; if one of them fails the call has failed."""
    result = ran.result
    _, bound, params = admitted.request
    try:
        if result.value is not None:
            run.session.route(result.value)
        if bound.policies:
            notify_policies(bound.policies, admitted.tool.name, params, result, context)
        return ran, reply_text(admitted, result, run)
    except Exception as error:  # noqa: BLE001 - reducers, policies and render() are users' code
        return _broken(error, run), ""


def _broken(error: Exception, run: Run) -> Ran:
    logger.error("A call succeeded but could not be completed", exc_info=error, extra=run.log_extra)
    return Ran(ToolResult.error(internal_error(error, run)), "crashed", error)


def _unheard(error: Exception, ran: Ran, run: Run) -> Ran:
    text = f"The call was undone, because its event could not be delivered. {internal_error(error, run)}"
    return Ran(ToolResult.error(text), "undone", error, ran.raises)


def _undo(admitted: Admitted, ran: Ran, changes: Changes, savepoint: Savepoint, run: Run) -> tuple[Ran, str]:
    try:
        savepoint.undo()
    except RollbackError as error:  # nothing can be promised any more: say so and stop the run
        ran = Ran(ToolResult.error("The call failed and could not be undone completely."), "crashed", error, error)
        return ran, ran.result.message
    try:
        text = reply_text(admitted, ran.result, run)
    except Exception as error:  # noqa: BLE001 - a failed result may carry a value with a broken render()
        ran = Ran(ToolResult.error(internal_error(error, run)), "crashed", error, ran.raises)
        text = ran.result.message
    return ran, f"{text}\n{changes.describe_undone()}" if changes else text


def _event(  # noqa: PLR0917 - all of them, for speed by position
    call: ToolCall, params: Any, ran: Ran, text: str, changes: Changes, started: float | None, run: Run
) -> ToolInvoked:
    result, outcome, error, _ = ran
    duration = 0.0 if started is None else run.monotonic() - started
    success = outcome == "succeeded" or outcome == "replayed"  # noqa: PLR1714 - quicker than a set
    usage = event_id = None
    return ToolInvoked(
        call.name, params, result, success, run.time() - duration, duration, call.id, run.session_id,
        run.prompt_name, run.adapter_name, usage, text, run.run_context, event_id, changes, outcome, error,
    )  # fmt: skip


def _record(event: ToolInvoked, run: Run) -> None:
    """Append to the log; a reducer that raises keeps its own slice from changing, not the event from being there."""
    try:
        run.record(event)
    except ReducerError:
        logger.exception("A reducer failed on ToolInvoked", extra=run.log_extra)
        run.session[ToolInvoked].append(event)


__all__ = ["abort", "answer_of", "conclude", "settle"]
