"""Tool suites: each a section that brings instructions, tools, policies and resources together."""

from ..asteval.section import AstevalConfig, AstevalSection
from ..digest import (
    DigestConfig,
    DigestSource,
    Improve,
    WorkspaceDigest,
    WorkspaceDigestSection,
    build_digest,
    refresh_digest,
)
from ..planning import (
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
from ..podman.config import PodmanSandboxConfig
from ..podman.section import PodmanSandboxSection
from ..python.section import PythonConfig, PythonSection
from ..vfs.section import HostMount, VfsConfig, VfsToolsSection

__all__ = [
    "AddStep",
    "AstevalConfig",
    "AstevalSection",
    "DigestConfig",
    "DigestSource",
    "HostMount",
    "Improve",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "PlanningConfig",
    "PlanningStrategy",
    "PlanningToolsSection",
    "PodmanSandboxConfig",
    "PodmanSandboxSection",
    "PythonConfig",
    "PythonSection",
    "ReadPlan",
    "SetupPlan",
    "StepStatus",
    "UpdateStep",
    "VfsConfig",
    "VfsToolsSection",
    "WorkspaceDigest",
    "WorkspaceDigestSection",
    "build_digest",
    "refresh_digest",
]
