"""The command line: CPU time of fresh processes, best of a few, since they have a machine to share."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterable

from .harness import Row


def _cpu(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "from weakincentives.cli import main; raise SystemExit(main())"
    subprocess.run([sys.executable, "-I", "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> Iterable[Row]:
    yield Row("wink --help, CPU", min(_cpu("--help") for _ in range(5)), 0.3, "s")
    yield Row("wink demo, CPU, the project's own test runs included", min(_cpu("demo") for _ in range(3)), 3.0, "s")
