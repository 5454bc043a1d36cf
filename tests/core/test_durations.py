"""Every duration that the public API takes is a finite number; others are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any

import pytest

from weakincentives.clock import MAX_SECONDS, checked_seconds
from weakincentives.contrib.code import EvalLimits
from weakincentives.contrib.podman.section import PodmanSandboxConfig
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptValidationError
from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.loop.request import Throttle
from weakincentives.loop.settings import AdapterSettings
from weakincentives.prompt import Tool, ToolResult
from weakincentives.runtime.ledger import SqliteEffectLedger
from weakincentives.testing import ScriptedAdapter

NAN, INFINITY = float("nan"), float("inf")
NEVER: list[Any] = [NAN, INFINITY, -INFINITY, -1, -0.001, -(10**400), True, "5", b"5", [5], 5j]
"""Not even where a duration of nothing makes sense."""


@dataclass
class Nothing:
    """No parameters."""


def grep(timeout: Any) -> object:
    """In memory and on disk there is one implementation, but views pass it on."""
    return InMemoryFilesystem({"a": "x"}).readonly().sub(".").grep("x", timeout=timeout)


def grep_disk(timeout: Any) -> object:
    """A folder that is there on every machine; nothing is read of it."""
    with HostFilesystem(Path(__file__).parent, read_only=True) as fs:
        return fs.grep("x", path="test_durations.py", timeout=timeout)


def tool(timeout: Any) -> object:
    """A tool's time limit."""

    def handler(params: Nothing) -> ToolResult[str]:
        raise NotImplementedError

    return Tool[Nothing, str](name="t", description="t", handler=handler, timeout=timeout)


ABOVE_ZERO: dict[str, Callable[[Any], object]] = {
    "Tool timeout": tool,
    "request_timeout": lambda value: AdapterSettings(request_timeout=value),
    "request_timeout of an adapter": lambda value: ScriptedAdapter(request_timeout=value),
    "EvalLimits seconds": lambda value: EvalLimits(seconds=value),
    "PodmanSandboxConfig timeout": lambda value: PodmanSandboxConfig(timeout=value),
}
ZERO_OR_MORE: dict[str, Callable[[Any], object]] = {
    "grep": grep,  # nothing is left of a run's time: the search is over at once
    "grep on disk": grep_disk,
    "Throttle base": lambda value: Throttle(base=value),
    "Throttle max_wait": lambda value: Throttle(max_wait=value),
    "EvalLimits sleep": lambda value: EvalLimits(sleep=value),
    "SQLite patience": lambda value: SqliteEffectLedger("/nonexistent/ledger", patience=value),
}


@pytest.mark.parametrize("value", [*NEVER, None], ids=repr)
@pytest.mark.parametrize("name", [*ABOVE_ZERO, *ZERO_OR_MORE])
def test_what_is_not_a_duration_is_refused(name: str, value: Any) -> None:
    """With an error that names the option and says what it takes; nothing has happened then."""
    if name == "Tool timeout" and value is None:
        return  # documented: no limit
    with pytest.raises((ValueError, TypeError, PromptValidationError), match="must be") as caught:
        {**ABOVE_ZERO, **ZERO_OR_MORE}[name](value)
    assert not isinstance(caught.value, OverflowError)
    assert any(word in str(caught.value) for word in ("timeout", "base", "max_wait", "seconds", "sleep", "patience"))


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    """It would be over before the work begins."""
    with pytest.raises((ValueError, PromptValidationError), match="must be"):
        ABOVE_ZERO[name](0)


@pytest.mark.parametrize("value", [0.5, 60, 86_400, 10_000_000, 1e300, 10**400])
@pytest.mark.parametrize("name", [name for name in ABOVE_ZERO if name != "PodmanSandboxConfig timeout"])
def test_ordinary_durations_are_taken(name: str, value: float) -> None:
    """Also long ones."""
    ABOVE_ZERO[name](value)


def test_the_longest_duration_can_be_waited_for() -> None:
    """By locks and timers, which refuse longer ones when it is too late: those are cut to it."""
    assert checked_seconds("x", 10**400) == checked_seconds("x", 1e300) == MAX_SECONDS < TIMEOUT_MAX
    assert checked_seconds("x", 0, zero=True) == 0.0
    with pytest.raises(ValueError, match=r"^x must be a positive, finite number of seconds, got inf\.$"):
        checked_seconds("x", INFINITY)
    with pytest.raises(TypeError, match=r"^x must be a number of seconds, got '5'\.$"):
        checked_seconds("x", "5")


def test_a_deadline_is_after_a_timedelta() -> None:
    """The error names what to write instead, for numbers and for moments that no calendar has."""
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"timedelta\(seconds=5\)"):
        Deadline.after(wrong)
    with pytest.raises(ValueError, match="no deadline"):
        Deadline.after(timedelta.max)
    for elapsed in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="passed"):
            Deadline.after(elapsed)
