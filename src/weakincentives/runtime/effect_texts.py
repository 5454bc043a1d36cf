"""What a model reads of a call that the ledger does not let run, or whose outcome is not known."""

from __future__ import annotations

from ..prompt.idempotency import IdempotencyConfig
from .ledger.effect import LedgerEntry


def unknown_text(name: str, why: str, config: IdempotencyConfig) -> str:
    """For a call that may have happened."""
    said = f"The outcome of '{name}' is unknown" + (f": {why.rstrip('.')}." if why else ".")
    if config.reconcile is not None:
        return f"{said}\nIt may have happened. Call it again with the same arguments to have that looked up first."
    return (
        f"{said}\nIt may have happened, so do not repeat it. Check first, with another tool or by asking a person, "
        "and go on from what you find."
    )


def running_text(name: str) -> str:
    """For a call whose handler was given up on and has not ended yet."""
    return (
        f"The outcome of '{name}' is unknown: it is still running in this process.\n"
        "It may yet happen, so do not repeat it in another way. Call it again later with the same arguments to get its "
        "result."
    )


def ended_text(name: str) -> str:
    """For a call whose handler succeeded after the call was given up on."""
    return (
        f"'{name}' ended just after that, and its effect happened.\n"
        "Call it again with the same arguments to get its result."
    )


def busy_text(name: str) -> str:
    """For a call that another process or thread is running."""
    return (
        f"The same call of '{name}' is still running elsewhere, so it was not started again.\n"
        "Its outcome is not known yet. Call it again later with the same arguments to get its result."
    )


def conflict_text(name: str, entry: LedgerEntry) -> str:
    """For a key that belongs to another call."""
    return (
        f"The key '{entry.id.key[:200]}' was used before with other arguments, so '{name}' was not run.\n"
        "Repeat the arguments of the first call to get its result, or use another key for something new."
    )


__all__ = ["busy_text", "conflict_text", "ended_text", "running_text", "unknown_text"]
