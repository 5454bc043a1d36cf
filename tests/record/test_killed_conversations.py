"""Conversations whose process was killed at any moment: nothing asked twice, no effect twice, state and files right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from weakincentives.runtime import SqliteRunStore

PROGRAM = Path(__file__).with_name("conversation_program.py")
REPOSITORY = Path(__file__).parents[2]
WRITES = 55
"""Of the undisturbed conversation; see `test_a_conversation_goes_on_after_a_fault_at_any_write`."""


def run_program(here: Path, how: str, numbers: Iterable[int]) -> list[list[int]]:
    """What the program says of each number, after that number."""
    environment = {"XDG_STATE_HOME": str(here / "xdg"), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), how, *map(str, numbers)], cwd=here, capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [list(map(int, line.split())) for line in done.stdout.splitlines() if not line.startswith("warm")]
    assert [one[0] for one in said] == list(numbers)
    assert not any(one[-1] for one in said), f"{said}\n{done.stderr}"
    return said


def result(here: Path) -> Any:
    return json.loads((here / "result.json").read_text())


def check(here: Path, interrupts: int) -> None:
    """It is what an undisturbed one would be, but for what is told to be unknown."""
    made, wanted = result(here), result(here.parent / "warm")
    told = [line.split() for line in (here / "told.txt").read_text().splitlines()]
    for kind in ("paid", "mailed"):
        names = [name for what, name in told if what == kind]
        assert len(set(names)) == len(names)
    asked = [name for kind, name in told if kind == "asked"]
    assert len(asked) <= len(set(asked)) + interrupts
    assert len(set(asked)) == 10  # each of five messages is asked about twice
    for name in ("said", "counts", "added", "files", "folders", "unanswered"):
        assert made[name] == wanted[name], name
    assert [event[:2] for event in made["events"]] == [event[:2] for event in wanted["events"]]
    for _, tool, outcome in made["events"]:
        assert outcome in {"succeeded", "replayed", "unknown"} if tool in {"pay", "mail"} else outcome == "succeeded"
    with SqliteRunStore(here / "runs.db") as store:
        assert not store.verify()
        run = store.open("chat")
        said = [step.body["text"] for step in run.steps() if step.kind == "turn"]
        assert len(said) == len(set(said)) == 10
        kept = run.files_at(run.steps()[-1].seq)
        assert {name: kept.read(name) for name in made["files"]} == made["files"]
        assert run.info.status == "paused"


@pytest.mark.slow  # starts dozens of processes
def test_a_killed_conversation_goes_on(tmp_path: Path) -> None:
    """At any moment: in a call, in an undo, between two messages."""
    runs = run_program(tmp_path, "kill", range(4))
    for seed, kills, _ in runs:
        check(tmp_path / str(seed), kills)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(int(os.environ.get("WINK_KILLED_RUNS", "200")) // 25))
def test_many_killed_conversations_go_on(tmp_path: Path, part: int) -> None:
    """200, or as many as WINK_KILLED_RUNS says."""
    runs = run_program(tmp_path, "kill", range(1000 + 25 * part, 1025 + 25 * part))
    for seed, kills, _ in runs:
        check(tmp_path / str(seed), kills)


@pytest.mark.slow  # starts dozens of processes
@pytest.mark.parametrize(("how", "code"), [("after", 9), ("fail", 3)])
def test_a_conversation_goes_on_after_a_fault_at_any_write(tmp_path: Path, how: str, code: int) -> None:
    """The process ends after the write, which is before the next one; or the record cannot be written."""
    runs = run_program(tmp_path, how, range(1, WRITES + 2))
    assert [first for _, first, _ in runs] == [*[code] * WRITES, 0]
    for at in range(1, WRITES + 1):
        check(tmp_path / str(at), 1)


@pytest.mark.slow  # starts dozens of processes
@pytest.mark.parametrize(("how", "code"), [("file-exit", 9), ("file-fail", 3)])
def test_an_undo_is_finished_after_a_fault_at_any_file(tmp_path: Path, how: str, code: int) -> None:
    """It is on record, so the next process brings the files to where it ends."""
    runs = run_program(tmp_path, how, range(1, 9))
    assert runs[0][1] == code
    for at, _, _ in runs:
        check(tmp_path / str(at), 1)
