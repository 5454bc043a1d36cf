"""Runs the code in README, docs and docstrings as tests; and keeps all tests out of the user's own state."""

import os
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from tempfile import TemporaryDirectory

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

pytest_collect_file = (
    Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "docs/*.md"])
    + Sybil(
        parsers=[DocTestParser(ELLIPSIS | NORMALIZE_WHITESPACE)],
        patterns=["src/*/*.py", "src/*/*/*.py", "src/*/*/*/*.py", "src/*/*/*/*/*.py"],
    )
).pytest()


_state = TemporaryDirectory(prefix="wink-state-")


def pytest_configure() -> None:
    """Undo journals go to a temporary directory, in examples and subprocesses as well."""
    os.environ["XDG_STATE_HOME"] = _state.name


def pytest_unconfigure() -> None:
    """Remove it."""
    _state.cleanup()
