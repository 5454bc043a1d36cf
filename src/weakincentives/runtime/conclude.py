"""The other ends of a call: one that was not admitted, one that could not be carried out, one that was answered before.

Each of them has its one event and its one reply, like a call that ran.
"""

from __future__ import annotations

import logging
from typing import Any

from ..crash_log import log_crash
from ..errors import JournalError, RecordError, RollbackError, SessionBusyError
from ..prompt.changes import NO_CHANGES
from ..prompt.events import ToolInvoked, tool_invoked
from ..prompt.policies import recorded_call, was_undone
from ..results import ToolResult
from ..serde.secret_fields import has_secrets, without_secrets
from ..waiting import UNINTERRUPTED, Waiting, drive
from .call import KEPT, Refused, ToolCall, ToolReply, short_id
from .finish import NOT_UNDONE, UNEXPECTED, keep_and_log, log_dispatch_failure
from .invoke import internal_error
from .limits import AFTER_HANDLER, Steps
from .nesting import link
from .redaction import text_of
from .run import Run, same_params
from .transactions import Savepoint

logger: logging.Logger = logging.getLogger(__name__)

_UNDONE = "This call succeeded, but what it changed was undone later."
_MAX_NAME_CHARS = 200


async def conclude(
    call: ToolCall, refused: Refused, run: Run, waiting: Waiting, result: ToolResult[Any] | None = None
) -> ToolReply:
    """End a call that was not admitted: one event, one answer, nothing to undo.

    A call whose id is known already has both: it gets that answer again. `result` is for answers that came
    from elsewhere and are more than a text. Subscribers have the time that those of a call that ran have; one that
    takes longer is given up on and logged, which changes neither event nor answer.
    """
    call_id = call.id if isinstance(call.id, str) else ""
    if refused.duplicate:
        return answered_before(call, refused, run)
    name = call.name if isinstance(call.name, str) else type(call.name).__name__  # events are typed, models are not
    text, outcome = run.truncated.truncate_for(name, call_id, refused.text), refused.outcome
    result = ToolResult.error(text) if result is None else result
    params = shown_arguments(call, run) if refused.params is None else refused.params
    bound = run.tools.get(name)
    call = ToolCall(short_id(call_id), name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}...")
    if call_id:
        run.memory.is_new(call.id)  # answered, so it is not run later either
    event = tool_invoked(
        call.name, params, result, outcome in KEPT, run.time(), 0.0, call.id, run.session_id, run.prompt_name,
        run.adapter_name, None, text, run.run_context, NO_CHANGES, outcome, None,
    )  # fmt: skip
    link(event, None)
    try:
        if run.deadline is None and (bound is None or bound.tool.timeout is None):
            run.tell(event)
        elif run.dispatch_if_unsubscribed(event) is None:
            await Steps(None if bound is None else bound.tool, run, waiting, least=AFTER_HANDLER).run(run.tell, event)
    except Exception as error:  # noqa: BLE001 - out of time, or a dispatcher of a user's class
        log_dispatch_failure(error, run)
    except BaseException:
        if run.recorder is not None:
            run.recorder.stop(lost=True)
        keep_and_log(event, None, run)
        raise
    try:
        if run.recorder is not None and not run.recorder.stopped:
            tool = None if bound is None else bound.tool
            more = {"raw": True} if refused.params is None else {}  # whether the arguments were parsed
            await run.recorder.ended(event, call, tool, None, run.truncated, waiting, **more)
    finally:
        keep_and_log(event, None, run)
    logger.info("Call of %s was not run (%s): %s", call.name, outcome, text, extra=run.log_extra)
    return ToolReply(call_id, text, result, outcome, outcome in UNEXPECTED)


def conclude_now(call: ToolCall, refused: Refused, run: Run, result: ToolResult[Any] | None = None) -> ToolReply:
    """`conclude` without suspending; an interrupt waits until the call is recorded and answered."""
    return drive(conclude(call, refused, run, UNINTERRUPTED, result))


def abort(call: ToolCall, params: Any, error: BaseException, savepoint: Savepoint | None, run: Run) -> ToolReply:
    """Undo and end a call that could not be carried out; passes on what is not an ordinary error."""
    if savepoint is not None:
        try:
            savepoint.undo()
        except RollbackError as failed:  # recorded like any other end; then the run must stop
            failed.tool_name = call.name
            conclude_now(call, Refused("crashed", NOT_UNDONE, params=params), run)
            raise failed from error
    if isinstance(error, JournalError | SessionBusyError):  # a failed undo of files, or a call that stands still
        return conclude_now(call, Refused("refused", f"{text_of(error)}\nTherefore '{call.name}' was not run."), run)
    if isinstance(error, RecordError):
        if run.recorder is not None:
            run.recorder.stop()
        conclude_now(call, Refused("cancelled", f"{text_of(error)}\nTherefore '{call.name}' was not run."), run)
        raise error
    if isinstance(error, Exception):
        log_crash(logger, f"A call of {call.name} could not be carried out", error, run.log_extra)
        return conclude_now(call, Refused("crashed", internal_error(error, run), params=params), run)
    if run.recorder is not None:
        run.recorder.stop()
    conclude_now(call, Refused("cancelled", "The call was interrupted.", params=params), run)
    raise error


# Answers that were given before, read from the log.


def answered_before(call: ToolCall, refused: Refused, run: Run) -> ToolReply:
    """The recorded answer to this very call; only the refusal while it runs, or when another call had its id."""
    event = recorded_call(run.session, short_id(call.id))
    if event is None or event.tool_name != call.name or not _same_params(call, event.params, run):
        return ToolReply(call.id, refused.text, ToolResult.error(refused.text), refused.outcome, duplicate=True)
    return reply_from_event(event, run)._replace(call_id=call.id, duplicate=True)


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
    except Exception:  # noqa: BLE001 - arguments that cannot be read, or params of a user's class
        return False


def reply_from_event(event: ToolInvoked, run: Run) -> ToolReply:
    """The answer that was recorded with a call; for a success that was undone since, an error that says so."""
    if was_undone(run.session, event):
        text = f"{_UNDONE}\nCheck what is there now before you call '{event.tool_name}' again."
        return ToolReply(event.call_id or "", text, ToolResult.error(text), "undone", is_error=True)
    text = event.rendered_output
    result = ToolResult.error(text) if event.result is None else event.result
    return ToolReply(event.call_id or "", text, result, event.outcome, event.outcome in UNEXPECTED)
