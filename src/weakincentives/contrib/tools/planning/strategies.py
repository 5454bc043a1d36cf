"""The instructions: one structure for all strategies, in which only the mindset paragraph differs."""

from __future__ import annotations

from enum import Enum

from .names import PlanningNames


class PlanningStrategy(Enum):
    """How the model is asked to think while it follows its plan."""

    REACT = "react"
    PLAN_ACT_REFLECT = "plan_act_reflect"
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"


MINDSETS: dict[PlanningStrategy, str] = {
    PlanningStrategy.REACT: (
        "Alternate between short bursts of reasoning, tool calls and observations. Decide on the next step from what "
        "you just saw, not from what you expected, and keep each observation that matters as a note on the step it "
        "belongs to."
    ),
    PlanningStrategy.PLAN_ACT_REFLECT: (
        "Outline the entire plan before you act. Then carry out one step at a time, and after each one reflect: what "
        "did it show, and is the rest of the plan still right? Append the reflection as a note to that step, and "
        "adjust the steps that follow."
    ),
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: (
        "Restate the goal in your own words as the objective. Break it into sub-problems before you choose any tools; "
        "each becomes a step. Route every sub-problem to the tool that suits it, keep what came of it as a note, and "
        "in the end synthesise the results into one cohesive answer."
    ),
}

_TEMPLATE = """\
Keep a plan for work that takes more than two steps, and keep it true: it is how you, and whoever reads along, know \
where things stand. For anything smaller, just do it.

**Mindset**

{mindset}

**Tools**

- `{setup}` states the objective and the first steps. It replaces the plan there is, so call it once per task.
- `{add}` adds steps at the end when you learn that more is needed.
- `{update}` changes a step: `in_progress` when you begin it, `done` when it is finished, a better title, or a `note` \
for what you observed or concluded.
- `{read}` shows the whole plan with all notes.

**Rules**

- Work on one step at a time, and mark it at once when it is done: when all steps are done, the plan is completed.
- Steps keep their numbers for good. Refer to them by number."""


def instructions(strategy: PlanningStrategy, names: PlanningNames) -> str:
    """The body of the section."""
    return _TEMPLATE.format(
        mindset=MINDSETS[strategy], setup=names.setup, add=names.add, update=names.update, read=names.read
    )


__all__ = ["MINDSETS", "PlanningStrategy", "instructions"]
