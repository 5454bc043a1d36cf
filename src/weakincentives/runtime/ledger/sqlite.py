"""A ledger in a SQLite file: for all processes of one machine, across restarts and power cuts."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, final

from ...clock import SYSTEM_CLOCK, Clock, checked_seconds
from ...errors import LedgerError
from . import sqlite_file
from .sql import SqlLedger, Work
from .sqlite_file import Queue

T = TypeVar("T")

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHORTEST, _LONGEST = 0.0001, 0.001
"""Seconds between tries. SQLite's own busy handler lets some writers starve, so this is ours: jittered, and a writer
that sees others waiting lets one of them go first."""


@final
class SqliteEffectLedger(SqlLedger):
    """A `Ledger` in a file, shared by the threads and processes of one machine. Usable as a context manager.

    A claim is on disk before the handler runs: it survives `kill -9` and power cuts. Leases are measured by a clock
    that nobody can set. The file is made on first use, readable by its owner alone; its directory is not made. One
    that is there keeps its mode, and a warning is logged once if others can get at it. `LedgerError`, with what to
    do, when the file cannot be used: no ledger, written by a newer WINK, damaged, on a network filesystem, locked
    for longer than `patience` seconds, on a full disk.

    Args:
        path: the file; two more beside it, `-wal` and `-shm`, belong to it.
        patience: how long to wait for other writers, in seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, patience: float = 30.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path).absolute()
        self._patience = checked_seconds("patience", patience, zero=True)
        self._clock = clock
        self._lock = Lock()
        self._queue = Queue(self.path.parent)
        self._opened: tuple[sqlite3.Connection, int, tuple[int, int]] | None = None
        with self._lock:
            self._patiently(self._connection)
        try:
            self._look_for_former_rows()
        except BaseException:  # a damaged file, say: nobody gets a ledger that could be closed
            self.close()
            raise

    def close(self) -> None:
        """As `Ledger.close`; the ledger opens again when it is used."""
        with self._lock:
            self._close()

    def _read(self, work: Callable[[Work], T]) -> T:
        with self._lock:
            return self._patiently(lambda: work(_Sqlite(self._connection(), self._clock)))

    def _write(self, work: Callable[[Work], T]) -> T:
        with self._lock:
            return self._patiently(lambda: self._transaction(work))

    def _transaction(self, work: Callable[[Work], T]) -> T:
        connection = self._connection()
        self._queue.give_way()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(_Sqlite(connection, self._clock))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._queue.wrote()
        return result

    def _patiently(self, step: Callable[[], T]) -> T:
        """Try again while others write; everything else that SQLite says becomes a `LedgerError`."""
        try:
            return self._tried(step)
        finally:
            self._queue.leave()

    def _tried(self, step: Callable[[], T]) -> T:
        began = time.monotonic()
        while True:
            try:
                return step()
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY:
                    raise sqlite_file.explained(error, self.path) from error
                if time.monotonic() - began > self._patience:
                    raise LedgerError(
                        f"The ledger {self.path} has been locked for {self._patience:g} s. "
                        "Look for a program that holds it open in a transaction, such as a sqlite3 shell."
                    ) from error
            self._queue.join()
            time.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - not for secrets

    def _connection(self) -> sqlite3.Connection:
        """This process's connection: one that came through a fork must not be used, and a file that is gone neither."""
        if self._opened is not None:
            connection, pid, identity = self._opened
            if pid == os.getpid():
                if sqlite_file.identity(self.path) != identity:
                    raise LedgerError(
                        f"The ledger {self.path} was removed or replaced while it was in use. "
                        "Put it back and restart: without it effects would be repeated."
                    )
                return connection
            _leaked.append(connection)  # closing it here would take the locks of the parent
        connection = sqlite_file.opened(self.path)
        self._opened = (connection, os.getpid(), sqlite_file.identity(self.path))
        return connection

    def _close(self) -> None:
        if self._opened is not None:
            connection, pid, _ = self._opened
            self._opened = None
            self._queue.close()
            if pid == os.getpid():
                connection.close()
            else:
                _leaked.append(connection)


_leaked: list[sqlite3.Connection] = []
"""Connections of a parent process, kept from being closed in the child."""


@final
class _Sqlite:
    """One transaction's statements."""

    __slots__ = ("_connection", "_times")

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._times = {"now": clock.time(), "clock_id": sqlite_file.BOOT, "clock_now": clock.monotonic()}

    def rows(self, statement: str, **values: object) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_dialect(statement), {**self._times, **values}).fetchall()

    def change(self, statement: str, **values: object) -> int:
        return self._connection.execute(_dialect(statement), {**self._times, **values}).rowcount

    def next_token(self) -> int:
        self._connection.execute("UPDATE wink_tokens SET last = last + 1")
        return self._connection.execute("SELECT last FROM wink_tokens").fetchone()[0]


_dialects: dict[str, str] = {}


def _dialect(statement: str) -> str:
    made = _dialects.get(statement)
    if made is None:
        made = _dialects[statement] = statement.format(
            now=":now",
            lease_end=":clock_now + :lease",
            lease_clock=":clock_id",
            # The lease of an earlier boot has run out: its process is gone for certain.
            lease_left="CASE WHEN lease_clock = :clock_id THEN lease_until - :clock_now ELSE -1.0 END",
            for_update="",
        )
    return made


__all__ = ["SqliteEffectLedger"]
