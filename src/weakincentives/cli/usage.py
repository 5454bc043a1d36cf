"""How a command ends when it does not end well: one line or a few on standard error, no traceback.

What decides between the two: a `WrongUseError` says that the command line is to be changed. It names something that is
not there, cannot be loaded or does not fit. A `FailedError` says that what it asks for was tried and did not go well.
"""

from __future__ import annotations

from pathlib import Path


class WrongUseError(Exception):
    """The command cannot do what it was asked; the text says why and what to do. Ends `wink` with exit code 2."""


class FailedError(Exception):
    """The command did what it was asked, and it went wrong; the text says how. Ends `wink` with exit code 1."""


def existing_file(path: str | Path, option: str = "") -> Path:
    """The path of a file that a command line names; `WrongUseError` when there is none, or a directory."""
    if Path(path).is_dir():
        raise WrongUseError(f"{option}{path} is a directory; name a file")
    if not Path(path).exists():
        raise WrongUseError(f"{option}there is no file {path}")
    return Path(path)


def existing_directory(path: str | Path, option: str = "") -> Path:
    """The path of a directory that a command line names; `WrongUseError` when there is none, or a file."""
    if not Path(path).exists():
        raise WrongUseError(f"{option}there is no directory {path}")
    if not Path(path).is_dir():
        raise WrongUseError(f"{option}{path} is not a directory")
    return Path(path)


__all__ = ["FailedError", "WrongUseError", "existing_directory", "existing_file"]
