"""A suite takes a session and a config, and never mistakes one for the other."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives.contrib.tools import (
    AstevalConfig,
    AstevalSection,
    DigestConfig,
    PlanningConfig,
    PlanningToolsSection,
    PodmanSandboxConfig,
    PodmanSandboxSection,
    PythonConfig,
    PythonSection,
    VfsConfig,
    VfsToolsSection,
    WorkspaceDigestSection,
)
from weakincentives.errors import PromptValidationError
from weakincentives.session import Session

SUITES: list[tuple[Any, Any]] = [
    (AstevalSection, AstevalConfig),
    (PlanningToolsSection, PlanningConfig),
    (PodmanSandboxSection, PodmanSandboxConfig),
    (PythonSection, PythonConfig),
    (VfsToolsSection, VfsConfig),
    (WorkspaceDigestSection, DigestConfig),
]


@pytest.mark.parametrize(("section", "config"), SUITES)
def test_a_config_in_the_place_of_the_session_is_refused(section: Any, config: Any) -> None:
    """Its limits would have no effect, and nothing would say so."""
    with pytest.raises(PromptValidationError, match=rf"is a session, got a .*Config\. Write config={config.__name__}"):
        section(config())


@pytest.mark.parametrize(("section", "config"), SUITES)
def test_what_is_not_a_config_is_refused(section: Any, config: Any) -> None:
    """Also a session, when the two are given in the wrong order."""
    with pytest.raises(PromptValidationError, match=f"config= takes a {config.__name__}, got a Session"):
        section(config=Session())
