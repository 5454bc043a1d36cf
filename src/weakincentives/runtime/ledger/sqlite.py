"""A ledger in a SQLite file: for all processes of one machine, across restarts and power cuts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, final

from ...clock import SYSTEM_CLOCK, Clock, checked_seconds
from .sql import SqlLedger, SqlTransaction
from .sqlite_database import SqliteDatabase
from .sqlite_file import LEDGER_FILE

T = TypeVar("T")


@final
class SqliteEffectLedger(SqlLedger):
    """A `Ledger` in a file, shared by the threads and processes of one machine. Usable as a context manager.

    A claim is on disk before the handler runs: it survives `kill -9` and power cuts. Leases are measured by a clock
    that cannot be set. The file is created on first use, readable by its owner alone; its directory is not created.
    An existing file keeps its mode, and a warning is logged once if other users can read or write it. `LedgerError`,
    with what to do, when the file cannot be used: it is not a ledger, was written by a newer WINK, is damaged, on a
    network filesystem, locked for longer than `patience` seconds, or on a full disk.

    Args:
        path: the file; two more beside it, `-wal` and `-shm`, belong to it.
        patience: how long to wait for other writers, in seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, patience: float = 30.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path: Path = Path(path).absolute()
        patience = checked_seconds("patience", patience, zero=True)
        self._database = SqliteDatabase(self.path, LEDGER_FILE, patience=patience, clock=clock)
        try:
            self._look_for_former_rows()
        except BaseException:  # a damaged file, for example: the caller gets no ledger to close
            self.close()
            raise

    def close(self) -> None:
        """As `Ledger.close`; the ledger opens again when it is used."""
        self._database.close()

    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._database.read(run)

    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._database.write(run)
