"""Interleaved timing: every round times each candidate once, so that a busy machine slows all of them alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter


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


def _batch(function: Callable[[], object], number: int) -> float:
    start = perf_counter()
    for _ in range(number):
        function()
    return (perf_counter() - start) / number


def _calibrate(function: Callable[[], object], target: float) -> int:
    number = 1
    while (spent := _batch(function, number) * number) < target / 2 and number < 10_000_000:
        number = max(number * 2, int(number * target / max(spent, 1e-9) / 2))
    return number


def interleave(*functions: Callable[[], object], rounds: int = 30, batch_seconds: float = 0.01) -> list[list[float]]:
    """Seconds a call of each function, one list of `rounds` samples a function."""
    numbers = [_calibrate(function, batch_seconds) for function in functions]
    samples: list[list[float]] = [[] for _ in functions]
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for index, function in enumerate(functions):
                samples[index].append(_batch(function, numbers[index]))
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
) -> Row:
    """How many times longer `subject` takes than `baseline`: the median of the rounds' ratios."""
    subjects, baselines = interleave(subject, baseline, rounds=rounds, batch_seconds=batch_seconds)
    value = statistics.median(s / b for s, b in zip(subjects, baselines, strict=True))
    each = f"{statistics.median(subjects) * 1e6:.2f} us against {statistics.median(baselines) * 1e6:.2f} us"
    return Row(name, value, budget, "x", f"{note}; {each}" if note else each)
