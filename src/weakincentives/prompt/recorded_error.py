"""An exception as the log keeps it: text alone, so that a crashed call keeps none of its objects alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from ..masking import MAX_LEAVING_CHARS, redact, visible

MAX_ERROR_CHARS = 8 * 1024
"""How much of an exception's text the log keeps: some exceptions carry a whole file."""


@final
@dataclass(frozen=True, slots=True)
class RecordedError:
    """What is kept of an exception once its call is over. It holds no exception, no traceback and no frame.

    Attributes:
        type_name: the class of the exception, with its module unless it is built in.
        text: what the exception said with credentials masked and hidden characters marked, cut when it is very long.
        trace: the formatted traceback, masked, marked and cut likewise. Empty for expected failures
            (`ToolError`) and for exceptions that were never raised.

    >>> str(RecordedError.of(LookupError("no such order")))
    'no such order'
    """

    type_name: str
    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException, trace: str = "") -> RecordedError:
        """The record of an exception; `trace` is for whoever formatted it while the exception was there."""
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return cls(f"{module}{kind.__qualname__}", masked_text(error)[:MAX_ERROR_CHARS], trace)

    def __str__(self) -> str:
        return self.text


def text_of(value: object) -> str:
    """What an exception says, or another object of a user's class; nothing when that fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - its class is somebody else's code
        return ""


def masked_text(error: BaseException) -> str:
    """What an exception says, with credentials masked and hidden characters marked: it is read in terminals.

    Masked before it is shortened, since a cut may hide what a credential is recognised by.
    """
    return visible(redact(text_of(error)[:MAX_LEAVING_CHARS]))


__all__ = ["MAX_ERROR_CHARS", "RecordedError", "masked_text", "text_of"]
