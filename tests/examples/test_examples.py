"""The examples run as a user would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # a program
def test_rollback() -> None:
    """A failed step leaves state and files as they were."""
    out = run("rollback.py")
    assert "about to undo: FileChanges(added=('build/', 'build/notes.txt'), changed=('config.ini',), removed=())" in out
    assert "steps: ['look around']" in out
    assert "files: ['config.ini'] 'debug = no\\n'" in out


@pytest.mark.slow  # a program
def test_transaction() -> None:
    """A failed order is neither in the session nor in the files; the log has all three calls."""
    out = run("transaction.py")
    assert "-> failed: We have only 10 of these.\n     Order fewer.\n     Rolled back: " in out
    assert "orders: ['tea']\nfiles:  ['orders/tea.txt']\n" in out
    assert "log:    ['succeeded', 'failed', 'invalid']" in out


@pytest.mark.slow  # a program
def test_delegate() -> None:
    """The chapter of the writer that came to an end is there, the other one is gone, and the log has all calls."""
    out = run("delegate.py")
    assert "    read_file: OK\nresearch: 'research' answered:\n    write_file: Written:\n" in out
    assert "came to no answer: The model did not finish within 3 turns." in out
    assert "facts: [['Cats sleep.']]\nfiles: ['cats.md', 'notes.txt']\n" in out
    assert out.endswith("log: edit.write_chapter failed, undid 3 calls\n")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_tested(path: Path) -> None:
    """Each example has a test of its own in this folder."""
    tested = "".join(other.read_text() for other in Path(__file__).parent.glob("test_*.py"))
    assert f'"{path.name}"' in tested


@pytest.mark.slow  # a program
def test_replay() -> None:
    """The same program goes as it did, another one does not, and a call that is made to fail leaves nothing."""
    out = run("replay_test.py")
    same, other, full, mails = re.split(r"^--- (?=[a-z ]+:?.*$)(?!recorded)", out, flags=re.MULTILINE)[1:]
    assert "The run 'tea' goes as it did." in same
    assert "3 divergences" in other
    assert "crashed 0 []" in full
    assert mails == "mails sent: 1\n"
