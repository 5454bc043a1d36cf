"""The example of the effect ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_exactly_once() -> None:
    """A process killed in the middle, then two more: the money is paid once, and every answer is honest."""
    path = EXAMPLES / "exactly_once.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, second, third, last = done.stdout.split("---")[1:]
    assert first == " killed\npaid, and killed before it could be recorded\n"
    assert second.startswith(" careful\nunknown: The outcome of 'refund' is unknown: the process that ran it ended")
    assert "do not repeat it" in second
    assert third.startswith(" asking\nreplayed: Refunded earlier.\n")
    assert last == " the bank paid 1 time: A-7 1999\n"
