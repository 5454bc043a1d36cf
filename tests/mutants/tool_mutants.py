"""Seeded faults in what tools tell, what budgets count, and what test contexts build."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BUDGETS = ("tests/adapters/test_budgets.py",)
_DECORATOR = ("tests/prompt/test_decorator.py",)
_CONTEXT = ("tests/prompt/test_tool_context.py",)
_MADE = ("tests/runtime/test_made_contexts.py",)
_DATA = ("tests/runtime/test_error_data.py",)

MUTANTS = [
    Mutant(
        "a budget is ignored beside a tracker",
        "runtime/options.py",
        "    if budget is None and len(known) < 2:\n        return known[0] if known else None",
        "    if known or budget is None:\n        return known[0] if known else None",
        _BUDGETS,
    ),
    Mutant(
        "a tracker within another does not count there",
        "budget.py",
        "        for tracker in self._within:\n            tracker.record(key, usage)\n",
        "",
        _BUDGETS,
    ),
    Mutant(
        "a tracker within another is not stopped there",
        "budget.py",
        "        for tracker in self._within:\n            tracker.check()\n",
        "",
        _BUDGETS,
    ),
    Mutant(
        "a bound tracker does not count in async code",
        "runtime/executor.py",
        "            if first and bound is not None:\n",
        "            if False:\n",
        _BUDGETS,
    ),
    Mutant(
        "an evaluation does not hold to the bound tracker",
        "loop/state.py",
        "        self.limits.hold_to(self.executor.deadline, self.executor.budget_tracker)\n",
        "        pass\n",
        _BUDGETS,
    ),
    Mutant(
        "the tracker of a budget is not among the resources",
        "runtime/contexts.py",
        "    return run.resources.tool_scope(overrides={BudgetTracker: tracker})",
        "    return run.resources.tool_scope()",
        _BUDGETS,
    ),
    Mutant(
        "a native tool does not ask the bound tracker",
        "runtime/tracker.py",
        "        if not self._counted and has_bound_tracker(run.resources):\n",
        "        if False:\n",
        _BUDGETS,
    ),
    Mutant(
        "a line on an annotated parameter is dropped",
        "prompt/tool_decorator.py",
        "    documented = unseen | {name for name in names if texts[name] is None}\n",
        "    documented = unseen | set(names)\n",
        _DECORATOR,
    ),
    Mutant(
        "guidance is not sent to the model",
        "loop/request.py",
        "        parts = [self.description] if self.guidance is None else [self.description, self.guidance]\n",
        "        parts = [self.description]\n",
        ("tests/adapters/test_sdk.py",),
    ),
    Mutant(
        "a replaced context loses its claim",
        "prompt/tool_context.py",
        "        return None if self._source is None else self._source.fencing_token\n",
        "        return None\n",
        _CONTEXT,
    ),
    Mutant(
        "a replaced context beats after its call",
        "prompt/tool_context.py",
        "        if source is not None:\n            source.beat()\n",
        "",
        _CONTEXT,
    ),
    Mutant(
        "a transactional call closes what its context built",
        "prompt/tool_context.py",
        "                self.context.__enter__()  # an",
        "                self.context.open()  # an",
        _MADE,
    ),
    Mutant(
        "leaving an adapter keeps conversations open",
        "loop/adapter.py",
        "        for evaluation in self._take_open():\n            evaluation.close()\n",
        "",
        ("tests/adapters/test_loop.py",),
    ),
    Mutant(
        "a section is found although several have its key",
        "prompt/prompt.py",
        "        if len(found) == 1:\n            return found[0].section\n",
        "        if found:\n            return found[0].section\n",
        _DATA,
    ),
]

__all__ = ["MUTANTS"]
