"""The plan: an objective, steps with a status and notes, and the events that change it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field

from ...errors import ToolValidationError
from ...session import Replace, SessionProtocol, SliceOp, Vector

StepStatus = Literal["pending", "in_progress", "done"]
PlanStatus = Literal["active", "completed"]

_MARKS: dict[StepStatus, str] = {"pending": "[ ]", "in_progress": "[~]", "done": "[x]"}
_NOTE_SHOWN = 300
"""How much of a step's latest note stands in the prompt; `planning_read_plan` gives all of all notes."""


@dataclass(slots=True, frozen=True)
class PlanStep:
    """One step. Its id is never given to another step; notes are observations and reflections, oldest first."""

    step_id: int
    title: str
    status: StepStatus
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The step in one line."""
        return f"- {_MARKS[self.status]} {self.step_id}. {self.title}"


@dataclass(slots=True, frozen=True)
class Plan:
    """What `session[Plan].latest()` holds: the current plan, completed once all of its steps are done.

    `last_step_id` and `revision` are the session's bookkeeping and do not count when plans are compared: the largest
    id ever given, so that a plan which replaces another one goes on counting, and the number of changes so far.

    >>> plan = Plan("Bake bread", "active", (PlanStep(1, "Knead", "done"), PlanStep(2, "Bake", "pending")))
    >>> print(plan.render())
    Objective: Bake bread
    Status: active, 1 of 2 steps done
    - [x] 1. Knead
    - [ ] 2. Bake
    """

    objective: str
    status: PlanStatus
    steps: tuple[PlanStep, ...] = ()
    last_step_id: int = field(default=0, compare=False, repr=False)
    revision: int = field(default=0, compare=False, repr=False)

    def step(self, step_id: int) -> PlanStep | None:
        """The step with that id, or None."""
        return next((step for step in self.steps if step.step_id == step_id), None)

    def next_step(self) -> PlanStep | None:
        """What to work on: the first step in progress, else the first pending one; None when all are done."""
        open_steps = [step for step in self.steps if step.status != "done"]
        return next((step for step in open_steps if step.status == "in_progress"), next(iter(open_steps), None))

    def progress(self) -> str:
        """How far it is, in words."""
        done = sum(step.status == "done" for step in self.steps)
        return f"{done} of {len(self.steps)} steps done" if self.steps else "no steps yet"

    def render(self) -> str:
        """The whole plan with all notes, as the model reads it."""
        lines = [self._head()]
        for step in self.steps:
            lines.append(step.line)
            lines += ["    note: " + "\n          ".join(note.splitlines()) for note in step.notes]
        return "\n".join(lines)

    def outline(self, limit: int) -> str:
        """The plan in about `limit` characters: each step with the latest note, what is left to do first.

        When it does not fit, steps that are done give way, then those at the end; a line says how many.
        """
        head = self._head()
        texts = [_brief(step) for step in self.steps]
        if len(head) + _length(texts) <= limit:
            return "\n".join([head, *texts])
        texts = [_brief(step) for step in self.steps if step.status != "done"]
        lines = [head]
        if hidden := len(self.steps) - len(texts):
            lines.append(f"- ({hidden} done, not shown here)")
        left = limit - _length(lines)
        for number, text in enumerate(texts):
            left -= len(text) + 1
            if left < 0:
                lines.append(f"- ({len(texts) - number} more, not shown here)")
                break
            lines.append(text)
        return "\n".join(lines)

    def _head(self) -> str:
        return f"Objective: {self.objective}\nStatus: {self.status}, {self.progress()}"


def _brief(step: PlanStep) -> str:
    if not step.notes:
        return step.line
    note = " ".join(step.notes[-1].split())
    return f"{step.line}\n    note: {note if len(note) <= _NOTE_SHOWN else note[:_NOTE_SHOWN] + '...'}"


def _length(texts: Iterable[str]) -> int:
    return sum(len(text) + 1 for text in texts)


# What changes a plan: the params of the tools are the events, and pure functions apply them.
#
# The same functions serve the handlers, which look whether a change is possible, and the session's reducers, which
# make it. So a refused change never reaches the session, and `session.dispatch(AddStep(...))` works without a model.

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
    empty = Plan(_bounded("objective", _one_line(change.objective), MAX_TEXT), "active", (), last, revision)
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
        step.notes if change.note is None else (*step.notes, _bounded("note", change.note.strip(), MAX_TEXT)),
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
    it must never undo what another call changed meanwhile.
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
