"""An evaluation in the calculator's worker, against the fork of a process that this must take."""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Iterable

from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.code import EvalFiles, EvalLimits

from .harness import ELAPSED, Row, interleave


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def run() -> Iterable[Row]:
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
    backend = AstevalBackend()
    files, limits = EvalFiles(), EvalLimits()

    def evaluate() -> None:
        assert backend.evaluate("sum(prices) * 2", {"prices": [1, 2, 3]}, files, limits).value == 12

    evaluated, forked = interleave(evaluate, fork, rounds=20, clock=ELAPSED)  # in other processes
    note = f"in {backend.confinement}; os.fork and waitpid alone: {statistics.median(forked) * 1e3:.2f} ms"
    yield Row("an evaluation in asteval's worker, warm", statistics.median(evaluated) * 1e3, 5.0, "ms", note)
    backend.close()
