"""Connections to a PostgreSQL server: opened as threads need them, and again when they break."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar, final
from uuid import uuid4

from ...clock import checked_seconds
from ...errors import WinkError
from ...interrupts import Lock, WeakTable
from .sql import SqlTransaction

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

# Not to_regclass: within one transaction it repeats its first answer.
_TABLE_EXISTS = """
    SELECT count(*) FROM pg_catalog.pg_tables
    WHERE tablename = %s AND schemaname = ANY (current_schemas(false))
"""

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(6364136223846793005)"
"""Makes transactions that create or upgrade tables wait for each other."""

WRITES = "CREATE TABLE wink_writes (id TEXT PRIMARY KEY, at TIMESTAMPTZ NOT NULL DEFAULT now())"
"""Which transactions of `write_once` were committed, until their process knows it."""

_LEAVE_ID = """
    WITH known AS (DELETE FROM wink_writes WHERE id = ANY (%s))
    INSERT INTO wink_writes (id) VALUES (%s) ON CONFLICT (id) DO NOTHING
"""

_NAME = re.compile(r":(\w+)")


@final
@dataclass(frozen=True, slots=True)
class PostgresUse:
    """What a program uses a server for.

    Attributes:
        noun: what it is called in messages: "ledger".
        user: the class that needs the driver, for the message when it is missing.
        error: what is raised when the server cannot be used.
        create_tables: makes the tables, in a transaction of each new connection; may raise `error`.
    """

    noun: str
    user: str
    error: type[WinkError]
    create_tables: Callable[[Any], None]


@final
class PostgresServer:
    """Runs transactions on a server, again with a new connection when the old one broke.

    Errors are of the class that `use` names: the server cannot be reached within `patience` seconds, at once when this
    is made, or it refused a statement.
    """

    def __init__(self, dsn: str, use: PostgresUse, *, patience: float) -> None:
        self._psycopg = _driver(use.user)
        self._dsn = dsn
        self._use = use
        self._patience = checked_seconds("patience", patience, zero=True)
        self._lock = Lock()
        self._idle: list[Any] = []
        self._known: list[str] = []
        _servers.put(self, None)
        try:
            connection = self._connect()
            self.release(connection)
        except self._psycopg.Error as error:
            raise use.error(f"The {use.noun}'s PostgreSQL server cannot be used: {_text(error)}.") from error

    def after_fork(self) -> None:
        """In the child: the connections are the parent's, and another thread may have held the lock."""
        _leaked.extend(self._idle)
        self._idle = []
        self._lock = Lock()

    def close(self) -> None:
        """Close the idle connections; others are opened when the server is used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def read(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run queries, each in a transaction of its own."""
        return self._retry_on_lost_connection(lambda connection: run(_PostgresTransaction(connection)))

    def write(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run one transaction; after a connection broke it is run again, so it must end the same then."""

        def transaction(connection: Any) -> T:
            with connection.transaction():
                return run(_PostgresTransaction(connection))

        return self._retry_on_lost_connection(transaction)

    def write_once(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run one transaction; when the answer to its commit was lost, it is found out whether it went through.

        Another process may have changed the same rows before it could be run again, so that must be known. Each
        transaction leaves an id in the table of `WRITES`, which a later one removes; when it is there already, an
        earlier try went through. (The server's own ids of transactions are used again after a crash.)
        """
        write_id = uuid4().hex
        results: list[T] = []

        def transaction(connection: Any) -> None:
            known, self._known = self._known, []
            try:
                with connection.transaction():
                    if connection.execute(_LEAVE_ID, [known, write_id]).rowcount or not results:
                        results.append(run(_PostgresTransaction(connection)))
            except BaseException:
                self._known.extend(known)
                raise

        self._retry_on_lost_connection(transaction)
        self._known.append(write_id)
        return results[-1]

    def _retry_on_lost_connection(self, step: Callable[[Any], T]) -> T:
        """Try again with a new connection when the old one broke; what the server refuses is an error."""
        began = time.monotonic()
        while True:
            connection = None
            try:
                connection = self.acquire()
                result = step(connection)
            except self._psycopg.Error as error:
                lost = connection is None or connection.closed or (error.sqlstate or "")[:2] == "40"
                self.discard(connection)
                server = f"The {self._use.noun}'s PostgreSQL server"
                if not lost:
                    raise self._use.error(f"{server} refused: {_text(error)}.") from error
                if time.monotonic() - began > self._patience:
                    raise self._use.error(f"{server} cannot be reached: {_text(error)}. Is it running?") from error
            except BaseException:
                self.discard(connection)
                raise
            else:
                self.release(connection)
                return result
            time.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - not for secrets

    def acquire(self) -> Any:
        """An idle connection, or a new one; the caller releases or discards it."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def release(self, connection: Any) -> None:
        """Keep a connection for the next caller, unless there are enough."""
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def discard(self, connection: Any) -> None:
        """Close a connection that may be broken, or in the middle of something."""
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        connection = self._psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=5, application_name=f"wink-{self._use.noun.replace(' ', '-')}"
        )
        try:
            milliseconds = min(max(1, int(self._patience * 1000)), _MAX_MILLISECONDS)
            connection.execute(_SETTINGS.format(milliseconds=milliseconds))
            if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
                connection.execute("SET synchronous_commit = on")  # else a crash could lose what was committed
            with connection.transaction():
                self._use.create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def table_exists(connection: Any, name: str) -> bool:
    """Whether a table with that name is in a schema of the search path."""
    return connection.execute(_TABLE_EXISTS, [name]).fetchone()[0] > 0


_leaked: list[Any] = []
"""Connections of a parent process: closing them in the child would close them for both."""


_servers: WeakTable[PostgresServer, None] = WeakTable()


def _after_fork() -> None:
    for server in _servers.living():
        server.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@final
class _PostgresTransaction:
    """One transaction's statements."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, **values: object) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_dialect(statement), values).fetchall()

    def change(self, statement: str, **values: object) -> int:
        return self._connection.execute(_dialect(statement), values).rowcount

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        text = _NAME.sub("%s", statement)
        for row in rows:
            self._connection.execute(text, row)

    def next_token(self) -> int:
        return self._connection.execute("SELECT nextval('wink_tokens')").fetchone()[0]


_dialects: dict[str, str] = {}


def _dialect(statement: str) -> str:
    made = _dialects.get(statement)
    if made is None:
        now = "EXTRACT(EPOCH FROM statement_timestamp())::float8"  # one time per statement
        made = _dialects[statement] = _NAME.sub(r"%(\1)s", statement).format(
            now=now,
            lease_end=f"{now} + %(lease)s",
            lease_clock="'server'",
            lease_left=f"lease_until - {now}",
            for_update=" FOR UPDATE",
        )
    return made


def _driver(user: str) -> Any:
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise ImportError(f"{user} needs psycopg: pip install 'weakincentives[postgres]'") from error


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
