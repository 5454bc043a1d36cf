"""001: "Planning Tool Suite" and "Planning Strategies"."""

from dataclasses import dataclass, fields
from enum import Enum
from inspect import get_annotations
from typing import Literal, get_args, get_type_hints

import pytest

from weakincentives.adapters import ToolExecutor
from weakincentives.contrib import planning as tools
from weakincentives.contrib.tools import Plan, PlanningStrategy, PlanningToolsSection
from weakincentives.prompt import Prompt
from weakincentives.runtime import InProcessDispatcher, Session, ToolCall


def starts_like(ours, printed):
    """The printed fields come first, as printed; what ours has more has a default."""
    printed_fields = [item.name for item in fields(printed)]
    assert [item.name for item in fields(ours)][: len(printed_fields)] == printed_fields
    assert [item.default for item in fields(ours)][: len(printed_fields)] == [item.default for item in fields(printed)]
    assert ours.__dataclass_params__.frozen
    assert hasattr(ours, "__slots__")
    ours(**{item.name: item.default for item in fields(printed)})


def test_data_model():
    StepStatus = Literal["pending", "in_progress", "done"]
    PlanStatus = Literal["active", "completed"]

    @dataclass(slots=True, frozen=True)
    class PlanStep:
        step_id: int
        title: str
        status: StepStatus

    @dataclass(slots=True, frozen=True)
    class Plan:
        objective: str
        status: PlanStatus
        steps: tuple[PlanStep, ...] = ()

    starts_like(tools.PlanStep, PlanStep)
    starts_like(tools.Plan, Plan)
    assert get_args(tools.StepStatus) == get_args(StepStatus)
    assert get_args(tools.PlanStatus) == get_args(PlanStatus)
    hints = get_type_hints(tools.PlanStep)
    assert [hints[name] for name in ("step_id", "title", "status")] == [int, str, StepStatus]
    hints = get_type_hints(tools.Plan)
    assert [hints[name] for name in ("objective", "status", "steps")] == [str, PlanStatus, tuple[tools.PlanStep, ...]]


def test_tools():
    """The table, with what each row promises."""
    names = [tool.name for tool in PlanningToolsSection().tools]
    assert names == ["planning_setup_plan", "planning_add_step", "planning_update_step", "planning_read_plan"]


def test_tool_parameters():
    StepStatus = Literal["pending", "in_progress", "done"]

    @dataclass(slots=True, frozen=True)
    class SetupPlan:
        objective: str
        initial_steps: tuple[str, ...] = ()

    @dataclass(slots=True, frozen=True)
    class AddStep:
        steps: tuple[str, ...]

    @dataclass(slots=True, frozen=True)
    class UpdateStep:
        step_id: int
        title: str | None = None
        status: StepStatus | None = None

    @dataclass(slots=True, frozen=True)
    class ReadPlan:
        pass

    for printed in (SetupPlan, AddStep, UpdateStep, ReadPlan):
        ours = getattr(tools, printed.__name__)
        starts_like(ours, printed)
        hints = get_type_hints(ours)
        annotations = get_annotations(printed)
        assert [hints[name] for name in annotations] == list(annotations.values())
    assert [tool.params_type for tool in PlanningToolsSection().tools] == [
        tools.SetupPlan,
        tools.AddStep,
        tools.UpdateStep,
        tools.ReadPlan,
    ]


def run(session, section, *calls):
    replies = []
    with ToolExecutor(prompt=Prompt(name="p", sections=[section]), session=session) as executor:
        for number, (name, arguments) in enumerate(calls):
            replies.append(executor.execute(ToolCall(str(number), name, arguments)))
    return replies


def test_behavior():
    """Lifecycle, ids, completion and validation, as the list has them."""
    session = Session()
    section = PlanningToolsSection(session=session)

    # **Plan lifecycle**: `setup_plan` creates or replaces; others require existing
    (refused,) = run(session, section, ("planning_add_step", {"steps": ["a"]}))
    assert not refused.result.success
    run(session, section, ("planning_setup_plan", {"objective": "first", "initial_steps": ["a", "b"]}))
    assert [step.step_id for step in session[Plan].latest().steps] == [1, 2]
    run(session, section, ("planning_setup_plan", {"objective": "second", "initial_steps": ["c"]}))
    assert session[Plan].latest().objective == "second"

    # **Step IDs**: Incrementing integers (1, 2, 3...); never reused
    assert [step.step_id for step in session[Plan].latest().steps] == [3]

    # **Auto-completion**: All steps `done` sets plan to `completed`
    run(session, section, ("planning_update_step", {"step_id": 3, "status": "done"}))
    assert session[Plan].latest().status == "completed"

    # **Validation**: Titles non-empty and <= 500 chars
    for title in ("", "x" * 501):
        (refused,) = run(session, section, ("planning_add_step", {"steps": [title]}))
        assert not refused.result.success


def test_session_integration():
    bus = InProcessDispatcher()

    session = Session(bus=bus)
    section = PlanningToolsSection(session=session, accepts_overrides=False)
    # ... after tool calls ...
    run(session, section, ("planning_setup_plan", {"objective": "x", "initial_steps": ["a"]}))
    plan = session[Plan].latest()

    assert plan == Plan(objective="x", status="active", steps=(tools.PlanStep(1, "a", "pending"),))
    # The note below it: `planning_read_plan` returns the `Plan` object (not `ReadPlan`).
    (reply,) = run(session, section, ("planning_read_plan", {}))
    assert reply.result.value == plan


def test_session_integration_note():
    """The reducers for `Plan`, `SetupPlan`, `AddStep` and `UpdateStep` are on the provided session."""
    session = Session()
    PlanningToolsSection(session=session)
    session.dispatch(tools.SetupPlan("x"))
    session.dispatch(tools.AddStep(("a",)))
    session.dispatch(tools.UpdateStep(1, status="in_progress"))
    assert session[Plan].latest() == Plan("x", "active", (tools.PlanStep(1, "a", "in_progress"),))
    session.dispatch(Plan("y", "active"))
    assert session[Plan].latest() == Plan("y", "active")


def test_strategy_enum():
    class PlanningStrategy(Enum):
        REACT = "react"
        PLAN_ACT_REFLECT = "plan_act_reflect"
        GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"

    assert {item.name: item.value for item in PlanningStrategy} == {
        item.name: item.value for item in tools.PlanningStrategy
    }


def test_usage():
    session = Session()

    section = PlanningToolsSection(
        session=session,
        strategy=PlanningStrategy.PLAN_ACT_REFLECT,
    )

    assert section.strategy is PlanningStrategy.PLAN_ACT_REFLECT


@pytest.mark.parametrize("strategy", list(PlanningStrategy))
def test_rendering_rules(strategy):
    """Same markdown structure; only the mindset varies; tool usage references unchanged."""
    default = PlanningToolsSection().template.split("\n\n")
    other = PlanningToolsSection(strategy=strategy).template.split("\n\n")
    different = [index for index, (one, two) in enumerate(zip(default, other, strict=True)) if one != two]
    assert different == ([] if strategy is PlanningStrategy.REACT else [default.index("**Mindset**") + 1])
