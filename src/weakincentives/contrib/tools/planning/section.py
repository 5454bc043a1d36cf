"""The planning suite as a section: instructions, tools, reducers, and the plan as it is now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ....errors import PromptValidationError
from ....prompt import MarkdownSection, SectionVisibility, ToolPolicy
from ....prompt.section import Enabled, Visibility
from ....session import SessionProtocol
from .changes import install_plan
from .names import PlanningNames
from .plan import Plan
from .strategies import PlanningStrategy, instructions
from .tools import PlanningHandlers, planning_tools


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


__all__ = ["PlanningConfig", "PlanningToolsSection"]
