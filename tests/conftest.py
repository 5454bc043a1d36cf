"""What all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=10)
settings.load_profile("default")


def examples(number: int) -> int:
    """For `@settings(max_examples=examples(400))`: that many, and a tenth of it in `make quick`."""
    return max(1, number * settings().max_examples // 100)


def needs(component: str, *, present: bool, install: str) -> None:
    """Skip a test whose real component is missing, saying how to get it; fail where it is required.

    `WINK_TEST_REQUIRE=podman,postgres` turns the skip into a failure.
    """
    if present:
        return
    message = f"{component} is not here; get it with: {install}"
    if component in os.environ.get("WINK_TEST_REQUIRE", "").split(","):
        pytest.fail(f"WINK_TEST_REQUIRE names it, but {message}")
    pytest.skip(message)
