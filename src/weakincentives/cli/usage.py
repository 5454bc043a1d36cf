"""What is told when a command is used wrongly: one line or a few, no traceback."""

from __future__ import annotations


class WrongUseError(Exception):
    """The command cannot do what it was asked; the text says why and what to do. Ends `wink` with exit code 2."""


__all__ = ["WrongUseError"]
