"""The plan: an objective, steps with their status, and the notes taken on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

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


__all__ = ["Plan", "PlanStatus", "PlanStep", "StepStatus"]
