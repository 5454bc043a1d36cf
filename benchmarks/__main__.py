"""Runs every `bench_*.py` beside this file, or those named; exits 1 when a budget is exceeded."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from .harness import Row


def main(names: list[str]) -> int:
    found = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in names if name not in found]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(found)}")
        return 2
    rows: list[Row] = []
    print(f"| {'what':<66} | {'measured':>10} | {'budget':>9} | within |")
    print(f"| {'-' * 66} | {'-' * 9}: | {'-' * 8}: | ------ |")
    for name in names or found:
        for row in import_module(f"benchmarks.bench_{name}").run():
            rows.append(row)
            print(
                f"| {row.name:<66} | {row.value:>7.2f} {row.unit:<2} | {row.budget:>6.1f} {row.unit:<2} "
                f"| {'yes' if row.within else 'NO':<6} |  {row.note}",
                flush=True,
            )
    over = [row.name for row in rows if not row.within]
    print(f"{len(rows) - len(over)} of {len(rows)} within budget")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
