"""Stage 7: the end of a call. Keep or undo, tell, record, answer; in this order, for every call."""

from __future__ import annotations

import logging
from typing import Any

from ..crash_log import ids_text, log_crash
from ..errors import JournalError, ReducerError, RollbackError, SessionBusyError, StaleCallError
from ..fence import Guard
from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.events import ToolInvoked, tool_invoked
from ..resources.waiting import block_on
from ..results import ToolResult
from .accept import accept, accept_now, broken, stopped, too_long
from .answers import UNEXPECTED, answer_of, answered_before, shown_arguments
from .call import KEPT, Admitted, Ran, Refused, ToolCall, ToolReply, make
from .call_memory import short_id
from .contexts import CallContext
from .invoke import internal_error
from .nesting import keep_inside, link
from .redaction import recorded, text_of
from .reply import reply_text
from .run import Run
from .steps import AFTER_HANDLER, Steps
from .transactions import Savepoint
from .waiting import UNINTERRUPTED, OutOfTime, Waiting

logger = logging.getLogger(__name__)

_NOT_UNDONE = "The call failed and could not be undone completely."
_MAX_NAME_CHARS = 200


async def settle(  # noqa: PLR0917 - what a call has gathered
    admitted: Admitted, ran: Ran, context: CallContext, savepoint: Savepoint, run: Run, waiting: Waiting
) -> ToolReply:
    """End an admitted call; raises what must propagate, after everything is undone, told and recorded."""
    call, bound, params = admitted.request
    around = None if savepoint.owner.around is None else savepoint.around()
    steps = None
    if bound.policies or run.deadline is not None or admitted.tool.timeout is not None:
        steps = Steps(admitted.tool, run, waiting, least=AFTER_HANDLER)
    text = ""
    if ran.outcome in KEPT:
        session = run.session if around is None else context.session  # a call around this one may have ended
        if steps is None:
            ran, text = accept_now(admitted, ran, session, run)
        else:
            ran, text = await accept(admitted, ran, context, session, run, steps)
    try:
        context.end(ran.outcome)
    except BaseException as error:  # noqa: BLE001 - Ctrl-C while resources were closed; raised when all is undone
        ran = stopped(error, ran)
    changes = savepoint.changes()
    if ran.outcome not in KEPT:
        ran, text = await _undo(admitted, ran, changes, savepoint, run, steps)
    event = _event(call, params, ran, text, changes, admitted.started, run, savepoint)
    try:
        told = await steps.run(run.tell, event) if steps is not None and steps.limited else run.tell(event)
        failed = told.errors[0][1] if told.errors else None
    except BaseException as error:  # noqa: BLE001 - Ctrl-C, out of time, or a dispatcher of somebody else's making
        failed = _untold(error, run)
    if failed is not None:
        was_kept, ran = ran.outcome in KEPT, _unheard(failed, ran, steps, run)
        if was_kept:
            ran, text = await _undo(admitted, ran, changes, savepoint, run, steps)
            event = _event(call, params, ran, text, changes, admitted.started, run, savepoint)
    if around is None:
        _record(event, run, savepoint)
    else:
        ran, text = _record_inside(around, admitted, ran, text, event, changes, savepoint, run)
    result, outcome, _, raises = ran
    if raises is not None:
        raise raises
    if logger.isEnabledFor(logging.INFO) and outcome in KEPT:
        _log_success(event, run)
    return make(ToolReply, (call.id, text, result, outcome, outcome in UNEXPECTED, False))


def _log_success(event: ToolInvoked, run: Run) -> None:
    how = "succeeded" if event.outcome == "succeeded" else "was answered with an earlier result"
    text = "Call of %s %s in %.1f ms%s"
    logger.info(text, event.tool_name, how, event.duration * 1000, ids_text(run.log_extra), extra=run.log_extra)


async def conclude(
    call: ToolCall, refused: Refused, run: Run, waiting: Waiting, result: ToolResult[Any] | None = None
) -> ToolReply:
    """End a call that was not admitted: one event, one answer, nothing to undo.

    A call whose id was brought before has both already: it gets that answer again. `result` is for answers that came
    from elsewhere and are more than a text. Subscribers have the time that those of a call that ran have; one that
    takes longer is given up on and logged, which changes neither event nor answer.
    """
    call_id = call.id if isinstance(call.id, str) else ""
    if refused.duplicate:
        return answered_before(call, refused, run)
    name = call.name if isinstance(call.name, str) else type(call.name).__name__  # events are typed, models are not
    text, outcome = run.cuts.capped_for(name, call_id, refused.text), refused.outcome
    result = ToolResult.error(text) if result is None else result
    params = shown_arguments(call, run) if refused.params is None else refused.params
    bound = run.tools.get(name)
    call = ToolCall(short_id(call_id), name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}...")
    if call_id:
        run.memory.is_new(call.id)  # answered, so it is not run later either
    event = _event(call, params, Ran(result, outcome), text, NO_CHANGES, None, run, None)
    try:
        if run.deadline is None and (bound is None or bound.tool.timeout is None):
            run.tell(event)
        else:
            await Steps(None if bound is None else bound.tool, run, waiting, least=AFTER_HANDLER).run(run.tell, event)
    except Exception as error:  # noqa: BLE001 - out of time, or a dispatcher of somebody else's making
        _untold(error, run)
    finally:
        _record(event, run)
    logger.info("Call of %s was not run (%s): %s", call.name, outcome, text, extra=run.log_extra)
    return ToolReply(call_id, text, result, outcome, outcome in UNEXPECTED)


def conclude_now(call: ToolCall, refused: Refused, run: Run, result: ToolResult[Any] | None = None) -> ToolReply:
    """`conclude` without suspending; an interrupt waits until the call is recorded and answered."""
    return block_on(conclude(call, refused, run, UNINTERRUPTED, result))


def abort(call: ToolCall, params: Any, error: BaseException, savepoint: Savepoint | None, run: Run) -> ToolReply:
    """Undo and end a call that could not be carried out; passes on what is not an ordinary error."""
    if savepoint is not None:
        try:
            savepoint.undo()
        except RollbackError as failed:  # recorded like any other end; then the run must stop
            failed.tool_name = call.name
            conclude_now(call, Refused("crashed", _NOT_UNDONE, params=params), run)
            raise failed from error
    if isinstance(error, JournalError | SessionBusyError):  # a failed undo of files, or a call that stands still
        return conclude_now(call, Refused("refused", f"{text_of(error)}\nTherefore '{call.name}' was not run."), run)
    if isinstance(error, Exception):
        log_crash(logger, f"A call of {call.name} could not be carried out", error, run.log_extra)
        return conclude_now(call, Refused("crashed", internal_error(error, run), params=params), run)
    conclude_now(call, Refused("cancelled", "The call was interrupted.", params=params), run)
    raise error


def _untold(error: BaseException, run: Run) -> BaseException:
    if isinstance(error, Exception):
        log_crash(logger, "An event could not be dispatched", error, run.log_extra)
    return error


def _unheard(error: BaseException, ran: Ran, steps: Steps | None, run: Run) -> Ran:
    if not isinstance(error, Exception):
        return stopped(error, ran)
    if ran.outcome not in KEPT:
        return ran
    if steps is not None and isinstance(error, OutOfTime):
        return too_long("telling its subscribers", ran, steps)
    text = f"The call was undone, because its event could not be delivered. {internal_error(error, run)}"
    return Ran(ToolResult.error(text), "undone", error, ran.raises)


async def _undo(  # noqa: PLR0917 - what the one caller has
    admitted: Admitted, ran: Ran, changes: Changes, savepoint: Savepoint, run: Run, steps: Steps | None
) -> tuple[Ran, str]:
    try:
        savepoint.undo()
    except RollbackError as error:  # nothing can be promised any more: say so and stop the run
        error.tool_name = admitted.tool.name
        ran = Ran(ToolResult.error(_NOT_UNDONE), "crashed", error, error)
        return ran, ran.result.message
    except StaleCallError as error:  # the call around this one is over, and has undone or kept everything in it
        ran = Ran(ToolResult.error(str(error)), "cancelled", error, ran.raises)
        return ran, ran.result.message
    try:
        if steps is None or ran.result.value is None or not steps.limited:
            text = reply_text(admitted, ran.result, run)
        else:
            text = await steps.run(reply_text, admitted, ran.result, run)
    except BaseException as error:  # noqa: BLE001 - a failed result may carry a value with a broken render()
        if steps is not None and isinstance(error, OutOfTime):
            ran = too_long("rendering its result", ran, steps)
        else:
            ran = broken(error, ran, run)
        text = run.cuts.capped_for(admitted.tool.name, admitted.request.call.id, ran.result.message)
    return ran, f"{text}\n{changes.describe_undone()}" if changes else text


def _event(  # noqa: PLR0917 - all of them, for speed by position
    call: ToolCall,
    params: Any,
    ran: Ran,
    text: str,
    changes: Changes,
    started: float | None,
    run: Run,
    savepoint: Savepoint | None,
) -> ToolInvoked:
    result, outcome, error, _ = ran
    duration = 0.0 if started is None else run.monotonic() - started
    success = outcome == "succeeded" or outcome == "replayed"  # noqa: PLR1714 - quicker than a set
    kept = None if error is None else recorded(error)
    event = tool_invoked(
        call.name, params, result, success, run.time() - duration, duration, call.id, run.session_id,
        run.prompt_name, run.adapter_name, None, text, run.run_context, changes, outcome, kept,
    )  # fmt: skip
    if savepoint is None or savepoint.event_id is not None or savepoint.owner.around is not None:
        link(event, savepoint)
    return event


def _record_inside(  # noqa: PLR0917 - what the one caller has
    around: Guard, admitted: Admitted, ran: Ran, text: str, event: ToolInvoked, changes: Changes,
    savepoint: Savepoint, run: Run,
) -> tuple[Ran, str]:  # fmt: skip
    """Record the end of a nested call while the call around it cannot end.

    If that is over already, it has decided about everything inside it, so this call was not kept either.
    """
    try:
        around.__enter__()
    except StaleCallError as error:
        savepoint.forget()
        if ran.outcome in KEPT:
            ran, text = Ran(ToolResult.error(str(error)), "cancelled", error), str(error)
            event = _event(
                admitted.request.call, admitted.request.params, ran, text, changes, admitted.started, run, savepoint
            )
        _record(event, run, savepoint)
        return ran, text
    try:
        _record(event, run, savepoint)
    finally:
        around.__exit__(None, None, None)
    return ran, text


def _record(event: ToolInvoked, run: Run, savepoint: Savepoint | None = None) -> None:
    """Append to the log; a reducer that raises keeps its own slice from changing, not the event from being there.

    What a success changed is kept in the same breath: Ctrl-C in between must not make the log lie.
    """
    try:
        if savepoint is not None:
            savepoint.settled = True
            if event.success:
                savepoint.decided = True
        run.record(event)
    except BaseException as error:
        if savepoint is not None:
            savepoint.settled = True
            if event.success:
                savepoint.decided = True
        log = run.session[ToolInvoked]
        if log.latest() is not event:
            log.append(event)
        if not isinstance(error, ReducerError):
            raise
        log_crash(logger, "A reducer failed on ToolInvoked", error, run.log_extra)
    if savepoint is not None and savepoint.owner.around is not None and event.success:
        keep_inside(savepoint, event)


__all__ = ["abort", "answer_of", "conclude", "conclude_now", "settle"]
