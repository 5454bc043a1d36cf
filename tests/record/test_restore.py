"""A resume that restores files and is ended halfway, at every file operation: the next one is right, or refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("restore_program.py")
RIGHT = {"a.txt": "a written", "sub": None, "sub/b.txt": "sub/b written", "c.txt": "c again"}


@pytest.mark.slow  # starts dozens of processes
def test_a_restore_that_is_ended_halfway(tmp_path: Path) -> None:
    """What the next resume comes to without a refusal are the files on record, as does another restore."""
    done = subprocess.run([sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, check=False)
    ended = list(map(json.loads, done.stdout.splitlines()))
    assert [how for how, _, _ in ended] == [9] * (len(ended) - 1) + [0], done.stderr
    assert {after for _, after, _ in ended} == {0, 4}, done.stderr  # it goes on, or `WorldChangedError`
    assert all(files == RIGHT for _, _, files in ended)
