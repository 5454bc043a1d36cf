"""How a command ends when it does not end well: one line or a few on standard error, no traceback.

What decides between the two: a `WrongUseError` says that the command line is to be changed. It names something that is
not there, cannot be loaded or does not fit. A `FailedError` says that what it asks for was tried and did not go well.
"""

from __future__ import annotations


class WrongUseError(Exception):
    """The command cannot do what it was asked; the text says why and what to do. Ends `wink` with exit code 2."""


class FailedError(Exception):
    """The command did what it was asked, and it went wrong; the text says how. Ends `wink` with exit code 1."""


__all__ = ["FailedError", "WrongUseError"]
