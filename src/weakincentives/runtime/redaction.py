"""The text of exceptions for the log, the model and operators, with credentials masked."""

from __future__ import annotations

import traceback

from ..errors import ToolError, VisibilityExpansionRequired
from ..masking import redact, visible
from ..prompt.events import RecordedError, text_of

MAX_TRACE_CHARS = 16 * 1024
"""How much of a formatted traceback the log keeps: the beginning and, most of it, the end."""

_MAX_PART_CHARS = 64 * 1024
"""What is read of an exception's text: some carry a whole file."""
_MAX_ENDED_CHARS = 2_000
_MAX_FRAMES = 50
_KEPT_HEAD = 4 * 1024


def recorded(error: BaseException) -> RecordedError:
    """What the log keeps of an exception: type, text and, unless the failure was expected, its masked trace.

    Never raises, whatever the exception's class does.
    """
    expected = isinstance(error, ToolError | VisibilityExpansionRequired)
    return RecordedError.of(error, "" if expected else _trace(error))


def ended_text(error: BaseException) -> str:
    """What the answers to open calls say of the exception that ended their evaluation: masked, and not much of it."""
    return (
        f"The evaluation ended: {redact(text_of(error)[:_MAX_PART_CHARS])[:_MAX_ENDED_CHARS] or type(error).__name__}"
    )


def _trace(error: BaseException) -> str:
    try:
        parts = traceback.format_exception(error, limit=-_MAX_FRAMES)
    except Exception:  # noqa: BLE001 - the exception's class, or one of its causes, is a user's code
        parts = traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES)
    # Masked before it is shortened: a cut might take the part away by which a credential is recognised.
    text = "".join(part[:_MAX_PART_CHARS] for part in parts)
    if len(text) > _MAX_PART_CHARS:
        # From a line's beginning on: there is no name without its value, and no value without its name.
        text = text[:_KEPT_HEAD] + text[text.find("\n", len(text) - _MAX_PART_CHARS) :]
    text = redact(text)
    text = visible(text)
    if len(text) <= MAX_TRACE_CHARS:
        return text
    left_out = "\n[...]\n"
    return text[:_KEPT_HEAD] + left_out + text[_KEPT_HEAD + len(left_out) - MAX_TRACE_CHARS :]


def described(error: BaseException) -> str:
    """An exception for operators: its class and what it says, with credentials masked."""
    text = text_of(error)[:_MAX_PART_CHARS]
    return visible(redact(f"{type(error).__name__}: {text}" if text else type(error).__name__))


__all__ = ["MAX_TRACE_CHARS", "described", "ended_text", "recorded", "redact", "text_of"]
