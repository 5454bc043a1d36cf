"""Where everything that `wink` prints goes through: credentials masked, hidden characters marked, nothing raised.

What commands print comes from models, tools, files and exceptions: none of it may act on the terminal, and none of it
may end the command because the terminal's encoding lacks a character.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO, cast, final

from ..masking import leaving, redact, visible, visible_line, writable


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


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Data as JSON: its texts are masked, and hidden characters are JSON's own escapes, which mean the same."""
    return visible(json.dumps(masked(data), ensure_ascii=False, indent=indent))


def masked(data: Any) -> Any:
    """JSON data with its texts masked, also those whose name alone says what they are."""
    if isinstance(data, str):
        return leaving(data)
    if isinstance(data, Mapping):
        members = cast("Mapping[Any, Any]", data)
        return {key: _member(str(key), value) for key, value in members.items()}
    if isinstance(data, list | tuple):
        return [masked(item) for item in cast("list[Any]", data)]
    return data


def _member(key: str, value: Any) -> Any:
    """A text under a name that says what it is, such as `password`, is masked as if name and text were one."""
    if not isinstance(value, str):
        return masked(value)
    pair = json.dumps({key: value}, ensure_ascii=False)
    hidden = redact(pair)
    if hidden == pair:
        return leaving(value)
    try:
        return next(iter(json.loads(hidden).values()))
    except (ValueError, AttributeError, StopIteration):
        return leaving(value)


@final
class LogFormatter(logging.Formatter):
    """Log lines with their tracebacks, as they may be shown on `stream`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return writable(shown(super().format(record)), self._stream)


class Subcommands(Protocol):
    """Where a command adds its parser; argparse has no public name for it."""

    def add_parser(self, name: str, **options: Any) -> Parser:
        """Add a command; `help` is the line that says what it does."""
        ...


class Parser(argparse.ArgumentParser):
    """A parser whose messages, which repeat what was typed, are shown like everything else."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.color = False  # from 3.14 on argparse colours its messages, and `shown` marks every escape sequence

    def add_commands(self, kind: str) -> Subcommands:
        """Subcommands, of which one is called a `kind`. Without any of them the command prints its help."""
        self.set_defaults(run=self._help)
        return self.add_subparsers(title=f"{kind}s", metavar=kind.upper(), dest=kind)

    def _help(self, _: argparse.Namespace) -> int:
        self.print_help()
        return 0

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = sys.stderr if file is None else file
        super()._print_message(writable(shown(message), stream), stream)


__all__ = [
    "LogFormatter",
    "Parser",
    "Subcommands",
    "json_text",
    "masked",
    "show",
    "show_answer",
    "show_error",
    "show_json",
    "shown",
    "shown_line",
]
