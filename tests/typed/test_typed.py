"""Programs of users that must type-check, strictly, with both type checkers that people use.

`make types` checks them with basedpyright; an ignore that is no longer needed is an error there and here.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.typed import declared, decorated, evaluated

HERE = Path(__file__).parent
PROGRAMS = {"declared": declared.main, "decorated": decorated.main, "evaluated": evaluated.main}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_typed_program_runs(name: str) -> None:
    """What the type checkers are told is what happens."""
    PROGRAMS[name]()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed; `make types` brings it")
def test_mypy_accepts_the_programs(tmp_path: Path) -> None:
    """Strictly; basedpyright is asked by `make types`."""
    files = [str(HERE / f"{name}.py") for name in PROGRAMS]
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "--cache-dir", str(tmp_path)]  # fmt: skip  # noqa: E501
    checked = subprocess.run([*command, *files], capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert checked.returncode == 0, checked.stdout + checked.stderr
