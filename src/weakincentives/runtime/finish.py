"""Stages 7 to 10: the end of a call. Complete it or undo it, tell, commit, answer; in this order, for every call.

An event is published before the call ends: a subscriber that fails still undoes it. And it is logged after that, with
the final outcome, in the same step in which the changes are kept.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from ..crash_log import ids_text, log_crash
from ..errors import ReducerError, RollbackError, StaleCallError, VisibilityExpansionRequired
from ..fence import Guard
from ..prompt.events import ToolInvoked, tool_invoked
from ..prompt.policy import notify_policies
from ..results import ToolResult, renders_itself
from ..waiting import OutOfTime, Waiting
from .call import KEPT, Accepted, Admitted, Committed, HandlerOutcome, Told, ToolReply
from .contexts import CallContext
from .invoke import internal_error, interrupted
from .limits import AFTER_HANDLER, Steps
from .nesting import keep_inside, link
from .options import CallRecorder
from .redaction import recorded
from .run import Run
from .transactions import Savepoint

logger: logging.Logger = logging.getLogger(__name__)

UNEXPECTED: frozenset[str] = frozenset({"crashed", "undone", "unknown"})
"""Outcomes that were not meant to happen; providers are told that these answers are errors."""

NOT_UNDONE = "The call failed and could not be undone completely."
_TELL_REPEATS = 3


async def accept(  # noqa: PLR0917 - what a call has gathered
    admitted: Admitted, ended: HandlerOutcome, context: CallContext, savepoint: Savepoint, run: Run, waiting: Waiting
) -> Accepted:
    """Complete a success: its value to the reducers, its result to the policies, its text. Undo everything else.

    Closes the call's handles. When a reducer, a policy or `render` fails or takes too long, the call has failed.
    """
    tool, result, listeners = admitted.tool, ended.result, admitted.request.bound.listeners
    steps, text = None, ""
    if listeners or run.deadline is not None or tool.timeout is not None:
        steps = Steps(tool, run, waiting, least=AFTER_HANDLER)
    if ended.outcome in KEPT:
        try:
            if result.value is not None:
                inside = savepoint.owner.around is not None and savepoint.enclosing_fence() is not None
                session = context.session if inside else run.session  # fenced: a call around this one may have ended
                if steps is None:
                    session.dispatch_value(result.value)
                else:
                    steps.run_here(session.dispatch_value, result.value)
            if listeners and steps is not None:
                await notify_policies(listeners, tool.name, admitted.request.params, result, context, steps.run)
            if steps is None or not steps.limited or renders_itself(result):
                text = reply_text(admitted, result, run)
            else:
                text = await steps.run(reply_text, admitted, result, run)
        except BaseException as error:  # noqa: BLE001 - reducers, policies and render() are users' code
            if steps is not None and isinstance(error, OutOfTime):
                ended = _too_long("completing it", ended, steps)
            else:
                ended = _as_crashed(error, ended, run)
    try:
        # Before anything is undone: a write that came after the undo would stay.
        context.end(ended.outcome)
    except BaseException as error:  # noqa: BLE001 - Ctrl-C while resources were closed; raised when all is undone
        ended = _stopped(error, ended)
    is_kept = ended.outcome in KEPT
    changes = savepoint.changes(to_undo=not is_kept)
    if is_kept:
        return Accepted(admitted, ended, text, changes)
    return await _undo(Accepted(admitted, ended, "", changes), savepoint, run, steps)


def reply_text(admitted: Admitted, result: ToolResult[Any], run: Run) -> str:
    """Message and value, at most as long as the tool allows; from the third identical call on a note says so."""
    text = result.render()
    if type(text) is not str:
        raise TypeError(f"the message of a ToolResult must be a str, got {type(text).__name__}")
    request, tool = admitted.request, admitted.tool
    if len(text) > tool.max_result_chars:
        text = run.truncated.truncate(request.call.id, text, tool.max_result_chars)
    if request.repeats >= _TELL_REPEATS:
        text = f"{text}\n[This is call number {request.repeats} in a row with the same arguments.]"
    return text


async def tell(accepted: Accepted, savepoint: Savepoint, run: Run, waiting: Waiting) -> Told:
    """Publish the event to the subscribers while the call can still be undone; if one of them fails, it is undone.

    If it were published after the call was kept, a failure could only be logged, and subscribers would have missed a
    change that stays.
    """
    event, steps, tool = _event(accepted, savepoint, run), None, accepted.admitted.tool
    try:
        is_limited = run.deadline is not None or tool.timeout is not None
        dispatched = run.dispatch_if_unsubscribed(event) if is_limited else run.tell(event)
        if dispatched is None:
            steps = Steps(tool, run, waiting, least=AFTER_HANDLER)
            dispatched = await steps.run(run.tell, event)
        failed = dispatched.errors[0][1] if dispatched.errors else None
    except BaseException as error:  # noqa: BLE001 - Ctrl-C, out of time, or a dispatcher of a user's class
        failed = log_dispatch_failure(error, run)
    if failed is None:
        return Told(accepted, event)
    return await _undo_after_subscriber_failure(failed, Told(accepted, event), savepoint, run, steps)


async def commit(told: Told, savepoint: Savepoint, run: Run, waiting: Waiting) -> Committed:
    """Put the call on record, then keep what a success changed and log the event, as one step.

    The record comes before that step: it can be awaited, and a call that cannot be recorded is undone.
    """
    if run.recorder is not None and not run.recorder.stopped:
        # First the record, then the files: if the process is killed in between, the files are undone when it starts
        # again, and a resumed run restores them from the record. The other way round, the call would be run twice.
        told = await _put_on_record(told, savepoint, run, run.recorder, waiting)
    around = None if savepoint.owner.around is None else savepoint.enclosing_fence()
    if around is not None:
        return _commit_inside(around, told, savepoint, run)
    keep_and_log(told.event, savepoint, run)
    return Committed(told.event, told.accepted.ended)


def finish(committed: Committed, run: Run) -> ToolReply:
    """The reply; or raise what must reach the caller, now that everything is undone, told and recorded."""
    event, ended = committed.event, committed.ended
    if ended.raises is not None:
        raise ended.raises
    if logger.isEnabledFor(logging.INFO) and event.success:
        _log_success(event, run)
    outcome = ended.outcome
    return ToolReply(event.call_id or "", event.rendered_output, ended.result, outcome, outcome in UNEXPECTED)


def _log_success(event: ToolInvoked, run: Run) -> None:
    how = "succeeded" if event.outcome == "succeeded" else "was answered with an earlier result"
    text = "Call of %s %s in %.1f ms%s"
    logger.info(text, event.tool_name, how, event.duration * 1000, ids_text(run.log_extra), extra=run.log_extra)


# What makes a success a failure after all, and how it is undone.


def _too_long(what: str, ended: HandlerOutcome, steps: Steps) -> HandlerOutcome:
    text = f"The call was undone, because {what} took too long."
    return HandlerOutcome(ToolResult.error(text), steps.exceeded(), None, ended.raises)


def _as_crashed(error: BaseException, ended: HandlerOutcome, run: Run) -> HandlerOutcome:
    """The end of a call whose result could not be completed."""
    if not isinstance(error, Exception):
        return _stopped(error, ended)
    log_crash(logger, "A call succeeded but could not be completed", error, run.log_extra)
    return HandlerOutcome(ToolResult.error(internal_error(error, run)), "crashed", error, ended.raises)


def _stopped(error: BaseException, ended: HandlerOutcome) -> HandlerOutcome:
    """Ctrl-C around the handler: the call no longer counts as a success, and the interrupt must propagate."""
    if ended.outcome in KEPT:
        return interrupted(error)
    return ended if ended.raises is not None else replace(ended, raises=error)


def log_dispatch_failure(error: BaseException, run: Run) -> BaseException:
    """Log what kept an event from its subscribers, unless it is an interrupt; returns it."""
    if isinstance(error, Exception):
        log_crash(logger, "An event could not be dispatched", error, run.log_extra)
    return error


async def _undo_after_subscriber_failure(
    failed: BaseException, told: Told, savepoint: Savepoint, run: Run, steps: Steps | None
) -> Told:
    accepted = told.accepted
    ended = accepted.ended
    was_kept = ended.outcome in KEPT
    if not isinstance(failed, Exception):
        ended = _stopped(failed, ended)
    elif was_kept and steps is not None and isinstance(failed, OutOfTime):
        ended = _too_long("telling its subscribers", ended, steps)
    elif was_kept:
        text = f"The call was undone, because its event could not be delivered. {internal_error(failed, run)}"
        ended = HandlerOutcome(ToolResult.error(text), "undone", failed, ended.raises)
    accepted = replace(accepted, ended=ended)
    if not was_kept:
        return Told(accepted, told.event)
    accepted = await _undo(accepted, savepoint, run, steps)
    return Told(accepted, _event(accepted, savepoint, run))


async def _undo(accepted: Accepted, savepoint: Savepoint, run: Run, steps: Steps | None) -> Accepted:
    """Undo a call that failed; the text then ends with what was undone."""
    admitted, ended, changes = accepted.admitted, accepted.ended, accepted.changes
    try:
        savepoint.undo()
    except RollbackError as error:  # nothing can be promised any more: say so and stop the run
        error.tool_name = admitted.tool.name
        ended = HandlerOutcome(ToolResult.error(NOT_UNDONE), "crashed", error, error)
        return Accepted(admitted, ended, ended.result.message, changes)
    except StaleCallError as error:  # the call around this one is over, and has undone or kept everything in it
        ended = HandlerOutcome(ToolResult.error(str(error)), "cancelled", error, ended.raises)
        return Accepted(admitted, ended, ended.result.message, changes)
    try:
        if steps is None or not steps.limited or renders_itself(ended.result):
            text = reply_text(admitted, ended.result, run)
        else:
            text = await steps.run(reply_text, admitted, ended.result, run)
    except BaseException as error:  # noqa: BLE001 - a failed result may carry a value with a broken render()
        if steps is not None and isinstance(error, OutOfTime):
            ended = _too_long("rendering its result", ended, steps)
        else:
            ended = _as_crashed(error, ended, run)
        text = run.truncated.truncate_for(admitted.tool.name, admitted.request.call.id, ended.result.message)
    if changes:
        text = f"{text}\n{changes.describe_undone(effect_unknown=ended.outcome == 'unknown')}"
    return Accepted(admitted, ended, text, changes)


async def _put_on_record(told: Told, savepoint: Savepoint, run: Run, recorder: CallRecorder, waiting: Waiting) -> Told:
    """Record how the call ended. One that cannot be recorded did not happen: it is undone, and the run must end."""
    accepted, event = told.accepted, told.event
    ended, request = accepted.ended, accepted.admitted.request
    if ended.raises is not None and not isinstance(ended.raises, Exception):
        recorder.stop()  # interrupted: when the run goes on, this call is made again
        if recorder.stopped:
            return told
    more: dict[str, Any] = {}
    if isinstance(ended.raises, VisibilityExpansionRequired):
        more["sections"] = list(ended.raises.section_keys)
    try:
        await recorder.ended(event, request.call, accepted.admitted.tool, savepoint, run.truncated, waiting, **more)
    except BaseException as error:  # noqa: BLE001 - raised by `finish`
        if recorder.step_of(event) is not None:  # cancelled while it was written
            return Told(replace(accepted, ended=replace(ended, raises=ended.raises or error)), event)
        recorder.stop(lost=True)
        if ended.outcome in KEPT:
            text = f"The call was undone, because it could not be recorded. {internal_error(error, run)}"
            outcome = "undone" if isinstance(error, Exception) else "cancelled"
            ended = HandlerOutcome(ToolResult.error(text), outcome, error, error)
            accepted = await _undo(replace(accepted, ended=ended), savepoint, run, None)
        else:
            accepted = replace(accepted, ended=replace(ended, raises=ended.raises or error))
        return Told(accepted, _event(accepted, savepoint, run))
    return told


# The event, and how it is logged.


def _event(accepted: Accepted, savepoint: Savepoint, run: Run) -> ToolInvoked:
    request, ended, outcome = accepted.admitted.request, accepted.ended, accepted.ended.outcome
    call, duration = request.call, run.monotonic() - request.started
    error = None if ended.error is None else recorded(ended.error)
    # By position: sixteen keywords take nine times as long, which is a twelfth of a whole call.
    event = tool_invoked(
        call.name, request.params, ended.result, outcome in KEPT, run.time() - duration, duration, call.id,
        run.session_id, run.prompt_name, run.adapter_name, None, accepted.text, run.run_context, accepted.changes,
        outcome, error,
    )  # fmt: skip
    if savepoint.event_id is not None or savepoint.owner.around is not None:
        link(event, savepoint)
    return event


def _commit_inside(around: Guard, told: Told, savepoint: Savepoint, run: Run) -> Committed:
    """Record the end of a nested call while the call around it cannot end.

    If that is over already, it has decided about everything inside it, so this call was not kept either.
    """
    accepted, event = told.accepted, told.event
    try:
        around.__enter__()
    except StaleCallError as error:
        savepoint.release_without_undo()
        if accepted.ended.outcome in KEPT:
            ended = HandlerOutcome(ToolResult.error(str(error)), "cancelled", error)
            accepted = replace(accepted, ended=ended, text=str(error))
            event = _event(accepted, savepoint, run)
        keep_and_log(event, savepoint, run)
        return Committed(event, accepted.ended)
    try:
        keep_and_log(event, savepoint, run)
    finally:
        around.__exit__(None, None, None)
    return Committed(event, accepted.ended)


def keep_and_log(event: ToolInvoked, savepoint: Savepoint | None, run: Run) -> None:
    """Append to the log; a reducer that raises keeps its own slice from changing, not the event from being there.

    What a success changed is kept in the same step: with Ctrl-C in between, the log would tell of a success that is
    undone, or not at all of one that stays.
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
