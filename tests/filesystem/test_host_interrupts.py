"""Ctrl-C at any moment of file operations by hand, outside of any run, where nothing defers it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SEED = int(os.environ.get("WINK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)

_STORM = """
import os, random, shutil, signal, sys, time
from pathlib import Path
from weakincentives.filesystem import HostFilesystem
from tests.filesystem.crash import vault_of

root, watch, count = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
chance = random.Random(int(sys.argv[4]))
armed = False

def interrupt(number, frame):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)

def reset():
    for name in ("new", "away", "f1", "f2"):
        shutil.rmtree(root / name, ignore_errors=True) if (root / name).is_dir() else None
    for number in range(4):
        (root / f"f{number}").write_text("0")

steps = [
    lambda: fs.write("f0", "x"),
    lambda: fs.write("new/deep/file", "y"),
    lambda: fs.move("f1", "away/far/f1"),
    lambda: fs.delete("f2"),
    lambda: fs.append("f3", "z"),
]

def content():
    return {str(path.relative_to(root)): path.is_file() and path.read_text() for path in root.rglob("*")}

def work():
    taken = fs.savepoint() if chance.random() < 0.7 else fs.snapshot()
    for step in steps:
        step()
    if chance.random() < 0.6:
        fs.restore(taken)
    fs.release(taken)

reset()
fs = HostFilesystem(root, watch=watch)
states = [content()]
for step in steps:
    step()
    states.append(content())
reset()
# How long the work took when it was last left alone: on a busy machine that changes all the time.
duration = 0.01
hits = number = 0
while hits < count:
    number += 1
    assert number < 50 * count, f"only {hits} of {number} interrupts came in time"
    began = time.perf_counter()
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, chance.random() * duration * 1.1 + 1e-6)
        work()
        armed = False
        duration = time.perf_counter() - began
    except KeyboardInterrupt:
        hits += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    fs.write("probe", "the object is usable")
    fs.delete("probe")
    assert content() in states, (number, content())
    left = [name for name in os.listdir(vault_of(root)) if name.startswith(("stage", "trash", "image"))]
    assert left == [], (number, left)
    assert fs._scope.disk._depth == 0, number
    if number % 10 == 0:
        with HostFilesystem(root) as other:
            other.write("probe", "the root is not locked")
            other.delete("probe")
    reset()
fs.close()
"""


def _storm(root: Path, watch: str, count: int, seed: int) -> None:
    """Interrupt the work until `count` interrupts came while it went on."""
    root.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _STORM, str(root), watch, str(count), str(seed)],
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert done.stderr == "", f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("watch", ["", "scan"], ids=["journal", "scan"])
def test_an_interrupt_by_hand_leaves_nothing_behind(tmp_path: Path, watch: str) -> None:
    """Each write happened or did not, no file is left over, no lock is held, and the object goes on working."""
    _storm(tmp_path / "root", watch, 100, SEED)


@pytest.mark.torture
@pytest.mark.parametrize("watch", ["", "scan"], ids=["journal", "scan"])
def test_thousands_of_interrupts_by_hand(tmp_path: Path, watch: str) -> None:
    """The same often enough to meet the rare moments."""
    for extra in range(2):
        (tmp_path / str(extra)).mkdir()
        _storm(tmp_path / str(extra) / "root", watch, 2000, SEED + extra)
