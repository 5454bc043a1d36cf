"""Runs the code in README, docs and docstrings as tests, which can be interrupted and keep out of the user's state."""

import gc
import os
import signal
from collections.abc import Generator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser


def _examples() -> list[str]:
    """The modules that have examples: to parse all of them would take each worker a second."""
    root = Path(__file__).parent
    files = (root / "src").rglob("*.py")
    return [file.relative_to(root).as_posix() for file in files if ">>>" in file.read_text()] or ["none"]


pytest_collect_file = (
    Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"])
    + Sybil(
        parsers=[DocTestParser(ELLIPSIS | NORMALIZE_WHITESPACE)],
        patterns=_examples(),
    )
).pytest()


_state = TemporaryDirectory(prefix="wink-state-")


def pytest_configure() -> None:
    """Undo journals go to a temporary directory, and Ctrl-C works; in examples and subprocesses as well.

    A process that was started in the background (`nohup`, `&`, some CI runners) ignores SIGINT, Python then installs no
    handler, and its children inherit that. A handler, unlike ignoring, is not inherited: they start with Python's own.
    """
    os.environ["XDG_STATE_HOME"] = _state.name
    _let_ctrl_c_through()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and modules live as long as the run: the collector looks at them neither now nor in a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """No test finds the handler that another one left behind."""
    _let_ctrl_c_through()


def _let_ctrl_c_through() -> None:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Remove it."""
    _state.cleanup()
