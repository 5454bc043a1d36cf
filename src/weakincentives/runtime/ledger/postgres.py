"""A ledger in PostgreSQL: for any number of machines, with the server's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from ...errors import LedgerError
from .postgres_server import ONE_AT_A_TIME, PostgresServer, PostgresUse, table_exists
from .rows import FORMER_ROWS_INDEX, SCHEMA_VERSION, TABLE
from .sql import SqlLedger, SqlTransaction

T = TypeVar("T")

_VERSION = "SELECT version FROM wink_ledger"


@final
class PostgresEffectLedger(SqlLedger):
    """A `Ledger` in a PostgreSQL database, shared by all processes that reach it. Usable as a context manager.

    Needs the extra `postgres`. The tables `wink_effects` and `wink_ledger` and the sequence `wink_tokens` are made
    in the first schema of the search path when they are missing. Connections are opened as threads need them; after a
    restart of the server they are opened again, and a transaction whose answer was lost is looked up, not repeated.
    `LedgerError` when the server cannot be reached within `patience` seconds, at once when the ledger is made.

    Args:
        dsn: what libpq takes: "postgresql://user@host/database" or "host=... dbname=...".
        patience: how long to wait for a server that is gone, and for the locks of other connections, in seconds.
    """

    def __init__(self, dsn: str, *, patience: float = 30.0) -> None:
        self._server = PostgresServer(dsn, _USE, patience=patience)
        self._look_for_former_rows()

    def close(self) -> None:
        """As `Ledger.close`; connections are opened again when the ledger is used."""
        self._server.close()

    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._server.read(run)

    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._server.write(run)


def _create_tables(connection: Any) -> None:
    """Make the tables, once: of several that start together the later ones find them there."""
    if not table_exists(connection, "wink_ledger"):
        connection.execute(ONE_AT_A_TIME)
        if not table_exists(connection, "wink_ledger"):
            connection.execute(TABLE)
            connection.execute(FORMER_ROWS_INDEX)
            connection.execute("CREATE SEQUENCE wink_tokens")
            connection.execute("CREATE TABLE wink_ledger (version INTEGER NOT NULL)")
            connection.execute("INSERT INTO wink_ledger VALUES (%s)", [SCHEMA_VERSION])
    version = connection.execute(_VERSION).fetchone()[0]
    if version == 1:
        version = _upgrade(connection)
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger in the database has version {version}, but this WINK knows versions up to {SCHEMA_VERSION}. "
            "Update it."
        )


def _upgrade(connection: Any) -> int:
    """Upgrade the table of version 1, once; the version that it has then."""
    connection.execute(ONE_AT_A_TIME)
    version = connection.execute(_VERSION).fetchone()[0]
    if version != 1:
        return version
    connection.execute("ALTER TABLE wink_effects ADD COLUMN key_form INTEGER NOT NULL DEFAULT 1")
    connection.execute("ALTER TABLE wink_effects ALTER COLUMN key_form DROP DEFAULT")
    connection.execute(FORMER_ROWS_INDEX)
    connection.execute("UPDATE wink_ledger SET version = %s", [SCHEMA_VERSION])
    return SCHEMA_VERSION


_USE = PostgresUse("ledger", "PostgresEffectLedger", LedgerError, _create_tables)
