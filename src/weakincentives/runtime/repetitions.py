"""Stopping a model that goes round in circles: one call again and again, or two in turn that answer nothing new."""

from __future__ import annotations

from ..prompt.events import ToolInvoked
from .call import Refused, Request
from .call_memory import same_params
from .run import Run

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


__all__ = ["refuse_repetition"]
