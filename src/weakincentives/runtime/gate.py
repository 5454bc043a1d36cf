"""Stage 2: may it run? Repetitions, policies, deadline, budget. Nothing is touched; `Refused` carries the answer."""

from __future__ import annotations

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError
from ..prompt.events import ToolInvoked
from ..prompt.policy import evaluate_policies
from .call import Admitted, Refused, Request, make
from .call_memory import same_params
from .contexts import call_context
from .run import Run
from .threads import MAX_ABANDONED, abandoned_count

_EVENTS_PER_CALL = 8
"""How far back in the log the earlier calls are looked for: two in turn, and what their handlers call themselves."""


def gate(request: Request, run: Run) -> Admitted:
    """Admit the request, or raise `Refused`. The only place that makes an `Admitted`."""
    _, bound, params = request
    tool = bound.tool
    repeats = 1
    if tool.max_repeats is not None:
        repeats = run.memory.repeats(request, tool, tool.max_repeats)
        if repeats >= tool.max_repeats:
            raise _repeated(request, f"call number {repeats} of '{tool.name}' in a row with the same arguments")
        if run.memory.alternated:
            _refuse_idle_turns(request, tool.max_repeats, run)
    if bound.policies:
        _ask_policies(request, run)
    if run.deadline is not None and run.deadline.expired:
        raise Refused("deadline", f"The deadline has passed, so '{tool.name}' was not run.", params=params)
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
    return make(Admitted, (request, tool, repeats, run.monotonic()))


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


def _ask_policies(request: Request, run: Run) -> None:
    context = call_context(request, run, False)
    try:
        text = evaluate_policies(request.bound.policies, request.bound.tool.name, request.params, context)
    finally:
        context.end("refused")
    if text is not None:
        raise Refused("refused", text, params=request.params)


def _ask_budget(request: Request, tracker: BudgetTracker) -> None:
    name = request.bound.tool.name
    try:
        tracker.check()
    except DeadlineExceededError:
        raise Refused("deadline", f"The deadline has passed, so '{name}' was not run.", params=request.params) from None
    except BudgetExceededError as error:
        raise Refused("refused", f"{error}\nTherefore '{name}' was not run.", params=request.params) from None


__all__ = ["gate"]
