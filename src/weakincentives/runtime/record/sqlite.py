"""Runs in a SQLite file: for all processes of one machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, final

from ...clock import SYSTEM_CLOCK, Clock, checked_seconds
from ...errors import LedgerError, RecordError
from ..ledger.sql import SqlTransaction
from ..ledger.sqlite import SqliteEffectLedger
from ..ledger.sqlite_database import SqliteDatabase
from ..ledger.sqlite_file import FileUse
from .blob_files import BlobFiles
from .owners import RunOwners
from .rows import VERSION, Content, NewRows, RunInfo, size_of, whole
from .seals import Seal, form_of, new_seal
from .sql import MAX_FILE, SqlRunStore
from .statements import TABLES, check_version

T = TypeVar("T")

_MEGABYTE = 1024 * 1024
"""Content of more bytes is in a file of its own."""


class NotARunStoreError(RecordError):
    """The file exists, and is not a store of runs."""


@final
class SqliteRunStore(SqlRunStore):
    """A `RunStore` in a file, shared by the threads and processes of one machine. Usable as a context manager.

    The file is created on first use, readable by its owner alone; its directory is not created. What was recorded
    survives `kill -9` and, unless `durable` is False, power cuts. It holds an effect ledger as well, see `ledger()`.
    `RecordError`, with what to do, when the file cannot be used: it is not a store, was written by a newer WINK, is
    damaged, on a network filesystem, locked for longer than `patience` seconds, or on a full disk.

    A run belongs to the process that took it until that lets go of it or ends, however it ends: then it can be taken
    at once.

    Args:
        path: the file; beside it belong to it `-wal`, `-shm` and `-owners`, and the directory `.blobs` (large content).
        durable: whether each commit waits for the disk. Without it the last steps before a power cut may be lost, as if
            the run had been interrupted earlier; what was recorded survives `kill -9` all the same. The ledger always
            waits.
        patience: how long to wait for other writers, in seconds.
        max_file: bytes of the largest content that is recorded; a call that changes a larger file is undone.
        max_inline: bytes of the largest content that stands in the file itself, by default a megabyte.
        seal: encrypts what was said and done, also in `.blobs`; docs/record.md says what stays readable. It is chosen
            when the file is created, and needed whenever it is opened: `RecordError` without it, or with another one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: bool = True,
        patience: float = 30.0,
        max_file: int = MAX_FILE,
        max_inline: int = _MEGABYTE,
        seal: Seal | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.path: Path = Path(path).absolute()
        self._patience = checked_seconds("patience", patience, zero=True)
        self._clock = clock
        self._max_file = max_file
        self._max_inline = max_inline
        self._owners = RunOwners(Path(f"{self.path}-owners"))
        self._blobs = BlobFiles(Path(f"{self.path}.blobs"))
        use = replace(_RUNS_FILE, durable=durable)
        self._database = SqliteDatabase(self.path, use, patience=self._patience, clock=clock)
        try:
            new = new_seal(seal)
            kept = self._write(lambda transaction: _create_tables(transaction, new))
            self._form = form_of(seal, kept)
        except BaseException:
            self.close()
            raise

    def ledger(self) -> SqliteEffectLedger:
        """An effect ledger in the same file; the caller closes it."""
        try:
            return SqliteEffectLedger(self.path, patience=self._patience, clock=self._clock)
        except LedgerError as error:
            raise RecordError(str(error)) from error

    def close(self) -> None:
        """As `RunStore.close`."""
        self._owners.close()
        self._database.close()

    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._database.read(run)

    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._database.write(run)

    def _prepare(self, rows: NewRows) -> None:
        for digest, content in rows.blobs.items():
            if size_of(content) > self._max_inline:
                self._blobs.put(digest, content)

    def _in_table(self, digest: str, content: Content, /) -> bytes:
        if size_of(content) <= self._max_inline:
            return whole(content)
        if not self._blobs.has(digest, content):  # pruned since `_prepare`; not while this transaction lasts
            self._blobs.put(digest, content)
        return b""

    def _from_elsewhere(self, digest: str, /) -> bytes | None:
        return self._blobs.get(digest)

    def _forget(self, transaction: SqlTransaction, info: RunInfo, number: int, /) -> bool:
        removed = super()._forget(transaction, info, number)
        if removed:  # before the commit: a run that begins after it may get the same number
            self._owners.drop(number)
        return removed

    def _remove_files(self, transaction: SqlTransaction) -> None:
        self._blobs.remove_all_but({row[0] for row in transaction.rows("SELECT hash FROM wink_blobs")})

    def _problems_of_database(self) -> list[str]:
        rows = self._read(lambda transaction: transaction.rows("PRAGMA integrity_check"))
        problems = [f"{self.path}: {text}." for (text,) in rows if text != "ok"]
        names = {row[0] for row in self._read(lambda transaction: transaction.rows("SELECT hash FROM wink_blobs"))}
        unused = self._blobs.unused(names)
        return problems + [f"{file}: no row names this content. `prune` removes it." for file in unused]

    def _hold(self, _info: RunInfo, number: int, /) -> bool:
        return self._owners.take(number)

    def _let_go(self, _info: RunInfo, number: int, /) -> None:
        self._owners.drop(number)

    def _is_alive(self, number: int, *, has_lease: bool) -> bool:  # noqa: ARG002 - a lock says it
        return self._owners.is_taken(number)

    def _owner(self) -> str:
        return f"process {os.getpid()} on {socket.gethostname()}"


def _create_tables(transaction: SqlTransaction, seal: str) -> str:
    """Create the tables that are missing; refuse those of a newer version. What the store keeps of its seal."""
    known = {row[0] for row in transaction.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "wink_record" in known:
        check_version(transaction.rows("SELECT version FROM wink_record"))
    for name, table in TABLES.items():
        if name not in known:
            transaction.change(table.replace("{number}", "INTEGER PRIMARY KEY").replace("{bytes}", "BLOB")
                               .replace("{without_rowid}", " WITHOUT ROWID"))  # fmt: skip
    if "wink_record" not in known:
        transaction.change("INSERT INTO wink_record VALUES (:version)", version=VERSION)
        transaction.change("INSERT INTO wink_meta VALUES ('seal', :seal)", seal=seal)
    kept = transaction.rows("SELECT value FROM wink_meta WHERE key = 'seal'")
    return kept[0][0] if kept else ""


_RUNS_FILE = FileUse(
    "run store", "a run store", "whole conversations", "its runs are lost", "PostgresRunStore",
    RecordError, NotARunStoreError,
)  # fmt: skip

__all__ = ["NotARunStoreError", "SqliteRunStore"]
