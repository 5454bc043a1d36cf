"""What a claim may find, and the one rule that all ledgers judge by."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .effect import LedgerEntry, State, ToolEffect


class Claimed(NamedTuple):
    """The call is the caller's: run it, then record with this token."""

    token: int


class Replay(NamedTuple):
    """It happened before: answer with this."""

    effect: ToolEffect


class Conflict(NamedTuple):
    """The key was used by another tool, or with other params."""

    entry: LedgerEntry


class Busy(NamedTuple):
    """Somebody else is at it; at the latest when the lease runs out something changes."""

    lease_left: float


class Doubt(NamedTuple):
    """Whether it happened is not known."""

    entry: LedgerEntry


Claim = Claimed | Replay | Conflict | Busy | Doubt

Verdict = Literal["run", "replay", "conflict", "busy", "doubt", "abandoned"]

ABANDONED = "the process that ran it ended or was paused for longer than its lease"


def is_same_tool(of_row: str, tool_name: str) -> bool:
    """Whether a row is the tool's; one without a name, recorded by hand, is any tool's."""
    return of_row in ("", tool_name)


def judge(state: State, expired: bool, same_call: bool, lease_left: float) -> Verdict:
    """What a row means for a new claim. `expired` is the effect's, `lease_left` the running call's.

    `same_call`: it is the same tool and, where that matters, it has the same params.

    Only a remembered success can expire: what is started or unknown stays until somebody says how it ended.
    """
    if state == "succeeded" and expired:
        return "run"
    if not same_call:
        return "conflict"
    if state == "succeeded":
        return "replay"
    if state == "started":
        return "busy" if lease_left > 0 else "abandoned"
    return "doubt"


__all__ = ["ABANDONED", "Busy", "Claim", "Claimed", "Conflict", "Doubt", "Replay", "Verdict", "is_same_tool", "judge"]
