"""Where everything that `wink` prints goes through: credentials masked, hidden characters marked, nothing raised.

What commands print comes from models, tools, files and exceptions: none of it may act on the terminal, and none of it
may end the command because the terminal's encoding lacks a character.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any, TextIO, final

from ..masking import leaving, leaving_data, redact, visible, visible_line, writable


def shown(text: str) -> str:
    """Text of any origin as it may be shown: very long text is cut, credentials are masked, the rest is visible."""
    return visible(leaving(text))


def shown_line(text: str) -> str:
    """`shown` for what must stay on one line, such as the name of a file."""
    return visible_line(leaving(text))


def show(text: str = "", *, end: str = "\n", to: TextIO | None = None) -> None:
    """Print text of any origin. Raises `BrokenPipeError`, as `print` does, and nothing else."""
    stream = sys.stdout if to is None else to
    print(writable(shown(text), stream), end=end, file=stream, flush=True)


def show_error(text: str) -> None:
    """Print to standard error."""
    show(text, to=sys.stderr)


def show_answer(text: str) -> None:
    """Print what a run was for: masked, but whole; marked only on a terminal, since a pipe takes it as data."""
    text = redact(text)
    print(writable(visible(text) if sys.stdout.isatty() else text, sys.stdout), flush=True)


def show_json(data: Any, *, indent: int | None = None) -> None:
    """Print JSON data; its texts are cut one by one, so that what is printed is whole."""
    print(writable(json_text(data, indent=indent), sys.stdout), flush=True)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Data as JSON: its texts are masked, and hidden characters are JSON's own escapes, which mean the same."""
    return visible(json.dumps(leaving_data(data), ensure_ascii=False, indent=indent))


@final
class LogFormatter(logging.Formatter):
    """Log lines with their tracebacks, as they may be shown on `stream`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return writable(shown(super().format(record)), self._stream)


# How a command ends when it does not end well: one line or a few on standard error, no traceback.
#
# What decides between the two: a `UsageError` says that the command line is to be changed. It names something that is
# not there, cannot be loaded or does not fit. A `FailedError` says that what it asks for was tried and did not go well.


class UsageError(Exception):
    """The command cannot do what it was asked; the text says why and what to do. Ends `wink` with exit code 2."""


class FailedError(Exception):
    """The command did what it was asked, and it went wrong; the text says how. Ends `wink` with exit code 1."""


def existing_file(path: str | Path, option: str = "") -> Path:
    """The path of a file that a command line names; `UsageError` when there is none, or a directory."""
    if Path(path).is_dir():
        raise UsageError(f"{option}{path} is a directory; name a file")
    if not Path(path).exists():
        raise UsageError(f"{option}there is no file {path}")
    return Path(path)


def existing_directory(path: str | Path, option: str = "") -> Path:
    """The path of a directory that a command line names; `UsageError` when there is none, or a file."""
    if not Path(path).exists():
        raise UsageError(f"{option}there is no directory {path}")
    if not Path(path).is_dir():
        raise UsageError(f"{option}{path} is not a directory")
    return Path(path)
