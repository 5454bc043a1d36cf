"""The one table of the durable ledgers, and a row of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from .effects import EffectId, EffectState, LedgerEntry, StoredResult, ToolEffect
from .protocol import Busy, Claim, ClaimKind, Conflict, Replay, UnknownOutcome, claim_from_row, is_same_tool

SCHEMA_VERSION = 2
"""2 added key_form. It has no default, so that a process of the release before, which may still have the table open,
cannot claim any more: its keys would not be found under ours. What it has claimed it can still finish."""

TABLE = """
CREATE TABLE wink_effects (
    key           TEXT NOT NULL,      -- scope:tool:hash, or scope: and what key_fn said
    session_id    TEXT NOT NULL,      -- empty unless the scope is "session"
    tool_name     TEXT NOT NULL,
    params_hash   TEXT NOT NULL,      -- the params themselves are not stored
    state         TEXT NOT NULL CHECK (state IN ('started', 'succeeded', 'unknown')),
    token         BIGINT NOT NULL,    -- fencing: rises with every claim
    claim_id      TEXT NOT NULL,      -- to recognise a claim whose answer was lost on the way
    started_at    DOUBLE PRECISION NOT NULL,
    lease_until   DOUBLE PRECISION NOT NULL,
    lease_clock   TEXT NOT NULL,      -- which clock the lease is measured by
    why           TEXT NOT NULL,      -- what put it in doubt
    message       TEXT NOT NULL,      -- from here on: the result, once it succeeded
    value         TEXT,
    value_type    TEXT NOT NULL,
    value_patches TEXT NOT NULL,
    problem       TEXT NOT NULL,
    excluded      INTEGER NOT NULL,
    created_at    DOUBLE PRECISION,
    expires_at    DOUBLE PRECISION,
    effect_id     TEXT NOT NULL,
    key_form      INTEGER NOT NULL,   -- what key and params_hash were made of: 1 serialised params, 2 their values
    PRIMARY KEY (key, session_id)
)"""

FORMER_ROWS_INDEX = "CREATE INDEX wink_former_rows ON wink_effects (key) WHERE key_form = 1"
"""Makes it fast to find out whether there are rows of version 1; new rows are not in it."""

COLUMNS = (
    "key, session_id, tool_name, params_hash, state, token, claim_id, started_at, why, message, value, value_type, "
    "value_patches, problem, excluded, created_at, expires_at, effect_id"
)


class Row(NamedTuple):
    """`COLUMNS`, the seconds left of the lease, and the current time."""

    key: str
    session_id: str
    tool_name: str
    params_hash: str
    state: EffectState
    token: int
    claim_id: str
    started_at: float
    why: str
    message: str
    value: str | None
    value_type: str
    value_patches: str
    problem: str
    excluded: int
    created_at: float | None
    expires_at: float | None
    effect_id: str
    lease_left: float
    now: float

    @property
    def expired(self) -> bool:
        """Whether it is a success that is not remembered any more."""
        return self.expires_at is not None and self.expires_at <= self.now

    def claim_kind(self, tool_name: str, params_hash: str, strict_params: bool) -> ClaimKind:
        """Which claim it gives."""
        same_params = not strict_params or self.params_hash == params_hash
        return claim_from_row(
            self.state,
            expired=self.expired,
            same_call=same_params and is_same_tool(self.tool_name, tool_name),
            lease_left=self.lease_left,
        )

    def entry(self) -> LedgerEntry:
        """As operators see it."""
        effect = self.effect() if self.state == "succeeded" else None
        left = self.lease_left if self.state == "started" else 0.0
        return LedgerEntry(
            EffectId(self.key, self.session_id), self.tool_name, self.params_hash, self.state, self.token,
            _moment(self.started_at), left, self.why, effect,
        )  # fmt: skip

    def effect(self) -> ToolEffect:
        """What happened; only for a row that succeeded."""
        stored = StoredResult(
            self.message, self.value, self.value_type, self.value_patches, self.problem, bool(self.excluded)
        )
        assert self.created_at is not None
        return ToolEffect(
            self.key, self.tool_name, self.params_hash, self.message, stored.data, True, _moment(self.created_at),
            None if self.expires_at is None else _moment(self.expires_at), UUID(self.effect_id), self.session_id,
            stored,
        )  # fmt: skip

    def claim(self, kind: ClaimKind) -> Claim:
        """The answer to a claim that may not run."""
        if kind == "replay":
            return Replay(self.effect())
        if kind == "busy":
            return Busy(self.lease_left)
        return Conflict(self.entry()) if kind == "conflict" else UnknownOutcome(self.entry())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
