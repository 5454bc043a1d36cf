"""The planning suite as a section: instructions, tools, reducers, and the plan as it is now.

Handlers only read the plan; it changes when the engine routes their result to the reducers. So a call that fails after
its handler, in a policy or a subscriber, leaves the plan unchanged with nothing to undo, and a replayed result changes
the plan just as the recorded call did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar, final

from ...errors import PromptValidationError, ToolValidationError
from ...prompt import (
    MarkdownSection,
    SectionVisibility,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolExample,
    ToolPolicy,
    ToolResult,
)
from ...prompt.section import Enabled, Visibility, suite_config
from ...session import SessionProtocol
from .plan import AddStep, Change, Plan, PlanStep, ReadPlan, SetupPlan, UpdateStep, changed, install_plan

_Change = TypeVar("_Change", bound=Change)


class PlanningNames(NamedTuple):
    """The full names of the four tools, for the tools themselves and for instructions and errors that name them."""

    setup: str
    add: str
    update: str
    read: str

    @classmethod
    def prefixed(cls, prefix: str) -> Self:
        """The names with a prefix before each."""
        return cls(*(f"{prefix}planning_{name}" for name in ("setup_plan", "add_step", "update_step", "read_plan")))


@final
@dataclass(slots=True, frozen=True)
class PlanningHandlers:
    """The handlers of one section, with the names and limits it has."""

    names: PlanningNames
    max_steps: int
    max_notes: int

    def set_up(self, params: SetupPlan, *, context: ToolContext) -> ToolResult[SetupPlan]:
        """Create or replace the plan."""

        def said(before: Plan | None, after: Plan) -> str:
            return f"The plan is {'set up' if before is None else 'replaced'} with {_numbers(after.steps)}."

        return self._change(params, context, self.names.setup, said)

    def add(self, params: AddStep, *, context: ToolContext) -> ToolResult[AddStep]:
        """Append steps; a plan that was completed is active again, and the model is told."""

        def said(before: Plan | None, after: Plan) -> str:
            added = after.steps[len(after.steps) - len(params.steps) :]
            return f"Added {_numbers(added)}; {after.progress()}.{_reopened(before, after)}"

        return self._change(params, context, self.names.add, said)

    def update(self, params: UpdateStep, *, context: ToolContext) -> ToolResult[UpdateStep]:
        """Change a step, or add a note to it; a completed plan whose step is open again is active, too."""

        def said(before: Plan | None, after: Plan) -> str:
            following = after.next_step()
            ahead = "The plan is completed." if following is None else f"Next is step {following.step_id}."
            return f"Updated step {params.step_id}; {after.progress()}.{_reopened(before, after)} {ahead}"

        return self._change(params, context, self.names.update, said)

    def read(self, params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:
        """Give the whole plan."""
        del params
        plan = context.session[Plan].latest()
        if plan is None:
            return self._no_plan()
        return ToolResult.ok(plan, "The plan as it is now:")

    def _change(
        self, change: _Change, context: ToolContext, again: str, said: Callable[[Plan | None, Plan], str]
    ) -> ToolResult[_Change]:
        """Try the change; `said` makes the reply. The error for an invalid one names what to call instead."""
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
        return self._over_limit(change, after) or ToolResult.ok(change, said(before, after))

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
            annotations=ToolAnnotations(destructive=True, open_world=False, starts_programs=False),
            accepts_overrides=accepts_overrides,
        ),
        Tool[AddStep, AddStep](
            name=names.add,
            description="Add steps at the end of the plan.",
            handler=handlers.add,
            blocking=False,
            examples=(ToolExample("One more step", _ADD, _ADD),),
            annotations=ToolAnnotations(destructive=False, open_world=False, starts_programs=False),
            accepts_overrides=accepts_overrides,
        ),
        Tool[UpdateStep, UpdateStep](
            name=names.update,
            description="Change a step's status or title, or add a note to it.",
            handler=handlers.update,
            blocking=False,
            examples=(ToolExample("Finish a step and keep what it showed", _UPDATE, _UPDATE),),
            annotations=ToolAnnotations(destructive=True, open_world=False, starts_programs=False),
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


# The instructions: one structure for all strategies, in which only the mindset paragraph differs.


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
Keep a plan for work that takes more than two steps, and keep it true: it tells you, and the people \
who follow your work, where things stand. For anything smaller, just do it.

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


@dataclass(slots=True, frozen=True)
class PlanningConfig:
    """How large a plan may grow. `PromptValidationError` for a limit below 1.

    Attributes:
        max_steps: steps in one plan, done ones included; a call that would make more is answered with an error.
        max_notes: notes on one step; likewise.
        max_shown_chars: about how much of the plan stands in the prompt. `planning_read_plan` gives all of it.
    """

    max_steps: int = 100
    max_notes: int = 20
    max_shown_chars: int = 6000

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if type(value) is not int or value < 1:
                raise PromptValidationError(f"PlanningConfig {item.name} must be a number of 1 or more, got {value!r}.")


class PlanningToolsSection(MarkdownSection[Any]):
    """Lets the model keep a plan, `session[Plan].latest()`, and shows it the current one at each rendering.

    The reducers are registered on `session`, if one is given, and on whichever session evaluates the prompt. The
    section keeps neither of them, so one section may serve any number of prompts and sessions.

    A session has one plan. Several planning sections in one prompt, with other keys and a `tool_prefix` (put before the
    name of each tool as it stands), therefore work on the same plan, in different words.

    `PromptValidationError` for a strategy, prefix or key that cannot be used.

    >>> from weakincentives.session import Session
    >>> session = Session()
    >>> section = PlanningToolsSection(session=session, strategy=PlanningStrategy.PLAN_ACT_REFLECT)
    >>> [tool.name for tool in section.tools][:2]
    ['planning_setup_plan', 'planning_add_step']
    """

    examples_continue = True

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: PlanningConfig | None = None,
        *,
        strategy: PlanningStrategy = PlanningStrategy.REACT,
        accepts_overrides: bool = False,
        key: str | None = "planning",
        title: str = "Planning",
        tool_prefix: str = "",
        policies: Iterable[ToolPolicy] = (),
        enabled: Enabled | None = None,
        summary: str | None = None,
        visibility: Visibility = SectionVisibility.FULL,
    ) -> None:
        if not isinstance(strategy, PlanningStrategy):
            known = ", ".join(f"PlanningStrategy.{item.name}" for item in PlanningStrategy)
            raise PromptValidationError(f"strategy={strategy!r} is not a PlanningStrategy; use one of {known}.")
        self.config: PlanningConfig = suite_config(PlanningConfig, session, config)
        self.strategy = strategy
        self._names = PlanningNames.prefixed(tool_prefix)
        handlers = PlanningHandlers(self._names, self.config.max_steps, self.config.max_notes)
        super().__init__(
            title=title,
            template=_TEMPLATE.format(mindset=MINDSETS[strategy], **self._names._asdict()),
            tools=planning_tools(handlers, accepts_overrides=accepts_overrides),
            key=key,
            policies=policies,
            enabled=enabled,
            summary=summary,
            visibility=visibility,
            accepts_overrides=accepts_overrides,
        )
        if session is not None:
            self.install(session)

    def install(self, session: SessionProtocol) -> None:
        """Register the reducers of the plan; see `install_plan`."""
        install_plan(session)

    def render_state(self, session: SessionProtocol) -> str:
        """The plan as the session holds it now, or that there is none."""
        plan = session[Plan].latest()
        if plan is None:
            return f"**Current plan**\n\nNone yet. Call `{self._names.setup}` to begin one."
        return f"**Current plan**\n\n{plan.outline(self.config.max_shown_chars)}"
