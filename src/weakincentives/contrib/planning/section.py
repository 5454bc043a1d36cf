"""The planning suite as a section: instructions, tools, reducers, and the plan as it is now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from ...errors import PromptValidationError
from ...prompt import MarkdownSection, SectionVisibility, ToolPolicy
from ...prompt.section import Enabled, Visibility
from ...session import SessionProtocol
from .changes import install_plan
from .plan import Plan
from .tools import PlanningHandlers, PlanningNames, planning_tools

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
                raise PromptValidationError(f"PlanningConfig {item.name} must be a number from 1 on, got {value!r}.")


_DEFAULT = PlanningConfig()


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
            raise PromptValidationError(f"strategy={strategy!r} is no PlanningStrategy; use one of {known}.")
        self.config = _DEFAULT if config is None else config
        self.strategy = strategy
        self._names = PlanningNames(tool_prefix)
        handlers = PlanningHandlers(self._names, self.config.max_steps, self.config.max_notes)
        super().__init__(
            title=title,
            template=instructions(strategy, self._names),
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
