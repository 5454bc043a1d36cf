"""What the durable ledgers share: one table, the same statements, each operation one transaction."""
# ruff: noqa: S608 - statements are put together from the constants below; whatever comes from outside is a value

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, Self, TypeVar, cast
from uuid import uuid4

from .effects import EffectId, EffectState, LedgerEntry, StoredResult, ToolEffect, effective_ttl, storable_key
from .protocol import ABANDONED, BaseLedger, Claim, Claimed, check_recordable, lease_lost, still_running
from .rows import COLUMNS, Row

T = TypeVar("T")

_THIS = "key = :key AND session_id = :session_id"
_SELECT = f"SELECT {COLUMNS}, {{lease_left}}, {{now}} FROM wink_effects"
_CURRENT = "(expires_at IS NULL OR expires_at > {now})"
_RESULT = (
    "state = 'succeeded', why = '', message = :message, value = :value, value_type = :value_type, "
    "value_patches = :value_patches, problem = :problem, excluded = :excluded, created_at = {now}, "
    "expires_at = {now} + CAST(:ttl AS DOUBLE PRECISION), effect_id = :effect_id"
)
_NO_RESULT = {
    "message": "", "value": None, "value_type": "", "value_patches": "", "problem": "", "excluded": 0, "effect_id": ""
}  # fmt: skip


class SqlTransaction(Protocol):
    """One transaction under way. In statements `:name` is a value, `{now}` and the like are the dialect's."""

    def rows(self, statement: str, **values: object) -> Sequence[Sequence[Any]]:
        """Run a query."""
        ...

    def change(self, statement: str, **values: object) -> int:
        """Run a change; how many rows it touched."""
        ...

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a change for each of these rows; each has its values in the order in which the statement names them."""
        ...

    def next_token(self) -> int:
        """A token higher than all before."""
        ...


class SqlLedger(BaseLedger):
    """The operations of a `Ledger` on a database; subclasses know how to reach it and how transactions are tried."""

    blocks = True
    former_keys = False

    def _look_for_former_rows(self) -> None:
        """Set `former_keys`, once, when the table has been made or upgraded: such rows can only become fewer."""
        statement = "SELECT 1 FROM wink_effects WHERE key_form = 1 LIMIT 1"
        self.former_keys: bool = bool(self._read(lambda transaction: transaction.rows(statement)))

    @abstractmethod
    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run queries, again if need be; `LedgerError` when the database cannot be read."""

    @abstractmethod
    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run one transaction that is on disk when this returns, again if need be; `LedgerError` when it cannot be.

        `run` may be called several times, so it must end the same when an earlier try went through unnoticed.
        """

    @abstractmethod
    def close(self) -> None:
        """As `Ledger.close`; the ledger opens again when it is used."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def claim(self, effect_id: EffectId, tool_name: str, params_hash: str, lease: float, strict_params: bool) -> Claim:
        """As `Ledger.claim`."""
        known = self._read(lambda transaction: _row(transaction, effect_id))
        if known is not None:  # most of what is known needs no transaction
            kind = known.claim_kind(tool_name, params_hash, strict_params)
            if kind not in {"run", "abandoned"}:
                return known.claim(kind)
        fresh = {
            **effect_id._asdict(), **_NO_RESULT, "tool_name": tool_name, "params_hash": params_hash, "lease": lease,
            "claim_id": os.urandom(12).hex(),
        }  # fmt: skip
        return self._write(lambda transaction: _claim(transaction, effect_id, fresh, strict_params))

    def take_over(self, effect_id: EffectId, token: int, lease: float) -> int | None:
        """As `Ledger.take_over`."""
        claim_id = os.urandom(12).hex()

        def run(transaction: SqlTransaction) -> int | None:
            row = _row(transaction, effect_id, lock=True)
            if row is not None and row.claim_id == claim_id:
                return row.token
            if row is None or row.token != token or row.state != "unknown":
                return None
            taken = transaction.next_token()
            transaction.change(
                "UPDATE wink_effects SET state = 'started', token = :token, claim_id = :claim_id, why = '', "
                f"started_at = {{now}}, lease_until = {{lease_end}}, lease_clock = {{lease_clock}} WHERE {_THIS}",
                **effect_id._asdict(), token=taken, claim_id=claim_id, lease=lease,
            )  # fmt: skip
            return taken

        return self._write(run)

    def extend(self, effect_id: EffectId, token: int, lease: float) -> None:
        """As `Ledger.extend`."""
        statement = (
            "UPDATE wink_effects SET lease_until = {lease_end}, lease_clock = {lease_clock} "
            f"WHERE {_THIS} AND token = :token AND state = 'started'"
        )
        if not self._change(statement, **effect_id._asdict(), token=token, lease=lease):
            raise lease_lost(effect_id)

    def finish(self, effect_id: EffectId, token: int, result: StoredResult, ttl: timedelta | None) -> ToolEffect:
        """As `Ledger.finish`."""
        statement = (
            f"UPDATE wink_effects SET {_RESULT} WHERE {_THIS} AND token = :token AND state IN ('started', 'unknown')"
        )

        def run(transaction: SqlTransaction) -> ToolEffect | None:
            transaction.change(statement, **effect_id._asdict(), **_values(result, ttl), token=token)
            row = _row(transaction, effect_id)
            return row.effect() if row is not None and row.token == token and row.state == "succeeded" else None

        effect = self._write(run)
        if effect is None:
            raise lease_lost(effect_id)
        return effect

    def forget(self, effect_id: EffectId, token: int) -> bool:
        """As `Ledger.forget`."""
        statement = f"DELETE FROM wink_effects WHERE {_THIS} AND token = :token AND state <> 'succeeded'"
        return self._change(statement, **effect_id._asdict(), token=token) > 0

    def doubt(self, effect_id: EffectId, token: int, why: str) -> bool:
        """As `Ledger.doubt`."""
        statement = (
            f"UPDATE wink_effects SET state = 'unknown', why = :why WHERE {_THIS} AND token = :token "
            "AND state <> 'succeeded'"
        )
        return self._change(statement, **effect_id._asdict(), token=token, why=why) > 0

    def find(self, effect_id: EffectId) -> LedgerEntry | None:
        """As `Ledger.find`."""
        row = self._read(lambda transaction: _row(transaction, effect_id))
        return None if row is None or row.expired else row.entry()

    def entries(self, state: EffectState | None = None) -> list[LedgerEntry]:
        """As `Ledger.entries`."""
        statement = f"{_SELECT} WHERE CAST(:state AS TEXT) IS NULL OR state = :state ORDER BY started_at, token"
        return [Row(*row).entry() for row in self._read(lambda transaction: transaction.rows(statement, state=state))]

    def _resolve(self, effect_id: EffectId, result: StoredResult | None, ttl: timedelta | None, *, force: bool) -> bool:
        def run(transaction: SqlTransaction) -> bool:
            row = _row(transaction, effect_id, lock=True)
            if row is None or row.state == "succeeded":
                return False
            if row.state == "started" and row.lease_left > 0 and not force:
                raise still_running(row.entry())
            if result is None:
                transaction.change(f"DELETE FROM wink_effects WHERE {_THIS}", **effect_id._asdict())
            else:
                transaction.change(
                    f"UPDATE wink_effects SET token = :token, {_RESULT} WHERE {_THIS}",
                    **effect_id._asdict(), **_values(result, ttl), token=transaction.next_token(),
                )  # fmt: skip
            return True

        return self._write(run)

    def lookup(self, idempotency_key: str, session_id: str | None = None) -> ToolEffect | None:
        """As `Ledger.lookup`; an expired one is removed."""
        key = storable_key(idempotency_key)
        statement = f"{_SELECT} WHERE {_REMEMBERED} ORDER BY created_at DESC LIMIT 1"
        rows = self._read(lambda transaction: transaction.rows(statement, key=key, session_id=session_id))
        if not rows:
            return None
        row = Row(*rows[0])
        if row.expired:
            self._delete(f"{_REMEMBERED} AND NOT {_CURRENT}", key=key, session_id=session_id)
            return None
        return row.effect()

    def _record(
        self, effect_id: EffectId, tool_name: str, params_hash: str, result: StoredResult, ttl: timedelta | None
    ) -> ToolEffect:
        values = _values(result, ttl)
        fresh = {
            **effect_id._asdict(), **_NO_RESULT, "tool_name": tool_name, "params_hash": params_hash, "lease": 0.0,
            "claim_id": os.urandom(12).hex(),
        }  # fmt: skip

        def run(transaction: SqlTransaction) -> ToolEffect:
            row = _row(transaction, effect_id, lock=True)
            if row is not None and not row.expired:
                check_recordable(row.entry(), tool_name)
            token = _start(transaction, fresh, replaces=row)
            transaction.change(
                f"UPDATE wink_effects SET {_RESULT} WHERE {_THIS} AND token = :token",
                **effect_id._asdict(), **values, token=token,
            )  # fmt: skip
            return cast(Row, _row(transaction, effect_id)).effect()

        return self._write(run)

    def invalidate(self, idempotency_key: str, session_id: str | None = None) -> bool:
        """As `Ledger.invalidate`."""
        return self._delete(_REMEMBERED, key=storable_key(idempotency_key), session_id=session_id) > 0

    def invalidate_by_tool(self, tool_name: str) -> int:
        """As `Ledger.invalidate_by_tool`."""
        return self._delete("state = 'succeeded' AND tool_name = :tool_name", tool_name=tool_name)

    def clear(self) -> int:
        """As `Ledger.clear`."""
        return self._delete("state = 'succeeded'")

    def prune_expired(self) -> int:
        """As `Ledger.prune_expired`."""
        return self._delete(f"state = 'succeeded' AND NOT {_CURRENT}")

    def _delete(self, which: str, **values: object) -> int:
        return self._change(f"DELETE FROM wink_effects WHERE {which}", **values)

    def _change(self, statement: str, **values: object) -> int:
        """One change in a transaction of its own; how many rows it touched."""
        return self._write(lambda transaction: transaction.change(statement, **values))


_REMEMBERED = "state = 'succeeded' AND key = :key AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)"


def _row(transaction: SqlTransaction, effect_id: EffectId, *, lock: bool = False) -> Row | None:
    """The row as it is; with `lock`, as it stays until the transaction ends."""
    rows = transaction.rows(f"{_SELECT} WHERE {_THIS}{'{for_update}' if lock else ''}", **effect_id._asdict())
    return Row(*rows[0]) if rows else None


def _claim(transaction: SqlTransaction, effect_id: EffectId, fresh: Mapping[str, object], strict_params: bool) -> Claim:
    while True:
        row = _row(transaction, effect_id, lock=True)
        if row is not None:
            if row.claim_id == fresh["claim_id"]:  # an earlier try went through, but its answer was lost
                return Claimed(row.token)
            tool_name, params_hash = cast(str, fresh["tool_name"]), cast(str, fresh["params_hash"])
            kind = row.claim_kind(tool_name, params_hash, strict_params)
            if kind == "abandoned":
                transaction.change(
                    f"UPDATE wink_effects SET state = 'unknown', why = :why WHERE {_THIS}",
                    **effect_id._asdict(), why=ABANDONED,
                )  # fmt: skip
                row = row._replace(state="unknown", why=ABANDONED)
            if kind != "run":
                return row.claim(kind)
        token = _start(transaction, fresh, replaces=row)
        if token:
            return Claimed(token)


def _start(transaction: SqlTransaction, fresh: Mapping[str, object], *, replaces: Row | None) -> int:
    """Write a started row; 0 when another transaction just did."""
    if replaces is not None:
        transaction.change(f"DELETE FROM wink_effects WHERE {_THIS}", key=replaces.key, session_id=replaces.session_id)
    token = transaction.next_token()
    written = transaction.change(
        f"INSERT INTO wink_effects ({COLUMNS}, lease_until, lease_clock, key_form) VALUES (:key, :session_id, "
        ":tool_name, :params_hash, 'started', :token, :claim_id, {now}, '', :message, :value, :value_type, "
        ":value_patches, :problem, :excluded, NULL, NULL, :effect_id, {lease_end}, {lease_clock}, 2) "
        "ON CONFLICT DO NOTHING",
        **fresh, token=token,
    )  # fmt: skip
    return token if written else 0


def _values(result: StoredResult, ttl: timedelta | None) -> dict[str, object]:
    ttl = effective_ttl(ttl)
    return {
        **result._asdict(),
        "excluded": int(result.excluded),
        "ttl": None if ttl is None else ttl.total_seconds(),
        "effect_id": str(uuid4()),
    }
