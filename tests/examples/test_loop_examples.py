"""The examples of the loop, with the scripted model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, "--model", "scripted"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_support_desk() -> None:
    """Three tickets ask for a refund of one order: it is paid once, replayed once, and refused with another amount."""
    lines = run("support_desk.py").splitlines()
    outcomes = [line.split()[0] for line in lines if " refund: " in line]
    assert outcomes == ["refused", "succeeded", "replayed", "conflict"]
    assert lines[-1] == "paid by the bank: [('ord_7', 2500)]"


@pytest.mark.slow  # a program
def test_code_review() -> None:
    """An answer in prose is sent back; the typed one arrives."""
    assert run("code_review.py").splitlines() == [
        "request changes: The query is built from text that users choose.",
        "  line 1: bug: Negative cents give money away.",
        "  line 2: danger: SQL injection through account; bind parameters.",
    ]
