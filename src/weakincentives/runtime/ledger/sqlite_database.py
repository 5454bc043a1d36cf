"""A SQLite file, shared by the threads and processes of one machine: who reads, who writes, in which order."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, final

from ...clock import Clock
from . import sqlite_file
from .group_commit import GroupCommit
from .sql import SqlTransaction
from .sqlite_connection import SqliteConnection
from .sqlite_file import FileUse, WriterQueue

T = TypeVar("T")


@final
class SqliteDatabase:
    """Runs transactions on a file; those of several threads share one commit. It opens again when it is used.

    Errors are of the class that `use` names.
    """

    def __init__(self, path: Path, use: FileUse, *, patience: float, clock: Clock) -> None:
        self._clock = clock
        self._queue = WriterQueue(path.parent)
        self.writer: SqliteConnection = SqliteConnection(path, patience, use)
        self.reader: SqliteConnection = SqliteConnection(path, patience, use)  # does not wait for a commit
        self.commits: GroupCommit = GroupCommit(self.writer, self._queue)
        with self.writer.lock:
            self.writer.retry_while_busy(self.writer.get)

    def read(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run queries; reading does not wait for the disk, as a commit does."""
        reader = self.reader
        with reader.lock:
            return reader.retry_while_busy(lambda: run(_SqliteTransaction(reader.get(), self._clock)))

    def write(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run one transaction, which is committed when this returns; see `GroupCommit`."""
        return self.commits.run(lambda connection: run(_SqliteTransaction(connection, self._clock)))

    def close(self) -> None:
        """Release the file; closing twice does nothing."""
        with self.reader.lock:
            self.reader.close()
        with self.writer.lock:
            self._queue.close()
            self.writer.close()


@final
class _SqliteTransaction:
    """One transaction's statements."""

    __slots__ = ("_connection", "_times")

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._times = {"now": clock.time(), "clock_id": sqlite_file.BOOT, "clock_now": clock.monotonic()}

    def rows(self, statement: str, **values: object) -> Sequence[Sequence[Any]]:
        return self._execute(statement, values).fetchall()

    def change(self, statement: str, **values: object) -> int:
        return self._execute(statement, values).rowcount

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        text = (_dialects.get(statement) or _dialect(statement))[0]
        for row in rows:
            self._connection.execute(text, row)

    def next_token(self) -> int:
        self._connection.execute("UPDATE wink_tokens SET last = last + 1")
        return self._connection.execute("SELECT last FROM wink_tokens").fetchone()[0]

    def _execute(self, statement: str, values: dict[str, object]) -> sqlite3.Cursor:
        text, names, is_timed = _dialects.get(statement) or _dialect(statement)
        if is_timed:
            values.update(self._times)
        return self._connection.execute(text, [values[name] for name in names])


_TIMES = frozenset({"now", "clock_id", "clock_now"})
_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_dialects: dict[str, tuple[str, tuple[str, ...], bool]] = {}
"""Statements as SQLite reads them, with the names of their values in order, and whether the time is one of them.

Values are given by position: SQLite would look each name up by itself.
"""


def _dialect(statement: str) -> tuple[str, tuple[str, ...], bool]:
    named = statement.format(
        now=":now",
        lease_end=":clock_now + :lease",
        lease_clock=":clock_id",
        # The lease of an earlier boot has run out: its process is gone for certain.
        lease_left="CASE WHEN lease_clock = :clock_id THEN lease_until - :clock_now ELSE -1.0 END",
        for_update="",
    )
    names = tuple(_NAME.findall(named))
    made = _dialects[statement] = _NAME.sub("?", named), names, not _TIMES.isdisjoint(names)
    return made
