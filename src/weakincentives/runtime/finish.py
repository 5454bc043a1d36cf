"""Stage 7: the end of a call. Keep or undo, tell, record, answer; in this order, for every call."""

from __future__ import annotations

import logging
from typing import Any

from ..crash_log import ids_text, log_crash
from ..errors import JournalError, ReducerError, RollbackError, SessionBusyError, StaleCallError
from ..fence import Guard, current_owner
from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.event_ids import new_event_id
from ..prompt.events import CallsUndone, ToolInvoked, link_event, tool_invoked
from ..prompt.policies import recorded_call, was_undone
from ..resources.waiting import block_on
from ..results import ToolResult
from ..serde import has_secrets, without_secrets
from ..session import Session
from ..session.savepoints import unowned_recorder
from .accept import accept, accept_now, broken, reply_text, stopped, too_long
from .call import KEPT, Admitted, Ran, Refused, ToolCall, ToolReply, make
from .call_memory import same_params, short_id
from .contexts import CallContext
from .invoke import internal_error
from .limits import AFTER_HANDLER, Steps
from .redaction import recorded, text_of
from .run import Run
from .transactions import CompositeSnapshot, Savepoint
from .waiting import UNINTERRUPTED, OutOfTime, Waiting

# Answers that were given before, read from the log.


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


# Calls inside calls and transactions, as the log tells them.
#
# An event names the call around it (`within`), and one that was undone names the calls that were undone with it
# (`undone_calls`). So the log can be folded into the state: take what succeeded, and leave out what an event undid.


def link(event: ToolInvoked, savepoint: Savepoint | None) -> None:
    """Say which call the event's call was made in, and what was undone with it. Without a savepoint it did not run."""
    if savepoint is None:
        owner = current_owner()
        outer, inner, own = None if owner is None else owner.holder, (), None
    else:
        outer, inner, own = savepoint.outer(), savepoint.inner_calls, savepoint.event_id
    while outer is not None and not hasattr(outer, "call"):
        outer = outer.outer()
    within = None if outer is None else _event_id_of(outer)
    if within is not None or inner or own is not None:
        link_event(event, own, within, () if event.success else tuple(inner))


def keep_inside(savepoint: Savepoint, event: ToolInvoked | None = None) -> None:
    """The savepoint was kept, so what it holds stands or falls with the savepoint around it, if there is one."""
    outer = savepoint.outer()
    if outer is not None and savepoint.is_inside(outer):
        outer.inner_calls = (*outer.inner_calls, *savepoint.inner_calls, *(() if event is None else (event.event_id,)))


def record_undone(session: Session, calls: tuple[str, ...]) -> None:
    """Record that calls were undone by something that has no event of its own."""
    if calls:
        event = CallsUndone(undone_calls=calls, session_id=session.session_id, timestamp=session.clock.time())
        unowned_recorder(session)(event)
        session.dispatcher.dispatch(event)


def calls_since(session: Session, snapshot: CompositeSnapshot) -> tuple[str, ...]:
    """The calls that succeeded since a snapshot and were not undone already."""
    logs = snapshot.session.logs()
    calls = session[ToolInvoked].all()[len(logs.get(ToolInvoked, ())) :]
    undone = {call for event in calls for call in event.undone_calls}
    for event in session[CallsUndone].all()[len(logs.get(CallsUndone, ())) :]:
        undone.update(event.undone_calls)
    return tuple(event.event_id for event in calls if event.success and event.event_id not in undone)


def _event_id_of(call: Savepoint) -> str:
    """The id that the event of a call will have: calls inside it refer to it before it is made."""
    if call.event_id is None:
        call.event_id = new_event_id()
    return call.event_id


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
