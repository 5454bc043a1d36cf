"""The example of a run that is killed and run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn is asked twice, one refund, nothing unknown, and the letter is whole."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = EXAMPLES / "resume.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    killed, again, last = done.stdout.split("---")[1:]
    assert "killed: exit code -9, on the disk: 'Dear Ada,\\n'" in killed
    assert again.endswith("answer: Refunded, and the letter is written.\n")
    assert "asked: turn 1, turn 2, turn 3\n" in last
    assert "calls: refund succeeded, letter succeeded\n" in last
    assert "refunds: 1\n" in last
    assert "letter: 'Dear Ada,\\nWe have refunded 19.99.\\n'" in last
