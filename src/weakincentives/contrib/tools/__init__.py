"""Tool suites: each a section that brings instructions, tools, policies and resources together."""

from .asteval import AstevalConfig, AstevalSection
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
from .podman import PodmanSandboxSection
from .podman_config import PodmanSandboxConfig
from .python import PythonConfig, PythonSection
from .vfs import VfsToolsSection
from .vfs_config import HostMount, VfsConfig

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
