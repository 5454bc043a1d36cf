"""Stages 2 and 4: may it run? `Refused` carries the answer to the model. Nothing is written.

`screen` asks what needs no locks: repetitions, deadline, budget. `gate` asks the policies while the call holds its
locks, so that nothing they looked at can change before the handler runs.
"""

from __future__ import annotations

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError
from ..prompt.events import ToolInvoked
from ..prompt.policy import evaluate_policies
from .call import Admitted, Refused, Request, Screened, make
from .call_memory import same_params
from .contexts import call_context
from .run import Run
from .steps import Steps
from .threads import MAX_ABANDONED, abandoned_count
from .waiting import Waiting

_EVENTS_PER_CALL = 8
"""How far back in the log the earlier calls are looked for: two in turn, and what their handlers call themselves."""


def screen(request: Request, run: Run) -> Screened:
    """Let the request pass to the locks, or raise `Refused`."""
    _, bound, params = request
    tool = bound.tool
    repeats = 1
    if tool.max_repeats is not None:
        repeats = run.memory.repeats(request, tool, tool.max_repeats)
        if repeats >= tool.max_repeats:
            raise _repeated(request, f"call number {repeats} of '{tool.name}' in a row with the same arguments")
        if run.memory.alternated:
            _refuse_idle_turns(request, tool.max_repeats, run)
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
    return make(Screened, (request, tool, repeats, run.monotonic()))


def _repeated(request: Request, which: str) -> Refused:
    return Refused(
        "refused",
        f"This is {which}, so it was not run.\n"
        "Its result will not change. Do something else, or say why you cannot go on.",
        params=request.params,
    )


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
        names = f"'{this.call.name}' with the same arguments, in turn with '{other.call.name}'"
        raise _repeated(request, f"call number {times} of {names}")


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


async def gate(screened: Screened, run: Run, waiting: Waiting) -> Admitted:
    """Admit the request, or raise `Refused`. The only place that makes an `Admitted`.

    The caller holds the locks of the call: alone, unless all policies say that calls may overlap.
    """
    if screened.request.bound.policies:
        await _ask_policies(screened.request, run, waiting)
    return make(Admitted, screened)


async def _ask_policies(request: Request, run: Run, waiting: Waiting) -> None:
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


__all__ = ["gate", "screen"]
