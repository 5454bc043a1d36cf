"""Stages 1 and 3: may the call run? `Refused` carries the answer to the model. Nothing is written.

`parse` asks what needs no locks: the tool, the arguments, repetitions, deadline and budget. `gate` asks the policies
while the call holds its locks, so that nothing they looked at can change before the handler runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError, ParseError
from ..lazy_modules import difflib
from ..prompt.events import ToolInvoked
from ..prompt.policy import evaluate_policies
from ..prompt.tree import BoundTool
from ..serde import error_text
from ..threads import MAX_ABANDONED, abandoned_count
from ..waiting import Waiting
from .call import Admitted, Refused, Request, ToolCall
from .contexts import CallContext
from .limits import Steps
from .run import PastCall, Run, same_params

_MAX_LISTED = 20


def parse(call: ToolCall, run: Run) -> Request:
    """Look up the tool, check the arguments and whether there is time; `Refused` says what to do instead."""
    call_id, name, arguments = call
    if not isinstance(call_id, str) or not call_id:
        raise Refused("invalid", "The call has no id, so it was not run.\nSend every call with an id of its own.")
    refused = run.memory.refusal_of(call_id)
    if refused is not None:
        raise refused
    bound = run.tools.get(name) if isinstance(name, str) else None
    if bound is None:
        raise Refused("unknown_tool", _unknown(name, run.tools))
    if bound.tool.handler is None:
        raise Refused("refused", f"Tool '{name}' has no handler here, so it cannot be called.\nUse another tool.")
    if arguments is None or (type(arguments) is str and not arguments):
        arguments = "{}"
    try:
        params = bound.tool.parse(arguments)
    except ParseError as error:
        raise Refused("invalid", error_text(error, f"tool '{name}'")) from None
    except Exception:  # noqa: BLE001 - a mapping of a user's class, or an object that is not a mapping
        raise Refused("invalid", f"The arguments of '{name}' cannot be read.\nSend them as a JSON object.") from None
    return screen(call, bound, params, run)


def screen(call: ToolCall, bound: BoundTool, params: Any, run: Run) -> Request:
    """The request for a tool and its params, unless it repeats itself, is too late or has no budget left.

    Apart from `parse`, because the params of a harness's native tool are not ours to check.
    """
    tool = bound.tool
    repeats = 1 if tool.max_repeats is None else run.memory.repeats(call, params, tool, tool.max_repeats)
    if tool.max_repeats is not None and (repeats > 1 or run.memory.alternated):
        _refuse_repetition(tool.name, params, tool.max_repeats, repeats, run)
    if run.deadline is not None and run.deadline.expired:
        raise _too_late(tool.name, params)
    if run.budget_tracker is not None:
        _ask_budget(tool.name, params, run.budget_tracker)
    limited = tool.timeout is not None or run.deadline is not None or tool.isolation is not None
    if limited and tool.isolation != "process" and abandoned_count() >= MAX_ABANDONED:
        raise Refused(
            "refused",
            f"{abandoned_count()} earlier calls ran out of time and are still stuck, so '{tool.name}' was not run.\n"
            "This needs a person: the process should be restarted.",
            params=params,
        )
    return Request(call, bound, params, repeats, run.monotonic())


async def gate(request: Request, run: Run, waiting: Waiting) -> Admitted:
    """Ask the policies and admit the request, or raise `Refused`.

    The caller holds the locks of the call: alone, unless all policies say that calls may overlap.
    """
    tool, policies = request.bound.tool, request.bound.policies
    if policies:
        context = CallContext(request, run, False)
        try:
            step = Steps(tool, run, waiting).run
            text = await evaluate_policies(policies, tool.name, request.params, context, step)
        finally:
            context.end("refused")
        if text is not None:
            if run.deadline is not None and run.deadline.expired:
                raise _too_late(tool.name, request.params)
            raise Refused("refused", text, params=request.params)
    return Admitted(request, tool)


def _too_late(name: str, params: Any) -> Refused:
    return Refused("deadline", f"The deadline has passed, so '{name}' was not run.", params=params)


def _ask_budget(name: str, params: Any, tracker: BudgetTracker) -> None:
    try:
        tracker.check()
    except DeadlineExceededError:
        raise _too_late(name, params) from None
    except BudgetExceededError as error:
        raise Refused("refused", f"{error}\nTherefore '{name}' was not run.", params=params) from None


def _unknown(name: object, known: Iterable[str]) -> str:
    names = list(known)
    asked = name[:100] if isinstance(name, str) else type(name).__name__
    near = difflib.get_close_matches(asked, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    hint = f"Did you mean: {', '.join(near)}?\n" if near else ""
    return f"Unknown tool {asked!r}\n{hint}Available tools: {listed or 'none'}"


# Stopping a model that goes round in circles: one call again and again, or two in turn that answer nothing new.


_EVENTS_PER_CALL = 8
"""How far back in the log the earlier calls are looked for: two in turn, and what their handlers call themselves."""


def _refuse_repetition(name: str, params: Any, limit: int, repeats: int, run: Run) -> None:
    """Raise `Refused` for the last call that its tool allows in a row, or in turn with one other; else do nothing."""
    if repeats >= limit:
        raise _repeated(f"call number {repeats} of '{name}' in a row with the same arguments", params)
    if run.memory.alternated:
        _refuse_idle_turns(params, limit, run)


def _refuse_idle_turns(params: Any, limit: int, run: Run) -> None:
    """Refuse a call that is made in turn with another, A, B, A, B, ..., when both give the same answers every time.

    Alternating calls may make progress: one takes a step, the other looks at the result. So the answers decide.
    """
    memory = run.memory
    times = memory.in_turn()
    if times < limit:
        return
    this, other = memory.two_in_turn()
    assert this[0] is not None
    assert other[0] is not None
    if memory.is_idle or (_has_one_answer(this, limit - 1, run) and _has_one_answer(other, limit - 1, run)):
        memory.is_idle = True
        name, partner = this[0].name, other[0].name
        partner = "one other of it" if partner == name else f"'{partner}'"
        raise _repeated(f"call number {times} of '{name}' with the same arguments, in turn with {partner}", params)


def _has_one_answer(past: PastCall, count: int, run: Run) -> bool:
    """Whether the last `count` calls like this one had the same answer; they are near the end of the log."""
    call, params, _ = past
    assert call is not None
    events = run.session[ToolInvoked].all()
    answers: list[str] = []
    for event in reversed(events[max(0, len(events) - _EVENTS_PER_CALL * count) :]):
        if event.tool_name == call.name and event.admitted and same_params(event.params, params):
            answers.append(event.rendered_output)
            if len(answers) == count:
                return len(set(answers)) == 1
    return False


def _repeated(which: str, params: Any) -> Refused:
    return Refused(
        "refused",
        f"This is {which}, so it was not run.\n"
        "Its result will not change. Do something else, or say why you cannot go on.",
        params=params,
    )
