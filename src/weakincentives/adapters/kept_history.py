"""The conversation up to an exception, so that it can be continued after one."""

from __future__ import annotations

from .transcript import History

_ATTRIBUTE = "wink_history"


def remember(error: BaseException, history: History) -> None:
    """Keep the conversation with the exception that ended it; an inner evaluation's is not overwritten."""
    error.__dict__.setdefault(_ATTRIBUTE, history)


def history_of(error: BaseException) -> History | None:
    """The conversation that ended with this exception, every call answered; None when there was none.

    Works for whatever `evaluate` raised, `KeyboardInterrupt` and cancellation included.
    """
    found = error.__dict__.get(_ATTRIBUTE)
    return found if isinstance(found, History) else None


__all__ = ["history_of", "remember"]
