"""What changes a plan: the params of the tools are the events, and pure functions apply them.

The same functions serve the handlers, which look whether a change is possible, and the session's reducers, which make
it. So a change that was refused never reaches the session, and `session.dispatch(AddStep(...))` works without a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from ...errors import ToolValidationError
from ...session import Replace, SessionProtocol, SliceOp, Vector
from .plan import Plan, PlanStatus, PlanStep, StepStatus

MAX_TITLE = 500
MAX_TEXT = 2000
"""Characters of an objective or a note."""

Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


@dataclass(slots=True, frozen=True)
class SetupPlan:
    """Create the plan, or replace it. Replacing it gives new ids to its steps."""

    objective: Text = field(metadata={"description": "What is to be achieved, in one sentence."})
    initial_steps: tuple[Title, ...] = field(
        default=(), metadata={"description": "Titles of the first steps, in order, each 1 to 500 characters."}
    )

    def render(self) -> str:
        """What was set up."""
        return "\n".join([f"Objective: {_one_line(self.objective)}", *_listed(self.initial_steps)])


@dataclass(slots=True, frozen=True)
class AddStep:
    """Add steps at the end of the plan; a completed plan becomes active again."""

    steps: tuple[Title, ...] = field(
        metadata={"description": "Titles of the new steps, in order, each 1 to 500 characters."}
    )

    def render(self) -> str:
        """What was added."""
        return "\n".join(_listed(self.steps))


@dataclass(slots=True, frozen=True)
class UpdateStep:
    """Change a step's title or status, or add a note to it; what is None stays as it is."""

    step_id: int = field(metadata={"description": "The step's number, as the plan shows it."})
    title: Title | None = field(default=None, metadata={"description": "A new title, 1 to 500 characters."})
    status: StepStatus | None = field(default=None, metadata={"description": "The new status."})
    note: Text | None = field(
        default=None, metadata={"description": "An observation or reflection to keep with the step."}
    )

    def render(self) -> str:
        """What was changed."""
        said = [f"title: {_one_line(self.title)}"] if self.title is not None else []
        said += [f"status: {self.status}"] if self.status is not None else []
        said += [f"note: {_one_line(self.note)}"] if self.note is not None else []
        return "\n".join(said)


@dataclass(slots=True, frozen=True)
class ReadPlan:
    """Read the plan; nothing to say."""


Change = SetupPlan | AddStep | UpdateStep


def changed(plan: Plan | None, change: Change) -> Plan:
    """The plan after a change. `ToolValidationError` says what is wrong with it; nothing is changed then."""
    if isinstance(change, SetupPlan):
        return _set_up(plan, change)
    if plan is None:
        raise ToolValidationError("There is no plan yet.")
    return _extended(plan, change.steps) if isinstance(change, AddStep) else _updated(plan, change)


def _set_up(plan: Plan | None, change: SetupPlan) -> Plan:
    last, revision = (0, 0) if plan is None else (_last_id(plan), plan.revision)
    empty = Plan(_text("objective", change.objective), "active", (), last, revision)
    return _with_steps(empty, _new_steps(last, change.initial_steps))


def _extended(plan: Plan, titles: Iterable[str]) -> Plan:
    steps = _new_steps(_last_id(plan), titles)
    if not steps:
        raise ToolValidationError("No steps were given.")
    return _with_steps(plan, (*plan.steps, *steps))


def _updated(plan: Plan, change: UpdateStep) -> Plan:
    step = plan.step(change.step_id)
    if step is None:
        raise ToolValidationError(f"There is no step {change.step_id} in the plan.")
    if change.title is None and change.status is None and change.note is None:
        raise ToolValidationError("Nothing to change: neither title, status nor note was given.")
    new = PlanStep(
        step.step_id,
        step.title if change.title is None else _title(change.title),
        step.status if change.status is None else change.status,
        step.notes if change.note is None else (*step.notes, _note(change.note)),
    )
    return _with_steps(plan, tuple(new if old is step else old for old in plan.steps))


def _with_steps(plan: Plan, steps: tuple[PlanStep, ...]) -> Plan:
    done = bool(steps) and all(step.status == "done" for step in steps)
    status: PlanStatus = "completed" if done else "active"
    last = max((plan.last_step_id, *(step.step_id for step in steps)))
    return replace(plan, steps=steps, status=status, last_step_id=last, revision=plan.revision + 1)


def _new_steps(last: int, titles: Iterable[str]) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(number, _title(title), "pending") for number, title in enumerate(titles, last + 1))


def _last_id(plan: Plan) -> int:
    # A plan made by hand may not say which id was last.
    return max((plan.last_step_id, *(step.step_id for step in plan.steps)))


def _title(text: str) -> str:
    # One line, so that a title cannot pose as a heading or as another step in the prompt.
    return _bounded("title", _one_line(text), MAX_TITLE)


def _text(what: str, text: str) -> str:
    return _bounded(what, _one_line(text), MAX_TEXT)


def _note(text: str) -> str:
    return _bounded("note", text.strip(), MAX_TEXT)


def _bounded(what: str, text: str, limit: int) -> str:
    if not text:
        raise ToolValidationError(f"The {what} must not be empty.")
    if len(text) > limit:
        raise ToolValidationError(f"The {what} must have at most {limit} characters, got {len(text)}.")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _listed(titles: Iterable[str]) -> list[str]:
    return [f"- {_one_line(title)}" for title in titles]


def _on_change(view: Vector[Plan], event: Change) -> SliceOp[Plan]:
    return Replace((changed(view.latest(), event),))


def _on_plan(view: Vector[Plan], event: Plan) -> SliceOp[Plan]:
    """Make a plan the current one, unless it was read before the latest change.

    What `planning_read_plan` returns comes here too. A read may overlap with other reads and is settled after them;
    it must never take back what another call changed meanwhile.
    """
    current = view.latest()
    if current is None:
        return Replace((replace(event, revision=event.revision or 1),))
    if event == current or 0 < event.revision < current.revision:
        return Replace(view)
    last = max(_last_id(event), _last_id(current))
    return Replace((replace(event, last_step_id=last, revision=current.revision + 1),))


def install_plan(session: SessionProtocol) -> None:
    """Let a session keep a plan: the reducers for `Plan`, `SetupPlan`, `AddStep` and `UpdateStep`. May be repeated.

    A change that is not possible raises `ReducerError` from `session.dispatch`, and nothing is applied.

    >>> from weakincentives.session import Session
    >>> session = Session()
    >>> install_plan(session)
    >>> session.dispatch(SetupPlan("Bake bread", ("Knead", "Bake"))).ok
    True
    >>> session[Plan].latest().next_step()
    PlanStep(step_id=1, title='Knead', status='pending', notes=())
    """
    plans = session[Plan]
    plans.register(Plan, _on_plan)
    plans.register(SetupPlan, _on_change)
    plans.register(AddStep, _on_change)
    plans.register(UpdateStep, _on_change)


__all__ = ["AddStep", "Change", "ReadPlan", "SetupPlan", "UpdateStep", "changed", "install_plan"]
