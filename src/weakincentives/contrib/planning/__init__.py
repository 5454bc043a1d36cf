"""A plan the model keeps while it works: four tools, one slice, instructions in three styles."""

from .plan import AddStep, Plan, PlanStatus, PlanStep, ReadPlan, SetupPlan, StepStatus, UpdateStep, install_plan
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
