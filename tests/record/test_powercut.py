"""A power cut at any moment loses no step that the run went on from, and leaves a record that a run goes on from."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weakincentives.errors import RecordError
from weakincentives.runtime import SqliteRunStore

from ..conftest import needs
from ..ledger.powercut import CALLS, Disk, moments
from .powercut_program import Model, Number, run

pytestmark = pytest.mark.slow  # strace

ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.record.powercut_program import main; main()"  # not as `__main__`: its classes are on record


def lost(
    tmp_path: Path, *, turns: int, cuts: int, synchronous: str = "FULL", resumed: float = 1.0
) -> tuple[int, list[str]]:
    """Trace the run, cut the power at every moment; how many cuts there were, and what was wrong after each.

    The run goes on after that share of the cuts.
    """
    needs("strace", present=shutil.which("strace") is not None, install="apt-get install strace")
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    strace = ["strace", "-f", "-qq", "-xx", "-s", "100000", "-e", f"trace={CALLS}", "-o", str(trace)]
    program = [sys.executable, "-c", PROGRAM, str(home / "runs.db"), str(turns), synchronous]
    done = subprocess.run([*strace, *program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shared = Path("/dev/shm")  # many images are opened: no need to wait for a real disk with each
    images = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    rng, problems, number = random.Random(turns), list[str](), 0
    try:
        for said, disk in moments(trace, home):
            for _ in range(cuts):
                number += 1
                after = images / f"after{number}"
                after.mkdir()
                problems += [f"{said}: {problem}" for problem in _wrong(after, disk, rng, int(said.split()[1]))]
                if rng.random() < resumed and not problems:
                    problems += [f"{said}, going on: {problem}" for problem in _differs(after, turns)]
                shutil.rmtree(after)
    finally:
        shutil.rmtree(images)
    return number, problems


def _wrong(after: Path, disk: Disk, rng: random.Random, seq: int) -> list[str]:
    for name, content in disk.images(rng).items():
        (after / Path(name).name).write_bytes(content)
        (after / Path(name).name).chmod(0o600)
    with SqliteRunStore(after / "runs.db", durable=False) as store:
        try:
            found = [step.seq for step in store.steps("r")]
            problems = list(store.verify())
        except RecordError as error:
            return [str(error)]
        if found[:seq] != list(range(1, seq + 1)):
            problems.append(f"steps {found}")
    return problems


def _differs(after: Path, turns: int) -> list[str]:
    problems: list[str] = []
    with SqliteRunStore(after / "runs.db", durable=False) as store:
        kinds = [step.kind for step in store.steps("r")]
        model = Model(turns)
        response, session, fs = run(store, model)
        if kinds[-1] != "end" and model.asked != list(range(kinds.count("turn"), turns + 1)):
            problems.append(f"asked {model.asked}")
        if response.text != "Done." or list(session[Number].all()) != [Number(n) for n in range(turns)]:
            problems.append("it ended differently")
        if [len(fs.read(f"{n}.txt")) for n in range(turns)] != [100 * n for n in range(turns)]:
            problems.append("its files differ")
    return problems


def test_no_step_is_lost(tmp_path: Path) -> None:
    """At every moment after a step was written, whatever the disk kept of the rest; and the run goes on from there."""
    cuts, problems = lost(tmp_path, turns=5, cuts=4)
    assert problems == []
    assert cuts == 4 * (1 + 1 + 5 * 2 + 2)  # begin, prompt; each turn and its call; the last turn, the end


def test_the_simulation_finds_lost_steps(tmp_path: Path) -> None:
    """A store that does not wait for the disk loses the last ones: the proof can fail."""
    _, problems = lost(tmp_path, turns=3, cuts=3, synchronous="NORMAL")
    assert problems


@pytest.mark.torture
def test_no_step_is_lost_over_checkpoints(tmp_path: Path) -> None:
    """Long enough for the log to be written back into the file."""
    _, problems = lost(tmp_path, turns=200, cuts=1, resumed=0.05)
    assert problems == []
