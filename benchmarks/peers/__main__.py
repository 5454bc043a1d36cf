"""Installs each framework in an environment of its own, lets all do the same work, prints one table.

`python -m benchmarks.peers` measures all, `python -m benchmarks.peers agno langgraph` some. What is in the results is
also written to `build/peers/results.json`; `python -m benchmarks.peers keep` copies it to `results.json` beside this
file, puts the table into `benchmarks/README.md` and draws `docs/images/peers.svg`. Progress goes to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from .plot import draw
from .table import Cell, Results, table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
RESULTS = BUILD / "results.json"
KEPT = HERE / "results.json"
PAGE = HERE.parent / "README.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
PLOT = ROOT / "docs" / "images" / "peers.svg"
MEASURES = ("sync", "async", "turns-10", "turns-100", "turns-1000", "memory", "together")
CPU_LIMIT = 60
"""Seconds of CPU for one measurement. What needs more did not finish."""
ELAPSED_LIMIT = 900
"""A second limit, for what waits instead of working, and for a machine too busy to tell."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Each measurement starts an interpreter: it must not compile all that it imports."""


def versions() -> dict[str, str]:
    """File of each framework, and what to install for it."""
    lines = (HERE / "versions.txt").read_text().splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: requirement for name, _, requirement in pairs}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def install(name: str, requirement: str) -> Path | str:
    """The interpreter of the framework's environment, or why there is none."""
    folder = BUILD / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == requirement:
        return python
    progress(f"{name}: installing {requirement}")
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return "could not be installed"
    stamp.write_text(requirement)
    return python


def used_cpu(process: int) -> float:
    """CPU seconds that a process has used so far. Not RLIMIT_CPU: with it, Linux gives a process coarse CPU times."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(python: Path | str, name: str, what: str) -> Cell:
    """A number, or a word on why there is none."""
    command = [str(python), "-m", "benchmarks.peers.measure", name, what]
    began = monotonic()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT) as child,
    ):
        while True:
            try:
                code = child.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                over = f"> {CPU_LIMIT} s CPU" if used_cpu(child.pid) > CPU_LIMIT else ""
                if over or monotonic() - began > ELAPSED_LIMIT:
                    child.kill()
                    return over or "not measured"
        output.seek(0)
        said = output.read()
    if code:
        progress(said[-1000:])
        return "recursion limit" if "maximum recursion depth" in said else "failed"
    answer = said.splitlines()[-1]
    try:
        return float(answer)
    except ValueError:
        return answer


def starting(python: Path | str, module: str) -> float:
    """CPU seconds of an interpreter that imports this and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(python), "-c", f"import {module}"]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imports(pythons: Mapping[str, Path | str]) -> dict[str, float]:
    """What each framework's file imports, as a multiple of what WINK's does; interleaved, without the interpreter."""
    samples: dict[str, list[float]] = {name: [] for name in pythons}
    for round_number in range(5):
        progress(f"import time: round {round_number + 1} of 5")
        for name, python in pythons.items():
            spent = starting(python, f"benchmarks.peers.{name}") - starting(python, "benchmarks.peers.work")
            if round_number:  # the first compiles
                samples[name].append(spent)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return {name: median / medians["wink"] for name, median in medians.items()}


def run(chosen: list[str], say: Callable[[str], None]) -> Results:
    results: Results = {}
    pythons: dict[str, Path | str] = {"wink": sys.executable}
    wanted = {name: requirement for name, requirement in versions().items() if not chosen or name in chosen}
    for name, requirement in wanted.items():
        python = install(name, requirement)
        if isinstance(python, Path):
            pythons[name] = python
        else:
            results[requirement] = dict.fromkeys((*MEASURES, "import"), python)
    for number, (name, python) in enumerate(pythons.items(), 1):
        cells: dict[str, Cell] = {}
        for what in MEASURES:
            say(f"[{number}/{len(pythons)}] {name}: {what}")
            cells[what] = measured(python, name, what)
        results[wanted.get(name, "WINK")] = cells
    for name, multiple in imports(pythons).items():
        results[wanted.get(name, "WINK")]["import"] = multiple
    return results


def main(words: list[str]) -> int:
    if words == ["keep"]:
        shutil.copyfile(RESULTS, KEPT)
        results = json.loads(KEPT.read_text())
        PLOT.write_text(draw(results))
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
        return 0
    unknown = [word for word in words if word not in versions()]
    if unknown:
        print(f"no framework named {', '.join(unknown)}; there are: {', '.join(versions())}")
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    results = run(words, progress)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
