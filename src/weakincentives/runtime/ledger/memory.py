"""A ledger in memory: for one process, gone with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import final

from ...clock import SYSTEM_CLOCK, Clock
from ...interrupts import Lock, WeakTable
from ...session import Session
from ...session.savepoints import outermost
from .effects import EffectId, EffectState, LedgerEntry, StoredResult, ToolEffect, effective_ttl, storable_key
from .protocol import (
    ABANDONED,
    BaseLedger,
    Busy,
    Claim,
    Claimed,
    Conflict,
    Replay,
    UnknownOutcome,
    check_recordable,
    claim_from_row,
    is_same_tool,
    lease_lost,
    still_running,
)

_PRUNE_EVERY = 1024


@final
class EffectLedger(BaseLedger):
    """A `Ledger` in memory: thread-safe, shared by the runs it is passed to, forgotten when the process ends.

    >>> from weakincentives import ToolResult
    >>> ledger = EffectLedger()
    >>> effect = ledger.record(
    ...     idempotency_key="session:greet:1", tool_name="greet", params=None, result=ToolResult.ok("Hello.")
    ... )
    >>> ledger.lookup("session:greet:1").result_value
    'Hello.'
    """

    blocks = False
    former_keys = False

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = Lock()
        self._rows: dict[str, dict[str, _Row]] = {}  # by key, then by session
        self._token = 0

    def claim(self, effect_id: EffectId, tool_name: str, params_hash: str, lease: float, strict_params: bool) -> Claim:
        """As `Ledger.claim`."""
        with self._lock:
            rows = self._rows.get(effect_id.key)
            row = None if rows is None else rows.get(effect_id.session_id)
            if row is not None:
                expired = row.expires is not None and row.expires <= self._clock.time()
                left = row.lease_until - self._clock.monotonic() if row.state == "started" else 0.0
                same = is_same_tool(row.tool_name, tool_name) and (not strict_params or row.params_hash == params_hash)
                kind = claim_from_row(row.state, expired, same, left)
                if kind == "replay":
                    assert row.replay is not None
                    return row.replay
                if kind == "abandoned":
                    row.state, row.why = "unknown", ABANDONED
                if kind == "busy":
                    return Busy(left)
                if kind != "run":
                    entry = self._entry(effect_id, row)
                    return Conflict(entry) if kind == "conflict" else UnknownOutcome(entry)
            token = self._next_token()
            now = self._clock.monotonic()
            self._put(effect_id, _Row(tool_name, params_hash, "started", token, self._clock.time(), now + lease))
            if token % _PRUNE_EVERY == 0:
                self._drop(self._all(), self._has_expired)
            return Claimed(token)

    def take_over(self, effect_id: EffectId, token: int, lease: float) -> int | None:
        """As `Ledger.take_over`."""
        with self._lock:
            row = self._get(effect_id)
            if row is None or row.token != token or row.state != "unknown":
                return None
            row.state, row.token, row.why = "started", self._next_token(), ""
            row.lease_until = self._clock.monotonic() + lease
            return row.token

    def extend(self, effect_id: EffectId, token: int, lease: float) -> None:
        """As `Ledger.extend`."""
        with self._lock:
            row = self._held(effect_id, token)
            if row is None or row.state != "started":
                raise lease_lost(effect_id)
            row.lease_until = self._clock.monotonic() + lease

    def finish(self, effect_id: EffectId, token: int, result: StoredResult, ttl: timedelta | None) -> ToolEffect:
        """As `Ledger.finish`."""
        with self._lock:
            row = self._held(effect_id, token)
            if row is None:
                raise lease_lost(effect_id)
            if row.effect is None:
                self._succeed(effect_id, row, result, ttl)
            assert row.effect is not None
            return row.effect

    def forget(self, effect_id: EffectId, token: int) -> bool:
        """As `Ledger.forget`."""
        with self._lock:
            row = self._held(effect_id, token)
            if row is None or row.state == "succeeded":
                return False
            self._remove(effect_id)
            return True

    def doubt(self, effect_id: EffectId, token: int, why: str) -> bool:
        """As `Ledger.doubt`."""
        with self._lock:
            row = self._held(effect_id, token)
            if row is None or row.state == "succeeded":
                return False
            row.state, row.why = "unknown", why
            return True

    def find(self, effect_id: EffectId) -> LedgerEntry | None:
        """As `Ledger.find`."""
        with self._lock:
            row = self._get(effect_id)
            return None if row is None or self._has_expired(row) else self._entry(effect_id, row)

    def entries(self, state: EffectState | None = None) -> list[LedgerEntry]:
        """As `Ledger.entries`."""
        with self._lock:
            found = [self._entry(key, row) for key, row in self._all() if state in (None, row.state)]
        return sorted(found, key=lambda entry: entry.started_at)

    def _resolve(self, effect_id: EffectId, result: StoredResult | None, ttl: timedelta | None, *, force: bool) -> bool:
        with self._lock:
            row = self._get(effect_id)
            if row is None or row.state == "succeeded":
                return False
            if row.state == "started" and row.lease_until > self._clock.monotonic() and not force:
                raise still_running(self._entry(effect_id, row))
            if result is None:
                self._remove(effect_id)
            else:
                row.token = self._next_token()
                self._succeed(effect_id, row, result, ttl)
            return True

    def lookup(self, idempotency_key: str, session_id: str | None = None) -> ToolEffect | None:
        """As `Ledger.lookup`; an expired one is removed."""
        with self._lock:
            matching = self._matching(storable_key(idempotency_key), session_id)
            self._drop(matching, self._has_expired)
            found = [row.effect for _, row in matching if row.effect is not None and not self._has_expired(row)]
            return max(found, key=lambda effect: effect.created_at, default=None)

    def _record(
        self, effect_id: EffectId, tool_name: str, params_hash: str, result: StoredResult, ttl: timedelta | None
    ) -> ToolEffect:
        with self._lock:
            row = self._get(effect_id)
            if row is not None and not self._has_expired(row):
                check_recordable(self._entry(effect_id, row), tool_name)
            row = _Row(tool_name, params_hash, "started", self._next_token(), self._clock.time(), 0.0)
            self._put(effect_id, row)
            return self._succeed(effect_id, row, result, ttl)

    def invalidate(self, idempotency_key: str, session_id: str | None = None) -> bool:
        """As `Ledger.invalidate`."""
        with self._lock:
            return self._drop(self._matching(storable_key(idempotency_key), session_id)) > 0

    def invalidate_by_tool(self, tool_name: str) -> int:
        """As `Ledger.invalidate_by_tool`."""
        with self._lock:
            return self._drop(self._all(), lambda row: row.tool_name == tool_name)

    def clear(self) -> int:
        """As `Ledger.clear`."""
        with self._lock:
            return self._drop(self._all())

    def prune_expired(self) -> int:
        """As `Ledger.prune_expired`."""
        with self._lock:
            return self._drop(self._all(), self._has_expired)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    # Below, the lock is held.

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def _held(self, effect_id: EffectId, token: int) -> _Row | None:
        row = self._get(effect_id)
        return row if row is not None and row.token == token else None

    def _succeed(self, effect_id: EffectId, row: _Row, result: StoredResult, ttl: timedelta | None) -> ToolEffect:
        now = self._clock.now()
        ttl = effective_ttl(ttl)
        expires = None if ttl is None else now + ttl
        row.state, row.why = "succeeded", ""
        row.expires = None if expires is None else expires.timestamp()
        row.effect = ToolEffect(
            effect_id.key, row.tool_name, row.params_hash, result.message, result.data, True, now, expires,
            session_id=effect_id.session_id, stored=result,
        )  # fmt: skip
        row.replay = Replay(row.effect)
        return row.effect

    def _get(self, effect_id: EffectId) -> _Row | None:
        rows = self._rows.get(effect_id.key)
        return None if rows is None else rows.get(effect_id.session_id)

    def _put(self, effect_id: EffectId, row: _Row) -> None:
        self._rows.setdefault(effect_id.key, {})[effect_id.session_id] = row

    def _remove(self, effect_id: EffectId) -> None:
        rows = self._rows[effect_id.key]
        del rows[effect_id.session_id]
        if not rows:
            del self._rows[effect_id.key]

    def _all(self) -> list[tuple[EffectId, _Row]]:
        return [(EffectId(key, session), row) for key, rows in self._rows.items() for session, row in rows.items()]

    def _matching(self, key: str, session_id: str | None) -> list[tuple[EffectId, _Row]]:
        rows = self._rows.get(key, {})
        return [(EffectId(key, found), row) for found, row in rows.items() if session_id in (None, found)]

    def _has_expired(self, row: _Row) -> bool:
        return row.expires is not None and row.expires <= self._clock.time()

    def _drop(self, among: list[tuple[EffectId, _Row]], chosen: Callable[[_Row], bool] = lambda _: True) -> int:
        """Remove the chosen rows; only successes are ever removed."""
        dropped = [effect_id for effect_id, row in among if row.state == "succeeded" and chosen(row)]
        for effect_id in dropped:
            self._remove(effect_id)
        return len(dropped)

    def _entry(self, effect_id: EffectId, row: _Row) -> LedgerEntry:
        started = datetime.fromtimestamp(row.started, UTC)
        left = row.lease_until - self._clock.monotonic() if row.state == "started" else 0.0
        return LedgerEntry(
            effect_id, row.tool_name, row.params_hash, row.state, row.token, started, left, row.why, row.effect
        )


@dataclass(slots=True)
class _Row:
    tool_name: str
    params_hash: str
    state: EffectState
    token: int
    started: float
    lease_until: float
    expires: float | None = None
    why: str = ""
    effect: ToolEffect | None = None
    replay: Replay | None = None


# The ledger of runs that were given none.


logger: logging.Logger = logging.getLogger(__name__)

_lock = Lock()
_ledgers: WeakTable[Session, EffectLedger] = WeakTable()


def session_ledger(session: Session) -> EffectLedger:
    """The in-memory ledger that lives as long as the session; a warning is logged when it is made."""
    owner = outermost(session)
    with _lock:
        ledger = _ledgers.get(owner)
        if ledger is None:
            ledger = EffectLedger(clock=owner.clock)
            _ledgers.put(owner, ledger)
            logger.warning(
                "A tool with an IdempotencyConfig was called without an effect_ledger, so effects are remembered in "
                "memory, for this session alone. Pass effect_ledger=SqliteEffectLedger(path) to remember them."
            )
    return ledger
