"""The default evaluator survives everything that tries to get out of it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from weakincentives.contrib.code import EvalBackend, EvalFiles, EvalLimits, EvalResult
from weakincentives.contrib.python import MontyBackend
from weakincentives.testing import EvalEscapes
from weakincentives.testing.code_escapes import ESCAPING_CODE

pytestmark = pytest.mark.slow  # many interpreters


class TestMonty(EvalEscapes):
    def make(self) -> EvalBackend:
        return MontyBackend()


def test_there_are_many_probes() -> None:
    """The suite has at least sixty probes of a dozen kinds."""
    assert len(ESCAPING_CODE) == 12
    assert sum(len(probes) for probes in ESCAPING_CODE.values()) >= 60


class Broken(EvalBackend):
    """Monty with a hole in it."""

    @property
    def guide(self) -> str:
        return "Anything goes."

    def __init__(self, hole: Callable[[str], EvalResult | None]) -> None:
        self._hole = hole
        self._sound = MontyBackend()

    def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
        return self._hole(code) or self._sound.evaluate(code, inputs, files, limits)

    def close(self) -> None:
        self._sound.close()


def leak(code: str) -> EvalResult | None:
    found = re.fullmatch(r"open\('(.*secret.txt)'\).read\(\)", code)
    return EvalResult(Path(found[1]).read_text()) if found else None


def plant(code: str) -> EvalResult | None:
    found = re.match(r"open\('(.*/planted)', 'w'\)", code)
    return EvalResult(Path(found[1]).write_text("planted")) if found else None


def connect(code: str) -> EvalResult | None:
    found = re.search(r"create_connection\(\('127.0.0.1', (\d+)", code)
    if found:
        socket.create_connection(("127.0.0.1", int(found[1]))).close()
    return EvalResult() if found else None


def hang(code: str) -> EvalResult | None:
    if "float('inf')" in code:
        time.sleep(2)
    return None


def overwrite(code: str) -> EvalResult | None:
    return EvalResult(written={"given.txt": b"changed"}) if "may only be read" in code else None


def crash(code: str) -> EvalResult | None:
    if "SystemExit" in code:
        raise RuntimeError("broken")
    return None


@pytest.mark.parametrize(
    ("hole", "kind", "complaint"),
    [
        (leak, "files", "a secret got out of"),
        (plant, "files", "files were planted by"),
        (overwrite, "files", "may only be read was changed"),
        (connect, "network", "a connection was made by"),
        (hang, "sleeps", "did not end within"),
        (crash, "environment", "crashed"),
    ],
)
def test_the_suite_finds_holes(hole: Callable[[str], EvalResult | None], kind: str, complaint: str) -> None:
    """A backend with a hole fails the suite, with a message that names it."""

    class Suite(EvalEscapes):
        patience = 0.8 if hole is hang else 5.0

        def make(self) -> EvalBackend:
            return Broken(hole)

    suite = Suite()
    suite.setup_method()
    try:
        with pytest.raises(AssertionError, match=complaint):
            getattr(suite, f"test_{kind}")()
    finally:
        suite.teardown_method()
