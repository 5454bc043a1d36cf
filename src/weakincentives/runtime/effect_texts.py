"""What a model reads of a call that the ledger does not let run, or whose outcome is not known."""

from __future__ import annotations

from ..errors import SchemaError
from ..prompt.idempotency import IdempotencyConfig
from .ledger.claims import is_same_tool
from .ledger.effect import LedgerEntry

INEXACT = "an earlier release recorded a call whose arguments it could not tell from these"


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


def no_key_text(name: str, error: SchemaError) -> str:
    """For params that no key can be made of."""
    return (
        f"'{name}' was not run, because its calls cannot be told apart: {error}\n"
        'Whoever made the tool should say what makes two calls the same: use key_fn, with strategy="custom".'
    )


def conflict_text(name: str, entry: LedgerEntry) -> str:
    """For a key that belongs to another call."""
    if not is_same_tool(entry.tool_name, name):
        return (
            f"The key '{entry.id.key[:200]}' was used before by '{entry.tool_name}', so '{name}' was not run.\n"
            "Use another key: one key is one call of one tool."
        )
    return (
        f"The key '{entry.id.key[:200]}' was used before with other arguments, so '{name}' was not run.\n"
        "Repeat the arguments of the first call to get its result, or use another key for something new."
    )


__all__ = ["INEXACT", "busy_text", "conflict_text", "ended_text", "no_key_text", "running_text", "unknown_text"]
