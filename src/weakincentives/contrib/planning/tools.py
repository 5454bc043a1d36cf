"""The four tools. Handlers look and answer; the plan changes when the engine routes their result to the reducers.

So a call that fails after its handler, in a policy or a subscriber, leaves the plan as it was without anything having
to be undone, and a recorded result that is replayed changes the plan like the call it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ...errors import ToolValidationError
from ...prompt import Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult
from .changes import AddStep, Change, ReadPlan, SetupPlan, UpdateStep, changed, install_plan
from .plan import Plan, PlanStep

# What the planning tools are called.


@dataclass(slots=True, frozen=True)
class PlanningNames:
    """The names of the four tools with a prefix before each, for instructions and errors that name them."""

    prefix: str = ""

    @property
    def setup(self) -> str:
        """Creates or replaces the plan."""
        return f"{self.prefix}planning_setup_plan"

    @property
    def add(self) -> str:
        """Appends steps."""
        return f"{self.prefix}planning_add_step"

    @property
    def update(self) -> str:
        """Changes a step."""
        return f"{self.prefix}planning_update_step"

    @property
    def read(self) -> str:
        """Reads the plan."""
        return f"{self.prefix}planning_read_plan"


@final
@dataclass(slots=True, frozen=True)
class PlanningHandlers:
    """The handlers of one section, with the names and limits it has."""

    names: PlanningNames
    max_steps: int
    max_notes: int

    def set_up(self, params: SetupPlan, *, context: ToolContext) -> ToolResult[SetupPlan]:
        """Create or replace the plan."""
        before = context.session[Plan].latest()
        outcome = self._try(params, context, self.names.setup)
        if isinstance(outcome, ToolResult):
            return outcome
        verb = "set up" if before is None else "replaced"
        return ToolResult.ok(params, f"The plan is {verb} with {_numbers(outcome.steps)}.")

    def add(self, params: AddStep, *, context: ToolContext) -> ToolResult[AddStep]:
        """Append steps; a plan that was completed is active again, and the model is told."""
        before = context.session[Plan].latest()
        outcome = self._try(params, context, self.names.add)
        if isinstance(outcome, ToolResult):
            return outcome
        added = outcome.steps[len(outcome.steps) - len(params.steps) :]
        return ToolResult.ok(params, f"Added {_numbers(added)}; {outcome.progress()}.{_reopened(before, outcome)}")

    def update(self, params: UpdateStep, *, context: ToolContext) -> ToolResult[UpdateStep]:
        """Change a step, or add a note to it; a completed plan whose step is open again is active, too."""
        before = context.session[Plan].latest()
        outcome = self._try(params, context, self.names.update)
        if isinstance(outcome, ToolResult):
            return outcome
        following = outcome.next_step()
        ahead = "The plan is completed." if following is None else f"Next is step {following.step_id}."
        reopened = _reopened(before, outcome)
        return ToolResult.ok(params, f"Updated step {params.step_id}; {outcome.progress()}.{reopened} {ahead}")

    def read(self, params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:
        """Give the whole plan."""
        del params
        plan = context.session[Plan].latest()
        if plan is None:
            return self._no_plan()
        return ToolResult.ok(plan, "The plan as it is now:")

    def _try(self, change: Change, context: ToolContext, again: str) -> Plan | ToolResult[Any]:
        """The plan as it will be, or what is wrong with the change and what to call instead."""
        session = context.session
        # The tool may run where its section was never installed; its result would then go nowhere.
        install_plan(session)
        before = session[Plan].latest()
        if before is None and not isinstance(change, SetupPlan):
            return self._no_plan()
        try:
            after = changed(before, change)
        except ToolValidationError as error:
            return ToolResult.error(f"{error}\n{self._advice(change, before, again)}")
        return self._over_limit(change, after) or after

    def _advice(self, change: Change, plan: Plan | None, again: str) -> str:
        if isinstance(change, UpdateStep) and plan is not None and plan.step(change.step_id) is None:
            known = f"It has {_numbers(plan.steps)}. " if plan.steps else "It has no steps yet. "
            fix = f"call {self.names.read} to see them" if plan.steps else f"call {self.names.add} to add some"
            return f"{known}{fix[0].upper()}{fix[1:]}"
        return f"Call {again} again with that corrected"

    def _over_limit(self, change: Change, after: Plan) -> ToolResult[Any] | None:
        if not isinstance(change, UpdateStep):
            if len(after.steps) <= self.max_steps:
                return None
            return ToolResult.error(
                f"A plan has at most {self.max_steps} steps; this would make {len(after.steps)}.\n"
                f"Use larger steps, or call {self.names.setup} with what is left to do"
            )
        step = after.step(change.step_id)
        if step is None or len(step.notes) <= self.max_notes:
            return None
        return ToolResult.error(
            f"Step {step.step_id} has {self.max_notes} notes already, which is the limit.\n"
            f"Call {self.names.update} without a note, or add a step with {self.names.add} and note it there"
        )

    def _no_plan(self) -> ToolResult[Any]:
        return ToolResult.error(f"There is no plan yet.\nCall {self.names.setup} first")


def _reopened(before: Plan | None, after: Plan) -> str:
    """What to say of a plan that was completed and is not any more."""
    was_completed = before is not None and before.status == "completed"
    return " The plan was completed and is active again." if was_completed and after.status == "active" else ""


def _numbers(steps: tuple[PlanStep, ...]) -> str:
    """The ids of steps, in words; they ascend."""
    if not steps:
        return "no steps"
    first, last = steps[0].step_id, steps[-1].step_id
    return f"step {first}" if first == last else f"steps {first} to {last}"


_SETUP = SetupPlan("Publish the release notes", ("Collect the changes", "Write the notes"))
_ADD = AddStep(("Ask for a review",))
_UPDATE = UpdateStep(1, status="done", note="14 changes, 2 of them breaking.")
_PLAN = changed(changed(changed(None, _SETUP), _ADD), _UPDATE)
"""The examples are one story: run in this order in one session, each gives exactly the output it shows."""


def planning_tools(handlers: PlanningHandlers, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    """The four tools in the order in which they are used."""
    names = handlers.names
    return (
        Tool[SetupPlan, SetupPlan](
            name=names.setup,
            description="Create the plan, or replace it: the objective and the first steps.",
            handler=handlers.set_up,
            blocking=False,
            examples=(ToolExample("Begin with two steps", _SETUP, _SETUP),),
            annotations=ToolAnnotations(destructive=True, open_world=False),
            accepts_overrides=accepts_overrides,
        ),
        Tool[AddStep, AddStep](
            name=names.add,
            description="Add steps at the end of the plan.",
            handler=handlers.add,
            blocking=False,
            examples=(ToolExample("One more step", _ADD, _ADD),),
            annotations=ToolAnnotations(destructive=False, open_world=False),
            accepts_overrides=accepts_overrides,
        ),
        Tool[UpdateStep, UpdateStep](
            name=names.update,
            description="Change a step's status or title, or add a note to it.",
            handler=handlers.update,
            blocking=False,
            examples=(ToolExample("Finish a step and keep what it showed", _UPDATE, _UPDATE),),
            annotations=ToolAnnotations(destructive=True, open_world=False),
            accepts_overrides=accepts_overrides,
        ),
        Tool[ReadPlan, Plan](
            name=names.read,
            description="Read the whole plan: objective, steps, status and all notes.",
            handler=handlers.read,
            blocking=False,
            examples=(ToolExample("See where things stand", ReadPlan(), _PLAN),),
            annotations=ToolAnnotations(read_only=True, idempotent=True, open_world=False),
            accepts_overrides=accepts_overrides,
        ),
    )
