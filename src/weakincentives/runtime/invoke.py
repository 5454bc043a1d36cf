"""Stage 5: the handler. Whatever it does, it ends as a `HandlerOutcome`: no exception leaves this stage."""

from __future__ import annotations

import inspect
import logging
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
from ..waiting import OutOfTime, Waiting
from .call import Admitted, HandlerOutcome
from .contexts import CallContext
from .handler_watch import HandlerEnd
from .limits import HandlerLimits
from .redaction import redact, text_of
from .run import Run

logger: logging.Logger = logging.getLogger(__name__)


class NotBegun(DeadlineExceededError):  # noqa: N818 - a fact, not a fault
    """The deadline passed before the handler began."""


async def invoke(admitted: Admitted, context: CallContext, run: Run, waiting: Waiting) -> HandlerOutcome:
    """Run the handler. Without limits it is simply called; in async code, unless it would block the event loop."""
    tool, params = admitted.tool, admitted.request.params
    if tool.timeout is not None or run.deadline is not None or tool.isolation is not None:
        return await _within_limits(admitted, context, run, waiting)
    if waiting.in_loop and tool.blocking and not tool.is_async:
        return await _within_limits(admitted, context, run, waiting)
    shield = waiting.shield
    depth = shield.depth
    try:
        if run.has_eager_tools:
            context.scope().__enter__()
        while shield.noted:  # interrupted before the handler began
            shield.deliver()
        if not tool.is_async:  # whose coroutine would be lost between here and where it is awaited
            shield.depth = 0  # from here on Ctrl-C reaches the handler at once
        result: Any = tool.call(params, context)
    except BaseException as error:  # noqa: BLE001 - handlers are users' code
        shield.depth = depth  # the first statement, here and below: a call before it would let a signal in
        return _raised(error, tool, run)
    shield.depth = depth
    if type(result) is ToolResult and result.success:  # as nearly all do
        return HandlerOutcome(cast("ToolResult[Any]", result), "succeeded")
    if type(result) is not ToolResult and inspect.isawaitable(result):  # pyright: ignore[reportUnknownArgumentType]
        watch = context.watch
        try:
            result = await waiting.finish(result if watch is None else watch.awaited(result), run.event_loop)
        except BaseException as error:  # noqa: BLE001 - as above
            return _raised(error, tool, run)
    return _ended(result, tool, run)


async def _within_limits(admitted: Admitted, context: CallContext, run: Run, waiting: Waiting) -> HandlerOutcome:
    """Run a handler that has limits, or would block an event loop."""
    tool, params = admitted.tool, admitted.request.params
    limits = HandlerLimits(tool.timeout, run.deadline)
    if run.deadline is not None and run.deadline.expired:  # while it waited for other calls
        return too_late(tool.name)
    outcome: Outcome = "deadline" if tool.timeout is None else limits.outcome()
    try:
        if run.has_eager_tools:
            context.scope().__enter__()
        if tool.isolation == "process":
            args = (tool.handler, params, context.deadline, context.run_context, context.idempotency_key)
            result = await _in_process(limits, args, context, waiting)
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


async def _in_process(limits: HandlerLimits, args: tuple[Any, ...], context: CallContext, waiting: Waiting) -> Any:
    """Run the handler in a worker process, whose beats are passed on; `OutOfTime` when it had to be killed."""
    from .processes import POOL, Job  # noqa: PLC0415 - multiprocessing is slow to import, and few tools need it

    packed = Job(_handle, args).packed()
    worker = POOL.acquire()
    try:
        await waiting.within(limits.start(), worker.ready, is_async=False)
        reply = await waiting.within(limits.seconds(), lambda: worker.run(packed, context.beat), is_async=False)
    except BaseException:
        worker.kill()
        raise
    POOL.release(worker)
    return reply.get()


def _watched(tool: Tool[Any, Any], context: CallContext) -> Call:
    """The handler; if the call holds a claim, watched, because the claim lasts until the handler really ends."""
    watch = context.watch
    return tool.call if watch is None else watch.around(tool.call)


def ended_late(end: HandlerEnd, tool: Tool[Any, Any], run: Run) -> HandlerOutcome:
    """How a handler ended that its call did not wait for."""
    return _ended(end.result, tool, run) if end.error is None else _raised(end.error, tool, run)


def _raised(error: BaseException, tool: Tool[Any, Any], run: Run) -> HandlerOutcome:
    """What an exception means: an expected failure, a bug, the end of the evaluation or of the program."""
    text = text_of(error) or type(error).__name__
    if isinstance(error, ToolError):
        logger.info("Tool %s failed: %s", tool.name, text, extra=run.log_extra)
        return HandlerOutcome(ToolResult.error(text), "failed", error)
    if isinstance(error, VisibilityExpansionRequired):
        return HandlerOutcome(ToolResult.error(text), "expanded", error, error)
    if isinstance(error, PromptEvaluationError):
        return HandlerOutcome(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, error)
    if isinstance(error, DeadlineExceededError):
        ended = PromptEvaluationError(
            f"The deadline passed inside tool '{tool.name}': {text}",
            prompt_name=run.prompt_name,
            phase="deadline",
            tool_name=tool.name,
        )
        ended.__cause__ = error
        return HandlerOutcome(ToolResult.error("The deadline has passed."), "deadline", error, ended)
    if isinstance(error, Exception):
        return _unexpected(error, tool, run)
    return interrupted(error)


def interrupted(error: BaseException) -> HandlerOutcome:
    """The end of a call whose run is being stopped."""
    return HandlerOutcome(ToolResult.error("The call was interrupted."), "cancelled", error, error)


def unopened(error: BaseException, admitted: Admitted, run: Run) -> HandlerOutcome:
    """The end of a call that ran, but then could not begin to write."""
    if not isinstance(error, Exception):
        return interrupted(error)
    name = admitted.tool.name
    log_crash(logger, f"A read-only call of {name} could not be settled", error, run.log_extra)
    return HandlerOutcome(ToolResult.error(internal_error(error, run)), "crashed", error)


def _ended(result: Any, tool: Tool[Any, Any], run: Run) -> HandlerOutcome:
    if not isinstance(result, ToolResult):
        wrong = TypeError(f"the handler of '{tool.name}' returned a {type(result).__name__}, not a ToolResult")
        return _unexpected(wrong, tool, run)
    found = cast("ToolResult[Any]", result)
    if found.success:
        return HandlerOutcome(found, "succeeded")
    logger.info("Tool %s failed: %s", tool.name, found.message, extra=run.log_extra)
    return HandlerOutcome(found, "failed")


def _unexpected(error: Exception, tool: Tool[Any, Any], run: Run) -> HandlerOutcome:
    log_crash(logger, f"Tool {tool.name} raised", error, run.log_extra)
    return HandlerOutcome(ToolResult.error(internal_error(error, run)), "crashed", error)


_MAX_ERROR_CHARS = 64 * 1024
"""What is read of an exception's text: some carry a whole file."""


def internal_error(error: BaseException, run: Run) -> str:
    """What the model reads of an unexpected exception: its text without credentials, or nothing of it."""
    if run.hide_errors:
        return "Internal error"
    text = redact(text_of(error)[:_MAX_ERROR_CHARS]) or type(error).__name__
    kind = "TypeError: " if isinstance(error, TypeError) else ""  # the handler's code is wrong, not the data
    return f"Internal error: {kind}{text}"


def _out_of_time(tool: Tool[Any, Any], outcome: Outcome) -> HandlerOutcome:
    if outcome == "timeout":
        text = f"Tool '{tool.name}' did not finish within {tool.timeout:g} s and was stopped.\nTry a smaller step."
    else:
        text = f"The deadline passed while '{tool.name}' was running, so it was stopped."
    return HandlerOutcome(ToolResult.error(text), outcome)


def too_late(name: str) -> HandlerOutcome:
    """The end of a call that waited for others until the run's time was up."""
    text = f"The deadline passed while '{name}' waited for other calls, so it had no effect."
    return HandlerOutcome(ToolResult.error(text), "deadline", NotBegun(text))


def _handle(
    handler: Any, params: Any, deadline: Deadline | None, run_context: RunContext | None, key: str | None
) -> Any:
    """In the worker process: call the handler with what was sent."""
    from .processes import parents_heartbeat  # noqa: PLC0415 - there already, in a worker

    context = ToolContext(
        deadline=deadline, run_context=run_context, idempotency_key=key, heartbeat=parents_heartbeat()
    )
    result = read_handler(handler).call(params, context)
    return thread_loop().run(result) if inspect.isawaitable(result) else result
