"""Interleaved timing: every round times each candidate once, so that a busy machine slows all of them alike.

What is timed is CPU time, of all threads of this process: others who use the machine do not add to it. Where the work
is to wait for a disk or another process, CPU time would miss it; there `ELAPSED` is the clock, in batches so long that
a pause of the scheduler is a small part of them.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time

Clock = Callable[[], float]
CPU: Clock = process_time
ELAPSED: Clock = perf_counter
SHORTEST_ELAPSED = 0.1
"""Seconds that a batch takes at least where time itself is measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured budget. `value` and `budget` share the unit; `x` is a ratio. `note` says against what."""

    name: str
    value: float
    budget: float
    unit: str = "x"
    note: str = ""

    @property
    def within(self) -> bool:
        return self.value <= self.budget


def _batch(function: Callable[[], object], number: int, clock: Clock) -> float:
    start = clock()
    for _ in range(number):
        function()
    return (clock() - start) / number


def _calibrate(function: Callable[[], object], target: float, clock: Clock) -> int:
    number = 1
    while (spent := _batch(function, number, clock) * number) < target / 2 and number < 10_000_000:
        number = max(number * 2, int(number * target / max(spent, 1e-9) / 2))
    return number


def interleave(
    *functions: Callable[[], object], rounds: int = 30, batch_seconds: float = 0.01, clock: Clock = CPU
) -> list[list[float]]:
    """Seconds per call of each function, one list of `rounds` samples for each."""
    if clock is ELAPSED:
        batch_seconds = max(batch_seconds, SHORTEST_ELAPSED)
    numbers = [_calibrate(function, batch_seconds, clock) for function in functions]
    samples: list[list[float]] = [[] for _ in functions]
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for index, function in enumerate(functions):
                samples[index].append(_batch(function, numbers[index], clock))
    finally:
        gc.enable()
    return samples


def ratio(
    name: str,
    subject: Callable[[], object],
    baseline: Callable[[], object],
    budget: float,
    *,
    note: str = "",
    rounds: int = 30,
    batch_seconds: float = 0.01,
    clock: Clock = CPU,
) -> Row:
    """How many times longer `subject` takes than `baseline`: the median of the rounds' ratios."""
    subjects, baselines = interleave(subject, baseline, rounds=rounds, batch_seconds=batch_seconds, clock=clock)
    value = statistics.median(s / b for s, b in zip(subjects, baselines, strict=True))
    unit = "us" if clock is ELAPSED else "us CPU"
    each = f"{statistics.median(subjects) * 1e6:.2f} {unit} against {statistics.median(baselines) * 1e6:.2f}"
    return Row(name, value, budget, "x", f"{note}; {each}" if note else each)
