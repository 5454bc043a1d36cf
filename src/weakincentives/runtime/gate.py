"""Stage 2: may it run? Repetitions, policies, deadline, budget. Nothing is touched; `Refused` carries the answer."""

from __future__ import annotations

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError
from ..prompt.policy import evaluate_policies
from .call import Admitted, Refused, Request, make
from .contexts import call_context
from .run import Run
from .threads import MAX_ABANDONED, abandoned_count


def gate(request: Request, run: Run) -> Admitted:
    """Admit the request, or raise `Refused`. The only place that makes an `Admitted`."""
    call, bound, params = request
    tool = bound.tool
    repeats = 1 if tool.max_repeats is None else run.memory.repeats(call.name, call.arguments)
    if tool.max_repeats is not None and repeats >= tool.max_repeats:
        raise Refused(
            "refused",
            f"This is call number {repeats} of '{tool.name}' in a row with the same arguments, so it was not run.\n"
            "Its result will not change. Do something else, or say why you cannot go on.",
            params=params,
        )
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
