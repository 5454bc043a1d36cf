"""The first half of stage 8: what a success means for others. Its value goes to the reducers, policies learn of it.

When a reducer, a policy or `render` fails or takes too long, the call has failed, and its end undoes it.
"""

from __future__ import annotations

import logging
from typing import Any

from ..crash_log import log_crash
from ..prompt.policy import notify_policies
from ..results import ToolResult
from ..session import Session
from .call import KEPT, Admitted, Ran
from .contexts import CallContext
from .invoke import internal_error, interrupted
from .limits import Steps
from .run import Run
from .waiting import OutOfTime

# What the model reads of a result: rendered, noted, capped.


_TELL_REPEATS = 3


def reply_text(admitted: Admitted, result: ToolResult[Any], run: Run) -> str:
    """Message and value, at most as long as the tool allows; from the third identical call on a note says so."""
    text = result.render()
    if type(text) is not str:
        raise TypeError(f"the message of a ToolResult must be a str, got {type(text).__name__}")
    request, tool, repeats, _ = admitted
    if len(text) > tool.max_result_chars:
        text = run.cuts.capped(request.call.id, text, tool.max_result_chars)
    if repeats >= _TELL_REPEATS:
        text = f"{text}\n[This is call number {repeats} in a row with the same arguments.]"
    return text


logger = logging.getLogger(__name__)


def accept_now(admitted: Admitted, ran: Ran, session: Session, run: Run) -> tuple[Ran, str]:
    """Route the value to its reducers and render it, for a call without policies and without limits."""
    result = ran.result
    try:
        if result.value is not None:
            session.route(result.value)
        return ran, reply_text(admitted, result, run)
    except BaseException as error:  # noqa: BLE001 - reducers and render() are users' code
        return broken(error, ran, run), ""


async def accept(  # noqa: PLR0917 - what the one caller has
    admitted: Admitted, ran: Ran, context: CallContext, session: Session, run: Run, steps: Steps
) -> tuple[Ran, str]:
    """Route the value to its reducers, tell the policies and render it, within the limits of the call."""
    result = ran.result
    _, bound, params = admitted.request
    try:
        if result.value is not None:
            steps.run_here(session.route, result.value)
        if bound.policies:
            await notify_policies(bound.policies, admitted.tool.name, params, result, context, steps.run)
        if result.value is None or not steps.limited:
            return ran, reply_text(admitted, result, run)
        return ran, await steps.run(reply_text, admitted, result, run)
    except OutOfTime:
        return too_long("completing it", ran, steps), ""
    except BaseException as error:  # noqa: BLE001 - reducers, policies and render() are users' code
        return broken(error, ran, run), ""


def too_long(what: str, ran: Ran, steps: Steps) -> Ran:
    """The end of a success whose completion ran out of time."""
    text = f"The call was undone, because {what} took too long."
    return Ran(ToolResult.error(text), steps.exceeded(), None, ran.raises)


def broken(error: BaseException, ran: Ran, run: Run) -> Ran:
    """The end of a call whose result could not be completed."""
    if not isinstance(error, Exception):
        return stopped(error, ran)
    log_crash(logger, "A call succeeded but could not be completed", error, run.log_extra)
    return Ran(ToolResult.error(internal_error(error, run)), "crashed", error, ran.raises)


def stopped(error: BaseException, ran: Ran) -> Ran:
    """Ctrl-C around the handler: the call has not succeeded any more, and what interrupts it must propagate."""
    if ran.outcome in KEPT:
        return interrupted(error)
    return ran if ran.raises is not None else ran._replace(raises=error)
