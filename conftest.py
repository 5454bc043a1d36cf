"""Runs the code in README, docs and docstrings as tests."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

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
