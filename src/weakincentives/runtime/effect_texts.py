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


def conflict_text(name: str, entry: LedgerEntry) -> str:
    """For a key that belongs to another call."""
    return (
        f"The key '{entry.id.key[:200]}' was used before with other arguments, so '{name}' was not run.\n"
        "Repeat the arguments of the first call to get its result, or use another key for something new."
    )


__all__ = ["conflict_text", "unknown_text"]
