"""A power cut at any moment loses no claim: what was said to be claimed is on the disk."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weakincentives.runtime.ledger import SqliteEffectLedger

from ..conftest import needs
from .powercut import CALLS, moments

pytestmark = pytest.mark.slow  # strace

PROGRAM = Path(__file__).with_name("powercut.py")


def lost(tmp_path: Path, *, count: int, cuts: int, synchronous: str = "FULL") -> tuple[int, list[str]]:
    """Trace the program, cut the power at every moment; how many cuts there were, and what each one lost."""
    needs("strace", present=shutil.which("strace") is not None, install="apt-get install strace")
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    strace = ["strace", "-f", "-qq", "-xx", "-s", "100000", "-e", f"trace={CALLS}", "-o", str(trace)]
    program = [sys.executable, str(PROGRAM), str(home / "ledger.db"), str(count), synchronous]
    done = subprocess.run([*strace, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shared = Path("/dev/shm")  # many images are opened: no need to wait for a real disk with each
    images = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    try:
        return _examined(trace, home, images, count, cuts)
    finally:
        shutil.rmtree(images)


def _examined(trace: Path, home: Path, images: Path, count: int, cuts: int) -> tuple[int, list[str]]:
    rng, problems, number = random.Random(count), list[str](), 0
    states: dict[str, set[str]] = {}
    for said, disk in moments(trace, home):
        event, key = said.split()
        states[f"k{key}"] = {"started", "succeeded"} if event == "claimed" else {"succeeded"}
        for _ in range(cuts):
            number += 1
            after = images / f"after{number}"
            after.mkdir()
            for name, content in disk.images(rng).items():
                (after / Path(name).name).write_bytes(content)
            with SqliteEffectLedger(after / "ledger.db") as ledger:
                found = {entry.id.key: entry.state for entry in ledger.entries()}
            problems += [f"{said}: {name}" for name, allowed in states.items() if found.get(name) not in allowed]
            shutil.rmtree(after)
    assert len(states) == count
    return number, problems


def test_no_claim_is_lost(tmp_path: Path) -> None:
    """At every moment after a claim or a record was said to be done, whatever the disk kept of the rest."""
    cuts, problems = lost(tmp_path, count=12, cuts=6)
    assert cuts == 144
    assert problems == []


def test_the_simulation_finds_lost_claims(tmp_path: Path) -> None:
    """With a weaker setting of SQLite claims are lost: the proof can fail."""
    _, problems = lost(tmp_path, count=6, cuts=2, synchronous="NORMAL")
    assert problems


@pytest.mark.torture
def test_no_claim_is_lost_over_checkpoints(tmp_path: Path) -> None:
    """Long enough for the log to be written back into the file, twice."""
    cuts, problems = lost(tmp_path, count=1200, cuts=2)
    assert cuts == 4800
    assert problems == []
