"""Stages 2 and 4: may it run? `Refused` carries the answer to the model. Nothing is written.

`screen` asks what needs no locks: repetitions, deadline, budget. `gate` asks the policies while the call holds its
locks, so that nothing they looked at can change before the handler runs.
"""

from __future__ import annotations

from ..budget import BudgetTracker
from ..errors import BudgetExceededError, DeadlineExceededError
from ..prompt.policy import evaluate_policies
from .call import Admitted, Refused, Request, Screened, make
from .contexts import call_context
from .repetitions import refuse_repetition
from .run import Run
from .steps import Steps
from .threads import MAX_ABANDONED, abandoned_count
from .waiting import Waiting


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


__all__ = ["gate", "screen"]
