"""Evaluations inside a call, such as those of sub-agents: what holds for them, and what the run around them is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..fence import current_owner
from ..prompt.events import ToolInvoked, link_event
from ..prompt.tool_context import ToolContext
from .contexts import CallContext
from .locks import CallLock
from .nesting import event_id_of
from .progress import OnEvent, ProgressEvent
from .quick_events import placed
from .run import Run
from .transactions import Savepoint


def run_of(context: ToolContext) -> Run | None:
    """The run that a handler's context belongs to; None for one that was made by hand."""
    source: ToolContext | None = context
    while source is not None and not isinstance(source, CallContext):
        source = source._source  # pyright: ignore[reportPrivateUsage] # what it was copied from
    return None if source is None else source._run  # pyright: ignore[reportPrivateUsage] # a friend of the class


def options_inside(context: ToolContext, name: str) -> dict[str, Any]:
    """What holds for an evaluation inside a call, as keywords for it: limits, ids, ledger, listeners.

    The listeners get its events with `name` in their `path`.
    """
    options: dict[str, Any] = {
        "deadline": context.deadline,
        "budget_tracker": context.budget_tracker,
        "heartbeat": context.heartbeat,
        "run_context": context.run_context,
    }
    run = run_of(context)
    if run is not None:
        options["hide_errors"] = run.hide_errors
        options["effect_ledger"] = run.passed_ledger  # one in memory is found by the session
        options["on_event"] = None if run.on_event is None else _inside(name, run.on_event)
    return {key: value for key, value in options.items() if value is not None}


def _inside(name: str, on_event: OnEvent) -> OnEvent:
    def tell(event: ProgressEvent) -> None:
        on_event(placed(event, event.run_id, event.step, (name, *event.path)))

    return tell


def ids_around() -> set[str]:
    """The ids of the calls that this code runs in."""
    ids: set[str] = set()
    owner = current_owner()
    while owner is not None:
        call = getattr(owner.holder, "call", None)
        if call is not None:
            ids.add(call.call_id)
        owner = owner.around
    return ids


def redone_inside(event: ToolInvoked, inner: Iterable[Any], locks: Iterable[CallLock]) -> None:
    """Say which call a call that is redone is in, and that it is undone with that: as when it ran."""
    owner = current_owner()
    outer: Savepoint | None = None if owner is None else owner.holder
    if outer is None or not hasattr(outer, "call"):
        return
    link_event(event, None, event_id_of(outer), event.undone_calls)
    if event.success and any(map(outer.holds, locks)):
        calls = [each for each in inner if isinstance(each, ToolInvoked)]
        undone = {one for each in calls for one in each.undone_calls}
        kept = [each.event_id for each in calls if each.success and each.event_id not in undone]
        outer.inner_calls = (*outer.inner_calls, *kept, event.event_id)


__all__ = ["ids_around", "options_inside", "redone_inside", "run_of"]
