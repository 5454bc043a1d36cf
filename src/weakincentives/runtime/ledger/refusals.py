"""The errors that all ledgers raise alike."""

from __future__ import annotations

from ...errors import LeaseLostError, LedgerError
from .effect import EffectId, LedgerEntry


def lease_lost(effect_id: EffectId) -> LeaseLostError:
    """For a token that is not the row's any more."""
    return LeaseLostError(
        f"The call {effect_id.text} is somebody else's now: its lease ran out and it was taken over or settled. "
        "Call context.beat() more often, or give the tool a longer IdempotencyConfig(lease=...)."
    )


def still_running(entry: LedgerEntry) -> LedgerError:
    """For settling a call that may yet end by itself."""
    return LedgerError(
        f"The call {entry.id.text} may still be running: its lease lasts for {entry.lease_left:.0f} s. "
        "Wait until then, or force it if you are sure that its process is gone."
    )


def in_the_way(entry: LedgerEntry) -> LedgerError:
    """For recording over a call that has not ended."""
    return LedgerError(
        f"The call {entry.id.text} is {entry.state}, so nothing can be recorded for it. Settle it with resolve()."
    )


def of_another_tool(entry: LedgerEntry, tool_name: str) -> LedgerError:
    """For recording over the effect of another tool."""
    return LedgerError(
        f"The call {entry.id.text} is recorded for the tool {entry.tool_name}, so it cannot be recorded for "
        f"{tool_name}. Use another key, or invalidate() the first one."
    )


__all__ = ["in_the_way", "lease_lost", "of_another_tool", "still_running"]
