"""Tool suites: each a section that brings instructions, tools, policies and resources together."""

from ...deprecation import FormerNames, former_names
from ..asteval.section import AstevalConfig, AstevalSection
from ..digest import DigestConfig, WorkspaceDigest, WorkspaceDigestSection, build_digest, refresh_digest
from ..planning import Plan, PlanningConfig, PlanningStrategy, PlanningToolsSection, PlanStep
from ..podman.section import PodmanSandboxConfig, PodmanSandboxSection
from ..python.section import PythonConfig, PythonSection
from ..vfs.section import HostMount, VfsConfig, VfsToolsSection

__getattr__: FormerNames = former_names(
    __name__,
    {
        "AddStep": "contrib.planning",
        "DigestSource": "contrib.digest",
        "Improve": "contrib.digest",
        "PlanStatus": "contrib.planning",
        "ReadPlan": "contrib.planning",
        "SetupPlan": "contrib.planning",
        "StepStatus": "contrib.planning",
        "UpdateStep": "contrib.planning",
    },
)

__all__ = [
    "AstevalConfig",
    "AstevalSection",
    "DigestConfig",
    "HostMount",
    "Plan",
    "PlanStep",
    "PlanningConfig",
    "PlanningStrategy",
    "PlanningToolsSection",
    "PodmanSandboxConfig",
    "PodmanSandboxSection",
    "PythonConfig",
    "PythonSection",
    "VfsConfig",
    "VfsToolsSection",
    "WorkspaceDigest",
    "WorkspaceDigestSection",
    "build_digest",
    "refresh_digest",
]
