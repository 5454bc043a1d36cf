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
    """The key was used with other params."""

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


def judge(state: State, expired: bool, same_params: bool, lease_left: float) -> Verdict:
    """What a row means for a new claim. `expired` is the effect's, `lease_left` the running call's.

    Only a remembered success can expire: what is started or unknown stays until somebody says how it ended.
    """
    if state == "succeeded" and expired:
        return "run"
    if not same_params:
        return "conflict"
    if state == "succeeded":
        return "replay"
    if state == "started":
        return "busy" if lease_left > 0 else "abandoned"
    return "doubt"


__all__ = ["ABANDONED", "Busy", "Claim", "Claimed", "Conflict", "Doubt", "Replay", "Verdict", "judge"]
