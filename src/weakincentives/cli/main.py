"""Parses the line and runs the command."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from .output import FailedError, LogFormatter, UsageError, json_text, show, show_error
from .parser import build_parser

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `wink` command; the exit code is 0 for success, 1 for failure, 2 for wrong use.

    A command that is only a name for others, as `wink` itself, prints its help.
    """
    arguments = build_parser().parse_args(argv)
    with _logs(verbose=getattr(arguments, "verbose", False)), _warnings(as_json=getattr(arguments, "json", False)):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        return arguments.run(arguments)
    except UsageError as error:
        show_error(f"{_typed(arguments)}: {error}")
        return 2
    except FailedError as error:
        show_error(f"{_typed(arguments)}: {error}")
        return 1
    except KeyboardInterrupt:
        show_error("wink: interrupted")
        return 130
    except BrokenPipeError:  # the reader went away, as `wink ... | head` does
        sys.stderr.close()
        return 0
    except OSError as error:  # a name that is too long, a folder that must not be read
        _log.debug("The command failed", exc_info=True)
        show_error(f"{_typed(arguments)}: {error}")
        return 1
    except Exception:  # noqa: BLE001 - a mistake of ours, or of code that was loaded: also its traceback is masked
        show_error(traceback.format_exc())
        return 1


def _typed(arguments: argparse.Namespace) -> str:
    """The command as it was typed, without its arguments."""
    return " ".join(["wink", arguments.command, *filter(None, [getattr(arguments, "action", None)])])


@contextmanager
def _logs(*, verbose: bool) -> Generator[None]:
    """What a command shows, it shows itself; logs, with tracebacks, are for those who ask for them."""
    ours = logging.getLogger("weakincentives")
    level = ours.level
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(LogFormatter(handler.stream))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        ours.setLevel(logging.DEBUG)
    else:
        ours.addHandler(logging.NullHandler())
    try:
        yield
    finally:
        ours.setLevel(level)


@contextmanager
def _warnings(*, as_json: bool) -> Generator[None]:
    """Warnings, which may quote what users and models wrote, are shown like everything else."""

    def show_warning(message: Warning | str, *_: object) -> None:
        if as_json:
            show(json_text({"kind": "warning", "text": str(message)}), to=sys.stderr)
        else:
            show_error(f"wink: warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        yield
