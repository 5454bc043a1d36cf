"""Instructions instead of time: the same on a busy machine, and nearly the same on another one.

Counted by valgrind, where it is installed, as multiples of the same work written by hand in the same process;
elsewhere the same rows are ratios of CPU time. `instructions.json` keeps what was counted last. `README.md` beside this
file says how far the figures move, and so why the limits are what they are.

`python -m benchmarks.bench_instructions` writes the file: do so on purpose, and say why in the commit.
`python -m benchmarks.bench_instructions check` is what CI runs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .harness import Row

KEPT = Path(__file__).with_name("instructions.json")
SAME_BUILD = 1.03
"""What a row may grow by, where Python and pydantic are those that the kept figures were counted with."""
OTHER_BUILD = 1.25
"""And where they are not, in `make bench`. How far rows move there was not measured, so `check` does not fail there."""
CPU_TIME = 1.6
"""And where CPU time takes the place of instructions."""
OUT_OF_DATE = 0.9
"""Below that, the kept figure is so high that a row could grow back unnoticed."""
OPTIONS = {"--enable-optimizations", "--with-lto", "--with-lto=full", "--with-lto=thin", "--enable-shared",
           "--with-pydebug", "--disable-gil"}  # fmt: skip
"""What Python may have been configured with that changes how many instructions it needs."""

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Kept:
    """What was counted last, as multiples of the floor, and with which build of what."""

    build: Mapping[str, str]
    rows: Figures


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was counted now against what is kept: names of rows, each with a sentence about it."""

    grown: Mapping[str, str]
    shrunk: Mapping[str, str]
    unknown: Mapping[str, str]


def this_build() -> dict[str, str]:
    """All that decides which instructions run, apart from our own code."""
    from pydantic import VERSION

    words = shlex.split(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": platform.python_compiler(),
        "options": " ".join(sorted(set(words) & OPTIONS)),
        "machine": platform.machine(),
        "pydantic": VERSION,
    }


def read(text: str) -> Kept:
    data = json.loads(text)
    return Kept(data["build"], data["multiples of the floor"])


def write(kept: Kept) -> str:
    return json.dumps({"build": dict(kept.build), "multiples of the floor": dict(kept.rows)}, indent=2) + "\n"


def allowed_growth(kept: Kept, build: Mapping[str, str]) -> float:
    return SAME_BUILD if kept.build == build else OTHER_BUILD


def compare(kept: Figures, counted: Figures, allowed: float) -> Comparison:
    """Which rows grew beyond what is `allowed`, which shrank so far that the kept figure is out of date, and which one
    side lacks."""
    grown: dict[str, str] = {}
    shrunk: dict[str, str] = {}
    for name in kept.keys() & counted.keys():
        before, now = kept[name], counted[name]
        change = f"{name}: {now:.3f} x the floor, kept is {before:.3f} x ({now / before - 1:+.1%})"
        if now > before * allowed:
            grown[name] = change
        elif now < before * OUT_OF_DATE:
            shrunk[name] = change
    unknown = {name: f"{name}: counted, but not in the kept file" for name in counted.keys() - kept.keys()}
    unknown |= {name: f"{name}: in the kept file, but not counted" for name in kept.keys() - counted.keys()}
    return Comparison(grown, shrunk, unknown)


def count() -> dict[str, float]:
    """Each scenario as a multiple of the floor, counted in the same process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out",
            "--zero-before=getsid", "--dump-before=getpgid",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        worker = subprocess.run(
            [*command, sys.executable, "-m", "benchmarks.instructions"],
            env=environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        if worker.returncode:
            raise RuntimeError(f"The scenarios could not be counted: {worker.stderr[-2000:]}")
        counted: dict[str, float] = {}
        for number, line in enumerate(worker.stdout.splitlines()):
            name, rounds = line.split("\t")
            once, thrice = (_total(Path(folder, f"out.{2 * number + part}")) for part in (1, 2))
            counted[name] = (thrice - once) / (2 * int(rounds))
    floor = counted.pop("floor")
    return {name: round(instructions / floor, 3) for name, instructions in counted.items()}


def _total(dump: Path) -> int:
    found = re.search(r"^summary: (\d+)", dump.read_text(), re.MULTILINE)
    assert found is not None, dump
    return int(found[1])


def check(kept: Kept, counting: Callable[[], Figures], say: Callable[[str], None]) -> int:
    """0 when no row grew, 1 otherwise; on another build than the kept one always 0, since its figures are its own.

    A row that grew is counted a second time before it is believed: a row with threads in it varies, and an accident
    must not stop a change that has nothing to do with it. What shrank, or is missing on one side, is only reported.
    """
    allowed = allowed_growth(kept, this_build())
    same = kept.build == this_build()
    if not same:
        say("Another build of Python or pydantic than the kept figures are from: rows that grew are only reported.")
    counted = counting()
    found = compare(kept.rows, counted, allowed)
    if found.grown and same:
        say(f"{len(found.grown)} rows grew; counting again.")
        again = compare(kept.rows, counting(), allowed).grown
        found = Comparison({name: again[name] for name in found.grown if name in again}, found.shrunk, found.unknown)
    for line in (*found.shrunk.values(), *found.unknown.values()):
        say(f"The kept file is out of date. {line}")
    for line in found.grown.values():
        say(f"More instructions than are kept. {line}")
    say(
        f"{len(counted) - len(found.grown)} of {len(counted)} rows need no more than {allowed - 1:.0%} beyond the kept."
    )
    if found.grown or found.shrunk or found.unknown:
        say("To keep the new figures, on purpose: python -m benchmarks.bench_instructions")
    return 1 if found.grown and same else 0


def run() -> Iterable[Row]:
    kept = read(KEPT.read_text())
    if shutil.which("valgrind") is None:
        yield from _by_cpu_time(kept)
        return
    allowed = allowed_growth(kept, this_build())
    for name, multiple in count().items():
        before = kept.rows.get(name)
        note = "not in the kept file" if before is None else f"kept: {before}"
        if before is not None and multiple < before * OUT_OF_DATE:
            note += ", out of date"
        limit = multiple if before is None else round(before * allowed, 3)
        yield Row(f"instructions of {name} / the floor", multiple, limit, "x", note)


def _by_cpu_time(kept: Kept) -> Iterable[Row]:
    from .harness import ratio
    from .instructions import TEXTS, by_hand, scenarios

    print("valgrind is not installed: CPU time instead of instructions")
    for name, one, _ in scenarios():
        if name in kept.rows:
            limit = round(kept.rows[name] * CPU_TIME, 3)
            yield ratio(f"CPU time of {name} / the floor", lambda one=one: one(0), lambda: by_hand(TEXTS[0]), limit)


def main(words: list[str]) -> int:
    if words not in ([], ["check"]):
        print("python -m benchmarks.bench_instructions [check]")
        return 2
    if shutil.which("valgrind") is None:
        print("valgrind is not installed, so instructions cannot be counted")
        return 2
    if words == ["check"]:
        return check(read(KEPT.read_text()), count, print)
    KEPT.write_text(write(Kept(this_build(), count())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
