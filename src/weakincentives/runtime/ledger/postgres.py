"""A ledger in PostgreSQL: for any number of machines, with the server's clock."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar, final

from ...clock import checked_seconds
from ...errors import LedgerError
from .rows import FORMER_ROWS, SCHEMA_VERSION, TABLE
from .sql import SqlLedger, Work

T = TypeVar("T")

_KEPT = 4
"""Idle connections that are kept for the next call."""

_SHORTEST, _LONGEST = 0.05, 0.25

_MAX_MILLISECONDS = 2**31 - 1  # of a setting of the server
_SETTINGS = """
    SET default_transaction_isolation = 'read committed';
    SET idle_in_transaction_session_timeout = '10s';
    SET lock_timeout = '{milliseconds}ms';
"""

# Not to_regclass: within one transaction that goes on saying what it said first.
_IS_THERE = """
    SELECT count(*) FROM pg_catalog.pg_tables
    WHERE tablename = 'wink_ledger' AND schemaname = ANY (current_schemas(false))
"""

_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(6364136223846793005)"
_VERSION = "SELECT version FROM wink_ledger"

_NAME = re.compile(r":(\w+)")


@final
class PostgresEffectLedger(SqlLedger):
    """A `Ledger` in a PostgreSQL database, shared by all who reach it. Usable as a context manager.

    Needs the extra `postgres`. The tables `wink_effects` and `wink_ledger` and the sequence `wink_tokens` are made
    in the first schema of the search path when they are missing. Connections are opened as threads need them; after a
    restart of the server they are opened again, and a transaction whose answer was lost is looked up, not repeated.
    `LedgerError` when the server cannot be reached within `patience` seconds, at once when the ledger is made.

    Args:
        dsn: what libpq takes: "postgresql://user@host/database" or "host=... dbname=...".
        patience: how long to wait for a server that is gone, and for others' locks, in seconds.
    """

    def __init__(self, dsn: str, *, patience: float = 30.0) -> None:
        self._psycopg = _driver()
        self._dsn = dsn
        self._patience = checked_seconds("patience", patience, zero=True)
        self._lock = Lock()
        self._idle: list[Any] = []
        self._pid = os.getpid()
        try:
            connection = self._connect()
            self._give_back(connection)
        except self._psycopg.Error as error:
            raise LedgerError(f"The ledger's PostgreSQL server cannot be used: {_text(error)}.") from error
        self._look_for_former_rows()

    def close(self) -> None:
        """As `Ledger.close`; connections are opened again when the ledger is used."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _read(self, work: Callable[[Work], T]) -> T:
        return self._patiently(lambda connection: work(_Postgres(connection)))

    def _write(self, work: Callable[[Work], T]) -> T:
        def transaction(connection: Any) -> T:
            with connection.transaction():
                return work(_Postgres(connection))

        return self._patiently(transaction)

    def _patiently(self, step: Callable[[Any], T]) -> T:
        """Try again with a new connection when the old one broke; what the server refuses is a `LedgerError`."""
        began = time.monotonic()
        while True:
            connection = None
            try:
                connection = self._take()
                result = step(connection)
            except self._psycopg.Error as error:
                lost = connection is None or connection.closed or (error.sqlstate or "")[:2] == "40"
                self._discard(connection)
                if not lost:
                    raise LedgerError(f"The ledger's PostgreSQL server refused: {_text(error)}.") from error
                if time.monotonic() - began > self._patience:
                    raise LedgerError(
                        f"The ledger's PostgreSQL server cannot be reached: {_text(error)}. Is it running?"
                    ) from error
            except BaseException:
                self._discard(connection)
                raise
            else:
                self._give_back(connection)
                return result
            time.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - not for secrets

    def _take(self) -> Any:
        with self._lock:
            if self._pid != os.getpid():  # connections that came through a fork are the parent's
                _leaked.extend(self._idle)
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: Any) -> None:
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: Any) -> None:
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        connection = self._psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=5, application_name="wink-ledger"
        )
        try:
            milliseconds = min(max(1, int(self._patience * 1000)), _MAX_MILLISECONDS)
            connection.execute(_SETTINGS.format(milliseconds=milliseconds))
            if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
                connection.execute("SET synchronous_commit = on")  # else a crash could lose a claim
            with connection.transaction():
                _make(connection)
        except BaseException:
            connection.close()
            raise
        return connection


_leaked: list[Any] = []
"""Connections of a parent process: closing them in the child would close them for both."""


def _make(connection: Any) -> None:
    """Make the tables, once: of several that start together the later ones find them there."""
    if connection.execute(_IS_THERE).fetchone()[0] == 0:
        connection.execute(_ONE_AT_A_TIME)
        if connection.execute(_IS_THERE).fetchone()[0] == 0:
            connection.execute(TABLE)
            connection.execute(FORMER_ROWS)
            connection.execute("CREATE SEQUENCE wink_tokens")
            connection.execute("CREATE TABLE wink_ledger (version INTEGER NOT NULL)")
            connection.execute("INSERT INTO wink_ledger VALUES (%s)", [SCHEMA_VERSION])
    version = connection.execute(_VERSION).fetchone()[0]
    if version == 1:
        version = _upgraded(connection)
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger in the database has version {version}, but this WINK knows versions up to {SCHEMA_VERSION}. "
            "Update it."
        )


def _upgraded(connection: Any) -> int:
    """Bring the table of version 1 up to date, once; the version that it has then."""
    connection.execute(_ONE_AT_A_TIME)
    version = connection.execute(_VERSION).fetchone()[0]
    if version != 1:
        return version
    connection.execute("ALTER TABLE wink_effects ADD COLUMN key_form INTEGER NOT NULL DEFAULT 1")
    connection.execute("ALTER TABLE wink_effects ALTER COLUMN key_form DROP DEFAULT")
    connection.execute(FORMER_ROWS)
    connection.execute("UPDATE wink_ledger SET version = %s", [SCHEMA_VERSION])
    return SCHEMA_VERSION


@final
class _Postgres:
    """One transaction's statements."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, **values: object) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_dialect(statement), values).fetchall()

    def change(self, statement: str, **values: object) -> int:
        return self._connection.execute(_dialect(statement), values).rowcount

    def next_token(self) -> int:
        return self._connection.execute("SELECT nextval('wink_tokens')").fetchone()[0]


_dialects: dict[str, str] = {}


def _dialect(statement: str) -> str:
    made = _dialects.get(statement)
    if made is None:
        now = "EXTRACT(EPOCH FROM statement_timestamp())::float8"  # one moment a statement
        made = _dialects[statement] = _NAME.sub(r"%(\1)s", statement).format(
            now=now,
            lease_end=f"{now} + %(lease)s",
            lease_clock="'server'",
            lease_left=f"lease_until - {now}",
            for_update=" FOR UPDATE",
        )
    return made


def _driver() -> Any:
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise ImportError("PostgresEffectLedger needs psycopg: pip install 'weakincentives[postgres]'") from error


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


__all__ = ["PostgresEffectLedger"]
