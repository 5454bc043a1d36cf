"""The contract of a ledger, written once; `weakincentives.testing.LedgerContract` checks it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from ...errors import LeaseLostError, LedgerError
from ...prompt.idempotency import params_hash
from ...results import ToolResult
from .effects import EffectId, EffectState, LedgerEntry, StoredResult, ToolEffect, storable_key, store_result

# What a claim may find, and the one rule by which all ledgers decide it.


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
    """Another caller holds the claim; at the latest when its lease runs out something changes."""

    lease_left: float


class UnknownOutcome(NamedTuple):
    """The outcome is unknown: the call may have happened or not."""

    entry: LedgerEntry


Claim = Claimed | Replay | Conflict | Busy | UnknownOutcome

ClaimKind = Literal["run", "replay", "conflict", "busy", "unknown", "abandoned"]
"""run: the call may be claimed; abandoned: the row has to be marked unknown first; others are answers to a claim."""

ABANDONED = "the process that ran it ended or was paused for longer than its lease"


def is_same_tool(of_row: str, tool_name: str) -> bool:
    """Whether a row belongs to the tool; a row without a name, recorded by hand, belongs to every tool."""
    return of_row in ("", tool_name)


def claim_from_row(state: EffectState, expired: bool, same_call: bool, lease_left: float) -> ClaimKind:
    """Which claim a row gives. `expired` is the effect's, `lease_left` the running call's.

    `same_call`: it is the same tool and, where that matters, it has the same params.

    Only a remembered success can expire: what is started or unknown stays until it is said how it ended.
    """
    if state == "succeeded" and expired:
        return "run"
    if not same_call:
        return "conflict"
    if state == "succeeded":
        return "replay"
    if state == "started":
        return "busy" if lease_left > 0 else "abandoned"
    return "unknown"


DEFAULT_TTL = timedelta(hours=24)


@runtime_checkable
class Ledger(Protocol):
    """Remembers which effects happened, so that none happens twice. Safe to use from any thread.

    A call is claimed before its handler runs and ended after it, by the holder of the row's newest token:

        nothing --claim--> started --finish--> succeeded --expiry--> nothing
                              |--forget--> nothing
                              `--doubt, or the lease runs out--> unknown --resolve, take_over--> ...

    Every method that changes something has changed it for good when it returns, as far as the implementation lasts at
    all. `LedgerError` says that the ledger cannot be used, and what to do; then nothing was claimed.
    """

    @property
    def blocks(self) -> bool:
        """Whether its methods wait for a disk or a server, so that async code calls them in a thread."""
        ...

    @property
    def former_keys(self) -> bool:
        """Whether it may hold rows of an earlier release, whose keys were made of serialised params.

        Then calls are looked up under such keys too. False for a ledger that was created by this release.
        """
        ...

    # The life of one call, used by the engine.

    def claim(self, effect_id: EffectId, tool_name: str, params_hash: str, lease: float, strict_params: bool) -> Claim:
        """Claim the call for `lease` seconds, or return why it cannot be claimed.

        A started row whose lease has run out becomes unknown. A row of another tool is a `Conflict` (one without a
        name belongs to every tool), with `strict_params` one with other params as well.
        """
        ...

    def take_over(self, effect_id: EffectId, token: int, lease: float) -> int | None:
        """Take a call that is in doubt, to find out or to try again: a new token, which revokes the old one.

        None when it is no longer in doubt under that token: another caller was faster.
        """
        ...

    def extend(self, effect_id: EffectId, token: int, lease: float) -> None:
        """Renew the lease; `LeaseLostError` when the row is not started under this token any more."""
        ...

    def finish(self, effect_id: EffectId, token: int, result: StoredResult, ttl: timedelta | None) -> ToolEffect:
        """Record that it happened; `LeaseLostError` unless the row is still this token's.

        A row that became unknown meanwhile still is, as long as it was not taken over: its holder knows the outcome.
        Finishing twice with one token is the same as once.
        """
        ...

    def forget(self, effect_id: EffectId, token: int) -> bool:
        """Say that nothing happened, so that it may be tried again; False when the row is not this token's."""
        ...

    def doubt(self, effect_id: EffectId, token: int, why: str) -> bool:
        """Say that it may have happened; False when the row is not this token's."""
        ...

    # Reading, which claims and changes nothing.

    def find(self, effect_id: EffectId) -> LedgerEntry | None:
        """What is known of one call, at this moment; None when nothing is, or a success that has expired.

        A started row whose lease has run out (`lease_left` is zero or less) is shown as it is: it counts as unknown.
        """
        ...

    # For operators.

    def entries(self, state: EffectState | None = None) -> list[LedgerEntry]:
        """All rows, oldest first."""
        ...

    def resolve(
        self,
        effect_id: EffectId,
        result: ToolResult[Any] | None,
        *,
        ttl: timedelta | None = DEFAULT_TTL,
        force: bool = False,
    ) -> bool:
        """Settle a call in doubt: it happened and gave this result, or (None) it did not happen and may be tried again.

        False when there is nothing to settle: no such row, or one that succeeded. `LedgerError` for a call whose
        lease is still running, unless forced.
        """
        ...

    # Remembered successes. None of these touches a call that is started or in doubt.

    def lookup(self, idempotency_key: str, session_id: str | None = None) -> ToolEffect | None:
        """The effect of a key, or None when there is none or it has expired; without a session, the newest of any."""
        ...

    def record(
        self,
        *,
        idempotency_key: str,
        tool_name: str,
        params: object,
        result: ToolResult[Any],
        ttl: timedelta | None = DEFAULT_TTL,
        session_id: str = "",
    ) -> ToolEffect | None:
        """Remember a success that did not pass through the engine. A failed result is not recorded: None.

        Replaces what is remembered; `LedgerError` when the call is started or in doubt, which `resolve` settles, or
        when the key is another tool's.
        """
        ...

    def invalidate(self, idempotency_key: str, session_id: str | None = None) -> bool:
        """Forget the effect of a key, in one session or all; whether there was one."""
        ...

    def invalidate_by_tool(self, tool_name: str) -> int:
        """Forget all effects of a tool; how many there were."""
        ...

    def clear(self) -> int:
        """Forget all effects; how many there were."""
        ...

    def prune_expired(self) -> int:
        """Drop the effects that have expired; how many there were."""
        ...

    def close(self) -> None:
        """Release files and connections; closing twice does nothing."""
        ...


class BaseLedger(ABC):
    """What all ledgers do alike: what comes from users becomes text before anything is locked."""

    def record(
        self,
        *,
        idempotency_key: str,
        tool_name: str,
        params: object,
        result: ToolResult[Any],
        ttl: timedelta | None = DEFAULT_TTL,
        session_id: str = "",
    ) -> ToolEffect | None:
        """As `Ledger.record`."""
        if not result.success:
            return None
        effect_id = EffectId(storable_key(idempotency_key), session_id)
        return self._record(effect_id, tool_name, params_hash(params), store_result(result, None), ttl)

    def resolve(
        self,
        effect_id: EffectId,
        result: ToolResult[Any] | None,
        *,
        ttl: timedelta | None = DEFAULT_TTL,
        force: bool = False,
    ) -> bool:
        """As `Ledger.resolve`."""
        stored = None if result is None else store_result(result, None)
        return self._resolve(effect_id, stored, ttl, force=force)

    @abstractmethod
    def _record(
        self, effect_id: EffectId, tool_name: str, params_hash: str, result: StoredResult, ttl: timedelta | None
    ) -> ToolEffect: ...

    @abstractmethod
    def _resolve(
        self, effect_id: EffectId, result: StoredResult | None, ttl: timedelta | None, *, force: bool
    ) -> bool: ...


# The errors that all ledgers raise alike.


def lease_lost(effect_id: EffectId) -> LeaseLostError:
    """For a token that is not the row's any more."""
    return LeaseLostError(
        f"The call {effect_id.text} belongs to another process now: its lease ran out, and it was taken over or "
        "settled. Call context.beat() more often, or give the tool a longer IdempotencyConfig(lease=...)."
    )


def still_running(entry: LedgerEntry) -> LedgerError:
    """For settling a call that may yet end by itself."""
    return LedgerError(
        f"The call {entry.id.text} may still be running: its lease lasts for {entry.lease_left:.0f} s. "
        "Wait until then, or force it if you are sure that its process is gone."
    )


def check_recordable(entry: LedgerEntry, tool_name: str) -> None:
    """`LedgerError` when nothing may be recorded over this: a call that has not ended, the effect of another tool."""
    if entry.state != "succeeded":
        raise LedgerError(
            f"The call {entry.id.text} is {entry.state}, so nothing can be recorded for it. Settle it with resolve()."
        )
    if not is_same_tool(entry.tool_name, tool_name):
        raise LedgerError(
            f"The call {entry.id.text} is recorded for the tool {entry.tool_name}, so it cannot be recorded for "
            f"{tool_name}. Use another key, or invalidate() the first one."
        )
