"""Stage 5: the handler. Whatever it does, it ends as a `Ran`: no exception leaves this stage."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any, cast

from ..crash_log import log_crash
from ..deadlines import Deadline
from ..errors import DeadlineExceededError, PromptEvaluationError, ToolError, VisibilityExpansionRequired
from ..event_loop import thread_loop
from ..prompt.events import Outcome
from ..prompt.handlers import Call, read_handler
from ..prompt.tool import Tool
from ..prompt.tool_context import ToolContext
from ..results import ToolResult
from ..run_context import RunContext
from .call import Admitted, Ran, make
from .contexts import CallContext
from .handler_watch import HandlerEnd
from .processes import Job, parents_heartbeat
from .redaction import redact, text_of
from .run import Run
from .waiting import Limits, OutOfTime, Waiting

logger = logging.getLogger(__name__)


class NotBegun(DeadlineExceededError):  # noqa: N818 - a fact, not a fault
    """The deadline passed before the handler began."""


def start(admitted: Admitted, context: CallContext, run: Run, waiting: Waiting) -> Ran | Awaitable[Any] | None:
    """Run a plain handler in this thread, which is the usual case.

    None when the handler has limits, is async or would block an event loop: it has not begun then. An awaitable is what
    it returned.
    """
    tool, shield = admitted.tool, waiting.shield
    if tool.is_async or tool.timeout is not None or run.deadline is not None or tool.isolation is not None:
        return None
    if tool.blocking and waiting.in_loop:
        return None
    depth = shield.depth
    try:
        if run.has_eager_tools:
            context.scope().__enter__()
        while shield.noted:  # interrupted before the handler began
            shield.deliver()
        shield.depth = 0
        result: Any = tool.call(admitted.request.params, context)
    except BaseException as error:  # noqa: BLE001 - handlers are users' code
        shield.depth = depth  # the first statement, here and below: see interrupts.py
        return _raised(error, tool, run)
    shield.depth = depth
    if type(result) is ToolResult and result.success:
        return make(Ran, (result, "succeeded", None, None))  # pyright: ignore[reportUnknownArgumentType]
    return result if inspect.isawaitable(result) else _ended(result, tool, run)  # pyright: ignore[reportUnknownArgumentType]


async def invoke(
    admitted: Admitted, context: CallContext, begun: Awaitable[Any] | None, run: Run, waiting: Waiting
) -> Ran:
    """Run the handler within its limits, or wait for one that `start` began."""
    tool, params = admitted.tool, admitted.request.params
    limits = Limits(tool.timeout, run.deadline)
    if run.deadline is not None and run.deadline.expired:  # while it waited for others
        return too_late(tool.name)
    outcome = limits.outcome()
    try:
        if begun is not None:
            watch = context.watch
            result = await waiting.finish(begun if watch is None else watch.awaited(begun), run.event_loop)
        else:
            if run.has_eager_tools:
                context.scope().__enter__()
            if tool.isolation == "process":
                args = (tool.handler, params, context.deadline, context.run_context, context.idempotency_key)
                result = await waiting.in_process(limits, Job(_handle, args), context.beat)
            elif tool.is_async and tool.isolation is None and limits == _NO_LIMITS:
                result = await waiting.finish(_watched(tool, context)(params, context), run.event_loop)
            else:
                call = _watched(tool, context)
                result = await waiting.within(
                    limits.seconds(), lambda: call(params, context), run.event_loop, is_async=tool.is_async
                )
    except OutOfTime:
        context.give_up()
        expired = run.deadline is not None and run.deadline.expired  # also while a worker process was starting
        return _out_of_time(tool, "deadline" if expired else outcome)
    except BaseException as error:  # noqa: BLE001 - handlers are users' code
        return _raised(error, tool, run)
    return _ended(result, tool, run)


def _watched(tool: Tool[Any, Any], context: CallContext) -> Call:
    """The handler; if the call holds a claim, watched, because the claim lasts until the handler really ends."""
    watch = context.watch
    return tool.call if watch is None else watch.around(tool.call)


def ended_late(end: HandlerEnd, tool: Tool[Any, Any], run: Run) -> Ran:
    """How a handler ended that its call did not wait for."""
    return _ended(end.result, tool, run) if end.error is None else _raised(end.error, tool, run)


def _raised(error: BaseException, tool: Tool[Any, Any], run: Run) -> Ran:
    """What an exception means: an expected failure, a bug, the end of the evaluation or of the program."""
    text = text_of(error) or type(error).__name__
    if isinstance(error, ToolError):
        logger.info("Tool %s failed: %s", tool.name, text, extra=run.log_extra)
        return Ran(ToolResult.error(text), "failed", error)
    if isinstance(error, VisibilityExpansionRequired):
        return Ran(ToolResult.error(text), "expanded", error, error)
    if isinstance(error, PromptEvaluationError):
        return Ran(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, error)
    if isinstance(error, DeadlineExceededError):
        ended = PromptEvaluationError(
            f"The deadline passed inside tool '{tool.name}': {text}",
            prompt_name=run.prompt_name,
            phase="deadline",
            tool_name=tool.name,
        )
        ended.__cause__ = error
        return Ran(ToolResult.error("The deadline has passed."), "deadline", error, ended)
    if isinstance(error, Exception):
        return _unexpected(error, tool, run)
    return interrupted(error)


def interrupted(error: BaseException) -> Ran:
    """The end of a call whose run is being stopped."""
    return Ran(ToolResult.error("The call was interrupted."), "cancelled", error, error)


def unopened(error: BaseException, admitted: Admitted, run: Run) -> Ran:
    """The end of a call that ran, but then could not begin to write."""
    if not isinstance(error, Exception):
        return interrupted(error)
    name = admitted.tool.name
    log_crash(logger, f"A read-only call of {name} could not be settled", error, run.log_extra)
    return Ran(ToolResult.error(internal_error(error, run)), "crashed", error)


def _ended(result: Any, tool: Tool[Any, Any], run: Run) -> Ran:
    if not isinstance(result, ToolResult):
        wrong = TypeError(f"the handler of '{tool.name}' returned a {type(result).__name__}, not a ToolResult")
        return _unexpected(wrong, tool, run)
    outcome = cast(ToolResult[Any], result)
    if outcome.success:
        return Ran(outcome, "succeeded")
    logger.info("Tool %s failed: %s", tool.name, outcome.message, extra=run.log_extra)
    return Ran(outcome, "failed")


def _unexpected(error: Exception, tool: Tool[Any, Any], run: Run) -> Ran:
    log_crash(logger, f"Tool {tool.name} raised", error, run.log_extra)
    return Ran(ToolResult.error(internal_error(error, run)), "crashed", error)


_MAX_ERROR_CHARS = 64 * 1024
"""What is read of an exception's text: some carry a whole file."""


def internal_error(error: BaseException, run: Run) -> str:
    """What the model reads of an unexpected exception: its text without credentials, or nothing of it."""
    if run.hide_errors:
        return "Internal error"
    text = redact(text_of(error)[:_MAX_ERROR_CHARS]) or type(error).__name__
    kind = "TypeError: " if isinstance(error, TypeError) else ""  # the handler's code is wrong, not the data
    return f"Internal error: {kind}{text}"


def _out_of_time(tool: Tool[Any, Any], outcome: Outcome) -> Ran:
    if outcome == "timeout":
        text = f"Tool '{tool.name}' did not finish within {tool.timeout:g} s and was stopped.\nTry a smaller step."
    else:
        text = f"The deadline passed while '{tool.name}' was running, so it was stopped."
    return Ran(ToolResult.error(text), outcome)


def too_late(name: str) -> Ran:
    """The end of a call that waited for others until the run's time was up."""
    text = f"The deadline passed while '{name}' waited for other calls, so it had no effect."
    return Ran(ToolResult.error(text), "deadline", NotBegun(text))


_NO_LIMITS = Limits(None, None)


def _handle(
    handler: Any, params: Any, deadline: Deadline | None, run_context: RunContext | None, key: str | None
) -> Any:
    """A worker process's part: call the handler with what crosses the border."""
    context = ToolContext(
        deadline=deadline, run_context=run_context, idempotency_key=key, heartbeat=parents_heartbeat()
    )
    result = read_handler(handler).call(params, context)
    return thread_loop().run(result) if inspect.isawaitable(result) else result


__all__ = ["NotBegun", "ended_late", "internal_error", "interrupted", "invoke", "start", "too_late", "unopened"]
