"""The suite notices every seeded fault of the engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import EQUIVALENT, MUTANTS

import weakincentives

SOURCE = Path(weakincentives.__file__).parent
ROOT = Path(__file__).parents[2]
SUITE = [
    "tests/scenarios/test_dispatch.py",
    "tests/runtime/test_transactions.py",
    "tests/runtime/test_tracker.py",
    "tests/runtime/test_cuts.py",
    "tests/guarantees/test_g1_one_answer.py",
    "tests/guarantees/test_g10_bounded.py",
    "tests/guarantees/test_g7_closed.py",
    "tests/guarantees/test_g9_ordered.py",
    "tests/guarantees/test_g2_all_or_nothing.py",
]
"""What is run on each mutant, the quickest to notice first."""


def run(package: Path, home: Path, suite: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The suite on one copy of the package, up to the first failure."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-m", "not torture", "-p", "no:cacheprovider", "--tb", "no",
        "--timeout", "20", "--timeout-method", "thread", *suite,
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


def copied(home: Path) -> Path:
    package = home / "src" / "weakincentives"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def noticed(mutant: Mutant, home: Path) -> bool:
    """Whether the suite fails on a copy with this fault; a run that hangs has noticed it too."""
    package = copied(home)
    target = package / mutant.file
    target.write_text(target.read_text().replace(mutant.old, mutant.new))
    try:
        done = run(package, home, mutant.by or SUITE)
    except subprocess.TimeoutExpired:
        return True
    finally:
        shutil.rmtree(home)
    return done.returncode != 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant: Mutant) -> None:
    """Each fault can be seeded: its text occurs exactly once, and what becomes of it is Python."""
    text = (SOURCE / mutant.file).read_text()
    assert text.count(mutant.old) == 1, "Adapt the mutant to what the file says now."
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_mutants_are_many_and_named_once() -> None:
    """There are at least 25 faults, each with a name of its own; equivalent ones have a reason."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 25
    assert set(EQUIVALENT) <= set(names)
    assert all(EQUIVALENT.values())


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_every_mutant_is_noticed(tmp_path: Path) -> None:
    """The suite passes on the engine as it is, and fails on every copy with a fault in it."""
    (tmp_path / "sound").mkdir()
    for suite in dict.fromkeys([tuple(SUITE), *(mutant.by for mutant in MUTANTS if mutant.by)]):
        sound = run(SOURCE, tmp_path / "sound", suite)
        assert sound.returncode == 0, sound.stdout[-3000:]
    chosen = [mutant for mutant in MUTANTS if mutant.name not in EQUIVALENT]

    def check(numbered: tuple[int, Mutant]) -> str | None:
        number, mutant = numbered
        home = tmp_path / str(number)
        home.mkdir()
        return None if noticed(mutant, home) else mutant.name

    with ThreadPoolExecutor(2) as workers:
        survivors = [name for name in workers.map(check, enumerate(chosen)) if name is not None]
    assert survivors == []
