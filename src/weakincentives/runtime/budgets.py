"""The tracker of a run that is bound as a resource, beside or instead of one that was passed."""

from __future__ import annotations

from ..budget import BudgetTracker, counted_in
from ..resources import ResourceContext, Scope
from .run import Run


def has_bound_tracker(resources: ResourceContext) -> bool:
    """Whether a `BudgetTracker` is bound for the whole run; one for each call, or each use, counts only for itself."""
    binding = resources.root.bindings.get(BudgetTracker)
    return binding is not None and binding.scope is Scope.SINGLETON


def count_in(run: Run, bound: BudgetTracker) -> None:
    """Have the bound tracker count and stop from now on, together with the one that was passed."""
    run.budget_tracker = tracker = counted_in(None, run.budget_tracker, bound)
    given = (run.deadline, None if tracker is None else tracker.deadline)
    run.deadline = min((each for each in given if each is not None), key=lambda each: each.expires_at, default=None)


__all__ = ["count_in", "has_bound_tracker"]
