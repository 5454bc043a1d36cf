"""Runs whose process was killed at any moment: nothing asked twice, no effect twice, state and files right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from weakincentives.runtime import SqliteRunStore

PROGRAM = Path(__file__).with_name("killed_program.py")


def check(here: Path, interrupts: int, turns: int = 10) -> None:
    """What an interrupted run left behind is what an undisturbed one would have, but for what is told to be unknown."""
    result = json.loads((here / "result.json").read_text())
    told = [line.split() for line in (here / "told.txt").read_text().splitlines()]
    paid = [name for kind, name in told if kind == "paid"]
    mailed = [name for kind, name in told if kind == "mailed"]
    assert result["text"] == "done"
    assert result["turns"] == turns + 1
    assert result["added"] == [f"i{n}" for n in range(turns)]
    assert result["counts"] == {f"i{n}": 1 for n in range(turns)}
    events: list[list[str]] = result["events"]
    assert [event[0] for event in events] == [f"t{turn}c{n}" for turn in range(turns) for n in range(4)]
    asked = [name for kind, name in told if kind == "asked"]
    assert len(asked) <= turns + interrupts  # only a question whose answer was lost is asked again
    last = -1
    for kind, name in told:  # and never once a call of that answer was run
        assert kind != "asked" or int(name) > last
        last = last if kind == "asked" else int(name[1:])
    assert len(set(paid)) == len(paid)
    assert len(set(mailed)) == len(mailed)
    for _, tool, outcome in events:
        assert outcome in {"succeeded", "replayed", "unknown"} if tool in {"pay", "mail"} else outcome == "succeeded"
    # A call that succeeded had its effect; one whose outcome is unknown had it or not.
    for turn in range(turns):
        outcomes = {tool: outcome for call, tool, outcome in events if call.startswith(f"t{turn}c")}
        for tool, names in (("pay", paid), ("mail", mailed)):
            if outcomes[tool] != "unknown":
                assert f"{tool[0]}{turn}" in names
    files = {path.name: path.read_text() for path in (here / "root").glob("*.txt")}
    assert files == {f"f{n % 3}.txt": f"turn {n}" for n in range(turns)}
    with SqliteRunStore(here / "runs.db") as store:
        run = store.open("run")
        said = [step.body["text"] for step in run.steps() if step.kind == "turn"]
        assert len(said) == len(set(said)) == turns + 1  # each answer once, with its own nonce
        kept = run.files_at(run.steps()[-1].seq)
        assert {name: kept.read(name) for name in files} == files


def run_program(here: Path, how: str, numbers: Iterable[int], **environment: str) -> list[list[int]]:
    """What the program says of each number, after that number."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), how, *map(str, numbers)], cwd=here, capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_STATE_HOME": str(here / "xdg"), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [list(map(int, line.split())) for line in done.stdout.splitlines() if not line.startswith("warm")]
    assert [one[0] for one in said] == list(numbers)
    assert not any(one[-1] for one in said), f"{said}\n{done.stderr}"
    return said


def run_and_kill(here: Path, seeds: range) -> None:
    """Run the program once for each seed, killed until it is done, and look at what is left."""
    runs = run_program(here, "kill", seeds)
    assert sum(kills for _, kills, _ in runs) >= len(seeds)
    for seed, kills, _ in runs:
        check(here / str(seed), kills)


@pytest.mark.slow  # starts dozens of processes
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Every question that was answered is asked once; every effect happens once or is reported as unknown."""
    run_and_kill(tmp_path, range(4))


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(int(os.environ.get("WINK_KILLED_RUNS", "200")) // 25))
def test_many_killed_runs_go_on(tmp_path: Path, part: int) -> None:
    """200 runs, or as many as WINK_KILLED_RUNS says."""
    run_and_kill(tmp_path, range(1000 + 25 * part, 1025 + 25 * part))


@pytest.mark.slow  # starts dozens of processes
@pytest.mark.parametrize(("how", "code"), [("before", 9), ("after", 9), ("fail", 3)])
def test_a_run_goes_on_after_a_fault_at_any_write_to_its_record(tmp_path: Path, how: str, code: int) -> None:
    """The process ends before the write, or after it and before files are released; or the record cannot be written."""
    writes = range(
        1, 23
    )  # begin, prompt; three turns, each with four calls and one that is started; the answer, the end
    runs = run_program(tmp_path, how, writes, TURNS="3")
    assert [first for _, first, _ in runs] == [code] * len(writes)
    for at in writes:
        check(tmp_path / str(at), 1, turns=3)


@pytest.mark.slow  # starts dozens of processes
@pytest.mark.parametrize(("how", "code"), [("file-exit", 9), ("file-fail", 0)])
def test_a_run_goes_on_after_a_fault_at_any_file_operation_behind_the_commit(
    tmp_path: Path, how: str, code: int
) -> None:
    """The call is on record, so it is redone, or kept when only its undo state could not be removed."""
    operations = range(1, 5)
    runs = run_program(tmp_path, how, operations, TURNS="3")
    assert (runs[0][1], runs[-1][1]) == (code, 0)  # there are fewer operations than that
    for at in operations:
        check(tmp_path / str(at), 1, turns=3)
