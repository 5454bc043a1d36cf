"""Effects of agents inside tools that only read, of a process that was killed: unknown, and never repeated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("inner_program.py")


def run_program(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], cwd=here, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.slow  # starts two processes
@pytest.mark.parametrize(
    ("where", "names", "ended"),
    [
        ("last", ["mail"], ["unknown"]),
        ("last", ["mail1", "mail2"], ["unknown", "unknown"]),
        ("last", ["slow", "mail1", "mail2"], ["succeeded", "unknown", "unknown"]),
        ("first", ["quick", "mail1", "mail2", "other"], ["succeeded", "unknown", "unknown", "succeeded"]),
        ("first", ["open", "mail1", "other"], ["expanded", "unknown", "cancelled"]),
        ("last", ["opens", "mail1"], ["expanded", "unknown"]),
    ],
)
def test_what_an_agent_did_inside_a_tool_that_only_reads_is_unknown_after_a_kill(
    where: str, names: list[str], ended: list[str], tmp_path: Path
) -> None:
    """Also where such calls overlap, whichever of them had begun, ended, or opened a section by then."""
    killed = run_program(tmp_path, where, *names)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    mails = [name for name in names if name.startswith("mail")]
    assert sorted((tmp_path / "sent.txt").read_text().split()) == mails
    again = run_program(tmp_path, "nowhere", *names)
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert sorted(told["sent"]) == mails
    ids = ["call_1", *(f"call_1_{number}" for number in range(2, len(names) + 1))]
    assert told["ended"] == [[one, outcome] for one, outcome in zip(ids, ended, strict=True)]
    assert told["problems"] == []


@pytest.mark.slow  # starts a process
def test_a_payment_is_not_made_again_where_no_ledger_can_know_of_it(tmp_path: Path) -> None:
    """A ledger that ended with the process, or has it under the key of a session that is gone, is as good as none."""
    program = PROGRAM.with_name("paying_program.py")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    told = {way: rest for way, *rest in map(json.loads, done.stdout.splitlines())}
    assert len(told) == 8
    assert told.pop("inside a reader, key of the shop") == [9, ["succeeded"], ["rent"]]  # the inner call was unknown
    for way, rest in told.items():
        assert rest == [9, ["unknown"], ["rent"]], way
