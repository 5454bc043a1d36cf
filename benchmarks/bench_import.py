"""Start-up: CPU time of fresh interpreters, interleaved, and their instructions where valgrind is installed."""

from __future__ import annotations

import re
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable

from .harness import Row

BASE = "from pydantic import TypeAdapter"
OURS = "import weakincentives; [getattr(weakincentives, n) for n in weakincentives.__all__]"
EXTRAS = ("openai", "litellm", "anthropic", "claude_agent_sdk", "mcp", "xllamacpp", "pydantic_monty", "asteval",
          "psycopg", "rich", "opentelemetry", "regex", "pathspec")  # fmt: skip


def _cpu(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _instructions(code: str) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-I", "-c", code]
    told = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
    found = re.search(r"Collected : (\d+)", told)
    assert found is not None, told
    return int(found[1])


def run() -> Iterable[Row]:
    for code in (BASE, OURS):
        _cpu(code)  # compile once
    pairs = [(_cpu("pass"), _cpu(BASE), _cpu("import weakincentives"), _cpu(OURS)) for _ in range(9)]
    bare, base, lazy, full = (statistics.median(sample) for sample in zip(*pairs, strict=True))
    note = f"{full * 1e3:.0f} ms against {base * 1e3:.0f} ms of CPU, a bare interpreter {bare * 1e3:.0f} ms"
    yield Row("import weakincentives, every name used / pydantic's TypeAdapter", full / base, 1.5, "x", note)
    if shutil.which("valgrind") is not None:
        ours, theirs = _instructions(OURS), _instructions(BASE)
        note = f"{ours / 1e6:.0f} against {theirs / 1e6:.0f} million"
        yield Row("the same in instructions", ours / theirs, 1.5, "x", note)
    yield Row("import weakincentives alone / pydantic's TypeAdapter", lazy / base, 1.5, "x")
    found = f"{OURS}; import sys; print(len([m for m in {EXTRAS!r} if m in sys.modules]))"
    loaded = subprocess.run([sys.executable, "-I", "-c", found], check=True, capture_output=True, text=True).stdout
    yield Row("extras imported with it", float(loaded), 0, "")
    helps = statistics.median(_cpu("from weakincentives.cli import main; main(['version'])") for _ in range(5))
    yield Row("wink version, CPU", helps, 0.3, "s")
