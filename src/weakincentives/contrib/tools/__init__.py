"""Tool suites: each a section that brings instructions, tools, policies and resources together."""

from .digest import (
    DigestConfig,
    DigestSource,
    Improve,
    WorkspaceDigest,
    WorkspaceDigestSection,
    build_digest,
    refresh_digest,
)
from .planning import (
    AddStep,
    Plan,
    PlanningConfig,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStatus,
    PlanStep,
    ReadPlan,
    SetupPlan,
    StepStatus,
    UpdateStep,
)

__all__ = [
    "AddStep",
    "DigestConfig",
    "DigestSource",
    "Improve",
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
    "WorkspaceDigest",
    "WorkspaceDigestSection",
    "build_digest",
    "refresh_digest",
]
