"""The tests pass where they are started in the background: `nohup`, `&` and some CI runners ignore Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_IGNORED = 'trap "" INT QUIT; exec "$@"'  # as a shell that is not interactive starts a program with `&`
_CHILD = "import signal; raise SystemExit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"


def test_ctrl_c_reaches_the_tests() -> None:
    """Python's own handler is installed in the process of the tests, also in a worker of xdist."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_reaches_the_programs_that_tests_start() -> None:
    """A program that a test starts inherits nothing that is ignored."""
    assert subprocess.run([sys.executable, "-c", _CHILD], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_that_are_started_with_ctrl_c_ignored_get_it(workers: str) -> None:
    """The two tests above pass in a run that a shell started in the background, with and without workers."""
    tests = [f"{__file__}::{test.__name__}" for test in (test_ctrl_c_reaches_the_tests,
             test_ctrl_c_reaches_the_programs_that_tests_start)]  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-n", workers, "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        ["sh", "-c", _IGNORED, "sh", *command], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
