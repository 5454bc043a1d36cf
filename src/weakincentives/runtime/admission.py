"""Stage 1: from a call to a request, the tool known and the params typed. Nothing is touched."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError, ParseError
from ..prompt.events import ToolInvoked
from ..prompt.policy import evaluate_policies
from ..serde import error_text
from .call import Admitted, Refused, Request, Screened, ToolCall, make
from .call_memory import same_params
from .contexts import call_context
from .limits import Steps
from .run import Run
from .threads import MAX_ABANDONED, abandoned_count
from .waiting import Waiting

_MAX_LISTED = 20


def parse(call: ToolCall, run: Run) -> Request:
    """Look up the tool and check the arguments; `Refused` says what the model should do instead."""
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
    except Exception:  # noqa: BLE001 - a mapping of somebody else's making, or an object that is none
        raise Refused("invalid", f"The arguments of '{name}' cannot be read.\nSend them as a JSON object.") from None
    return make(Request, (call, bound, params))


def _unknown(name: object, known: Iterable[str]) -> str:
    names = list(known)
    asked = name[:100] if isinstance(name, str) else type(name).__name__
    near = get_close_matches(asked, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    hint = f"Did you mean: {', '.join(near)}?\n" if near else ""
    return f"Unknown tool {asked!r}\n{hint}Available tools: {listed or 'none'}"


# Stopping a model that goes round in circles: one call again and again, or two in turn that answer nothing new.


_EVENTS_PER_CALL = 8
"""How far back in the log the earlier calls are looked for: two in turn, and what their handlers call themselves."""


def refuse_repetition(request: Request, repeats: int, run: Run) -> None:
    """Raise `Refused` for the last call that its tool allows in a row, or in turn with one other; else do nothing."""
    tool = request.bound.tool
    if tool.max_repeats is None:
        return
    if repeats >= tool.max_repeats:
        raise _repeated(request, f"call number {repeats} of '{tool.name}' in a row with the same arguments")
    if run.memory.alternated:
        _refuse_idle_turns(request, tool.max_repeats, run)


def _refuse_idle_turns(request: Request, limit: int, run: Run) -> None:
    """Refuse a call that is made in turn with another, A, B, A, B, ..., when both give the same answers every time.

    Two calls in turn may well get on: one that takes a step and one that looks where it led. So the answers decide.
    """
    memory = run.memory
    times = memory.in_turn()
    if times < limit:
        return
    this, other = memory.two_in_turn()
    if memory.is_idle or (_has_one_answer(this, limit - 1, run) and _has_one_answer(other, limit - 1, run)):
        memory.is_idle = True
        partner = "one other of it" if other.call.name == this.call.name else f"'{other.call.name}'"
        raise _repeated(
            request, f"call number {times} of '{this.call.name}' with the same arguments, in turn with {partner}"
        )


def _has_one_answer(request: Request, count: int, run: Run) -> bool:
    """Whether the last `count` calls like this one had the same answer; they are near the end of the log."""
    events = run.session[ToolInvoked].all()
    answers: list[str] = []
    for event in reversed(events[max(0, len(events) - _EVENTS_PER_CALL * count) :]):
        if event.tool_name == request.call.name and event.admitted and same_params(event.params, request.params):
            answers.append(event.rendered_output)
            if len(answers) == count:
                return len(set(answers)) == 1
    return False


def _repeated(request: Request, which: str) -> Refused:
    return Refused(
        "refused",
        f"This is {which}, so it was not run.\n"
        "Its result will not change. Do something else, or say why you cannot go on.",
        params=request.params,
    )


# Stages 2 and 4: may it run? `Refused` carries the answer to the model. Nothing is written.
#
# `screen` asks what needs no locks: repetitions, deadline, budget. `gate` asks the policies while the call holds its
# locks, so that nothing they looked at can change before the handler runs.


def screen(request: Request, run: Run) -> Screened:
    """Let the request pass to the locks, or raise `Refused`. Without policies it is admitted at once."""
    _, bound, params = request
    tool = bound.tool
    repeats = 1 if tool.max_repeats is None else run.memory.repeats(request, tool, tool.max_repeats)
    if repeats > 1 or run.memory.alternated:
        refuse_repetition(request, repeats, run)
    if run.deadline is not None and run.deadline.expired:
        raise _too_late(request)
    if run.budget_tracker is not None:
        _ask_budget(request, run.budget_tracker)
    limited = tool.timeout is not None or run.deadline is not None or tool.isolation is not None
    if limited and tool.isolation != "process" and abandoned_count() >= MAX_ABANDONED:
        raise Refused(
            "refused",
            f"{abandoned_count()} earlier calls ran out of time and are still stuck, so '{tool.name}' was not run.\n"
            "This needs a person: the process should be restarted.",
            params=params,
        )
    return make(Screened if bound.policies else Admitted, (request, tool, repeats, run.monotonic()))


async def gate(screened: Screened, run: Run, waiting: Waiting) -> Admitted:
    """Ask the policies and admit the request, or raise `Refused`.

    The caller holds the locks of the call: alone, unless all policies say that calls may overlap.
    """
    request = screened.request
    _, bound, params = request
    context = call_context(request, run, False)
    step = Steps(bound.tool, run, waiting).run
    try:
        text = await evaluate_policies(bound.policies, bound.tool.name, params, context, step)
    finally:
        context.end("refused")
    if text is not None:
        if run.deadline is not None and run.deadline.expired:
            raise _too_late(request)
        raise Refused("refused", text, params=params)
    return Admitted(*screened)


def _too_late(request: Request) -> Refused:
    name = request.bound.tool.name
    return Refused("deadline", f"The deadline has passed, so '{name}' was not run.", params=request.params)


def _ask_budget(request: Request, tracker: BudgetTracker) -> None:
    name = request.bound.tool.name
    try:
        tracker.check()
    except DeadlineExceededError:
        raise _too_late(request) from None
    except BudgetExceededError as error:
        raise Refused("refused", f"{error}\nTherefore '{name}' was not run.", params=request.params) from None
