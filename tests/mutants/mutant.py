"""What a seeded fault is, and how tests are run on a copy of the package that has it."""

from __future__ import annotations

import atexit
import compileall
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import weakincentives

SOURCE = Path(weakincentives.__file__).parent
ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which occurs exactly once) becomes `new`.

    `by` names the tests that notice it, if those are not in the common suite.
    """

    name: str
    file: str
    old: str
    new: str
    by: tuple[str, ...] = ()


@cache
def _compiled() -> Path:
    """A copy of the package with its bytecode: compiling it for every fault would take longer than most tests do."""
    home = mkdtemp(prefix="wink-mutants-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    package = Path(home) / "weakincentives"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(package, quiet=2)
    return package


def seeded(home: Path, file: str, old: str, new: str) -> Path:
    """A copy of the package below `home` with one fault, at the first place where `old` occurs."""
    package = home / "src" / "weakincentives"
    shutil.copytree(_compiled(), package)
    target = package / file
    target.write_text(target.read_text().replace(old, new, 1))
    return package


def run_tests(package: Path, home: Path, suite: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    """The tests on one copy of the package, up to the first failure; raises `TimeoutExpired` after four minutes.

    Processes that the fault has left behind end with them.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-m", "not torture", "-p", "no:cacheprovider", *options, *suite
    ]  # fmt: skip
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as tests:
        try:
            output, errors = tests.communicate(timeout=240)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(tests.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, tests.returncode, output, errors)


__all__ = ["ROOT", "SOURCE", "Mutant", "run_tests", "seeded"]
