"""Runs every `bench_*.py` beside this file, or those named; exits 1 when a budget is exceeded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from .harness import Row

WIDTH = 78


def report(rows: Iterable[Row], say: Callable[[str], None]) -> int:
    """Says each row as soon as it is measured, then what is over its budget; 1 when anything is, otherwise 0."""
    say(f"| {'what':<{WIDTH}} | {'measured':>12} | {'budget':>12} | within |")
    say(f"| {'-' * WIDTH} | {'-' * 11}: | {'-' * 11}: | ------ |")
    seen: list[Row] = []
    for row in rows:
        seen.append(row)
        within = "yes" if row.within else "NO"
        say(
            f"| {row.name:<{WIDTH}} | {row.value:>9,.2f} {row.unit:<2} | {row.budget:>9,.2f} {row.unit:<2} "
            f"| {within:<6} |  {row.note}"
        )
    over = [row for row in seen if not row.within]
    say(f"{len(seen) - len(over)} of {len(seen)} within budget")
    for row in over:
        say(f"Over its budget: {row.name}: {row.value:.2f} {row.unit}, allowed are {row.budget:.2f} {row.unit}")
    return 1 if over else 0


def main(names: list[str]) -> int:
    found = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in names if name not in found]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(found)}")
        return 2
    rows = (row for name in names or found for row in import_module(f"benchmarks.bench_{name}").run())
    return report(rows, lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
