"""What a ledger holds of a call: its id, its state, and the effect once there is one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

from .values import NOTHING, StoredResult

State = Literal["started", "succeeded", "unknown"]
"""started: somebody holds the call, until its lease runs out; succeeded: the effect happened, and this is its result;
unknown: whether it happened is not known, so that nobody repeats it."""

MAX_KEY = 512
"""Longer keys are hashed: databases index only so much."""


MAX_TTL = timedelta(days=365_000)
"""What is remembered for longer is remembered for ever: calendars end in the year 9999."""


def lasting(ttl: timedelta | None) -> timedelta | None:
    """How long to remember a success; None for ever."""
    return None if ttl is None or ttl > MAX_TTL else ttl


class EffectId(NamedTuple):
    """Which call: the key as `IdempotencyConfig` makes it, and the session that a session-scoped key belongs to."""

    key: str
    session_id: str = ""

    @property
    def text(self) -> str:
        """Key and session as one text, unique also for services outside; what handlers read."""
        return f"{self.key}@{self.session_id}" if self.session_id else self.key


def storable(key: str) -> str:
    """The key, or a hash of one that is too long for an index or that a database could not hold."""
    if len(key) <= MAX_KEY and key.isascii() and "\x00" not in key:
        return key
    raw = key.encode("utf-8", "surrogatepass")
    if len(raw) <= MAX_KEY and b"\x00" not in raw and key.isprintable():
        return key
    return f"{key.partition(':')[0][:64]}:sha256:{sha256(raw).hexdigest()}"


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """An effect that happened, and the result to answer with when it is asked for again.

    Attributes:
        idempotency_key: the key of the call, `scope:tool:hash` or `scope:` and what `key_fn` said.
        params_hash: a hash of the params; the params themselves are not stored.
        result_value: the value as plain JSON data, for people; a replay makes the typed value again of `stored`.
        created_at: when it was recorded.
        expires_at: from when on it counts as never having happened; None for ever.
        session_id: the session the key belongs to; empty for keys that all sessions share.
    """

    idempotency_key: str
    tool_name: str
    params_hash: str
    result_message: str
    result_value: Any
    result_success: bool
    created_at: datetime
    expires_at: datetime | None
    effect_id: UUID = field(default_factory=uuid4)
    session_id: str = ""
    stored: StoredResult = NOTHING


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row as operators see it.

    Attributes:
        token: rises with every claim of the row; whoever records must hold the newest.
        started_at: when the call was claimed last.
        lease_left: seconds until a started call counts as abandoned; zero or less once it does.
        why: for an unknown one, what made it so.
        effect: for a succeeded one, what happened.
    """

    id: EffectId
    tool_name: str
    params_hash: str
    state: State
    token: int
    started_at: datetime
    lease_left: float = 0.0
    why: str = ""
    effect: ToolEffect | None = None


__all__ = ["EffectId", "LedgerEntry", "State", "ToolEffect", "lasting", "storable"]
