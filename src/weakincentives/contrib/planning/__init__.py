"""A plan the model keeps while it works: four tools, one slice, instructions in three styles."""

from .changes import AddStep, ReadPlan, SetupPlan, UpdateStep, install_plan
from .plan import Plan, PlanStatus, PlanStep, StepStatus
from .section import PlanningConfig, PlanningStrategy, PlanningToolsSection

__all__ = [
    "AddStep",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "PlanningConfig",
    "PlanningStrategy",
    "PlanningToolsSection",
    "ReadPlan",
    "SetupPlan",
    "StepStatus",
    "UpdateStep",
    "install_plan",
]
