"""The project's own tests, run as its developers run them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_RAN = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_BAD = re.compile(r"^(?:FAIL|ERROR): (\w+)", re.MULTILINE)
_WHY = re.compile(r"^(?:\w*Error|AssertionError): .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TestReport:
    """What a test run said."""

    ran: int
    failed: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def green(self) -> bool:
        """Whether there were tests and all of them passed."""
        return self.ran > 0 and not self.failed

    def render(self) -> str:
        """What the model reads."""
        if self.green:
            return f"{self.ran} tests passed."
        if not self.failed:
            return "No tests were found."
        lines = [f"{len(self.failed)} of {self.ran} tests fail:"]
        reasons = (*self.reasons, *[""] * len(self.failed))
        lines += [f"- {name}: {reason}".rstrip(": ") for name, reason in zip(self.failed, reasons, strict=False)]
        return "\n".join(lines)


def run_project_tests(root: Path) -> TestReport:
    """Run the tests in a process of their own, which leaves no compiled files behind."""
    done = subprocess.run(
        [sys.executable, "-B", "-E", "-S", "-m", "unittest", "discover", "-s", "tests", "-t", "."],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ran = _RAN.search(done.stderr)
    failed = tuple(_BAD.findall(done.stderr))
    if done.returncode and not failed:
        failed = ("the test run itself",)
    return TestReport(int(ran[1]) if ran else 0, failed, tuple(_WHY.findall(done.stderr)))


__all__ = ["TestReport", "run_project_tests"]
