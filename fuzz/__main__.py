"""Run targets, one after the other: with atheris where it is installed, else with hypothesis.

    python -m fuzz [TARGET ...] [--seconds 600] [--engine atheris|hypothesis] [--input FILE]

An input that fails is kept in `fuzz/found`, and `--input` runs it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, STDOUT
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

FOUND = Path(__file__).parent / "found"


def main() -> int:
    """Each target is a process of its own; 1 when one has failed."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Look for inputs that do what is not documented."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (default: 600)")
    parser.add_argument("--engine", choices=["atheris", "hypothesis"])
    parser.add_argument("--input", type=Path, help="run the one target on this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    engine = options.engine or ("atheris" if find_spec("atheris") else "hypothesis")
    if options.here and engine == "atheris":
        return _atheris(options.targets[0], options.seconds)
    from .targets import TARGETS  # noqa: PLC0415 - atheris instruments what is imported after it

    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if options.input:
        TARGETS[options.targets[0]](options.input.read_bytes())
        return 0
    if options.here:
        return run_hypothesis(options.targets[0], options.seconds)
    failed = [name for name in options.targets or TARGETS if _process(name, engine, options.seconds)]
    print(f"failed: {', '.join(failed)}; see {FOUND}" if failed else "nothing was found")
    return 1 if failed else 0


def _process(name: str, engine: str, seconds: int) -> int:
    print(f"{name}: {seconds} s with {engine}", flush=True)
    command = [sys.executable, "-m", "fuzz", name, "--here", "--engine", engine, "--seconds", str(seconds)]
    with TemporaryDirectory(prefix="wink-fuzz-") as folder:
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, env=environment, stdout=PIPE, stderr=STDOUT, text=True, errors="replace", check=False
        )
    lines = done.stdout.splitlines()
    print("\n".join(f"  {line}" for line in (lines[-60:] if done.returncode else lines[-1:])), flush=True)
    return done.returncode


def _atheris(name: str, seconds: int) -> int:
    atheris: Any = import_module("atheris")  # by name: it is there only where it has a wheel

    with atheris.instrument_imports(include=["weakincentives", "fuzz"]):
        from .targets import TARGETS  # noqa: PLC0415 - see above

    FOUND.mkdir(exist_ok=True)
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=512", "-print_final_stats=0"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={FOUND}/{name}-"], TARGETS[name])
    atheris.Fuzz()
    return 0


def run_hypothesis(name: str, seconds: int) -> int:
    """Try inputs for some seconds; what a target raises is raised, and its input kept."""
    from hypothesis import HealthCheck, given, settings  # noqa: PLC0415 - not needed with atheris
    from hypothesis import strategies as st  # noqa: PLC0415

    from .targets import TARGETS  # noqa: PLC0415 - with atheris it comes later

    until, count, last = monotonic() + seconds, 0, b""

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.binary(max_size=512))
    def attempt(data: bytes) -> None:
        nonlocal count, last
        count, last = count + 1, data
        if monotonic() < until:
            TARGETS[name](data)

    try:
        while monotonic() < until:
            attempt()
    except BaseException:
        FOUND.mkdir(exist_ok=True)
        with suppress(OSError):
            (FOUND / f"{name}-hypothesis").write_bytes(last)
        raise
    print(f"{count:,} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
