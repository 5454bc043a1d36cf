"""The suite notices every seeded fault of the engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.mutants.mutant import SOURCE, Mutant, run_tests, seeded
from tests.mutants.mutants import EQUIVALENT, MUTANTS

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

_HALVES = {"": slice(None), "1/2": slice(0, None, 2), "2/2": slice(1, None, 2)}
_HALF = os.environ.get("WINK_MUTANTS", "")
"""`WINK_MUTANTS=1/2` takes the first, third, fifth fault and so on, `WINK_MUTANTS=2/2` the others; unset, all."""
if _HALF not in _HALVES:
    raise ValueError(f'WINK_MUTANTS is "1/2" or "2/2", or unset for all faults, not {_HALF!r}.')
_SEEDED = [mutant for mutant in MUTANTS if mutant.name not in EQUIVALENT]
_SUITES = list(dict.fromkeys(mutant.by or tuple(SUITE) for mutant in _SEEDED))

_OPTIONS = ("--tb", "no", "--timeout", "60", "--timeout-method", "thread")


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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", _SUITES[_HALVES[_HALF]], ids=lambda suite: suite[0])
def test_the_suite_passes_without_a_fault(suite: tuple[str, ...], tmp_path: Path) -> None:
    """What is run on the mutants passes on the engine as it is."""
    sound = run_tests(SOURCE, tmp_path, suite, *_OPTIONS)
    assert sound.returncode == 0, sound.stdout[-3000:]


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", _SEEDED[_HALVES[_HALF]], ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    """The suite fails on a copy of the engine with the fault; a run that hangs has noticed it too."""
    package = seeded(tmp_path, mutant.file, mutant.old, mutant.new)
    try:
        done = run_tests(package, tmp_path, mutant.by or SUITE, *_OPTIONS)
    except subprocess.TimeoutExpired:
        return
    assert done.returncode == 1, f"not noticed\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
