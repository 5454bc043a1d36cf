"""The connection of one process to a SQLite file."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import TypeVar, final
from weakref import finalize

from ...interrupts import Lock, WeakTable
from . import sqlite_file
from .sqlite_file import LEDGER_FILE, FileUse

T = TypeVar("T")

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHORTEST, _LONGEST = 0.0001, 0.001
"""Seconds between tries. SQLite's own busy handler lets some writers starve, so this is ours: jittered, and a writer
that sees others waiting lets one of them go first."""


@final
class SqliteConnection:
    """A connection that is opened when it is first used, after `close` again, and anew in a forked child.

    One that is dropped without `close` is closed: everything that it was asked to keep is on disk already.
    `lock` is to be held around everything else. `os.fork` waits for it, for a second at most: in the middle of a
    transaction, SQLite's locks would count as taken in the child for ever.
    """

    __slots__ = ("__weakref__", "_finalizer", "_opened", "_path", "_patience", "_use", "lock")

    def __init__(self, path: Path, patience: float, use: FileUse = LEDGER_FILE) -> None:
        self.lock: Lock = Lock()
        self._path = path
        self._patience = patience
        self._use = use
        self._opened: tuple[sqlite3.Connection, int, tuple[int, int]] | None = None
        self._finalizer: finalize[..., SqliteConnection] | None = None
        _connections.put(self, None)

    def get(self) -> sqlite3.Connection:
        """This process's connection: not one inherited through a fork, and not to a file that was removed.

        The error that `use` names when the file cannot be used; `sqlite3.Error` is left to `retry_while_busy`.
        """
        if self._opened is not None:
            connection, pid, identity = self._opened
            if pid == os.getpid():
                if sqlite_file.identity(self._path) != identity:
                    raise self._use.error(
                        f"The {self._use.noun} {self._path} was removed or replaced while it was in use. "
                        f"Restore it and restart: without it {self._use.loss}."
                    )
                return connection
            self.close()
        connection = sqlite_file.connect(self._path, self._use)
        self._opened = (connection, os.getpid(), sqlite_file.identity(self._path))
        # Not `__del__`: when both are garbage at once, SQLite's object could go first, with a ResourceWarning.
        self._finalizer = finalize(self, _release, connection, os.getpid())
        self._finalizer.atexit = False  # other threads may still use it
        return connection

    def close(self) -> None:
        """Release the file; closing twice does nothing."""
        finalizer, self._finalizer = self._finalizer, None
        self._opened = None
        if finalizer is not None:
            finalizer()

    def retry_while_busy(
        self, step: Callable[[], T], since: float | None = None, on_busy: Callable[[], object] = lambda: None
    ) -> T:
        """Try again while another process writes; every other error of SQLite is explained.

        So does waiting for longer than `patience` since the moment at which the caller began to wait.
        """
        began = time.monotonic() if since is None else since
        while True:
            try:
                return step()
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY:
                    raise sqlite_file.error_from_sqlite(error, self._path, self._use) from error
                if time.monotonic() - began > self._patience:
                    raise self._use.error(
                        f"The {self._use.noun} {self._path} has been locked for {self._patience:g} s. "
                        "Look for a program that holds it open in a transaction, such as a sqlite3 shell."
                    ) from error
            on_busy()
            time.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - not for secrets


def _release(connection: sqlite3.Connection, pid: int) -> None:
    if pid == os.getpid():
        connection.close()
    else:  # closing it would release the locks of the parent
        _leaked.append(connection)


_leaked: list[sqlite3.Connection] = []
"""Connections of a parent process, kept from being closed in the child."""

_connections: WeakTable[SqliteConnection, None] = WeakTable()
_LONGEST_PAUSE = 1.0
_paused: dict[int, list[SqliteConnection]] = {}
"""Those that a thread which is about to fork has locked."""


def _before_fork() -> None:
    until = time.monotonic() + _LONGEST_PAUSE
    paused = _paused[get_ident()] = list[SqliteConnection]()
    for connection in _connections.living():
        if connection.lock.acquire(timeout=max(0.0, until - time.monotonic())):
            paused.append(connection)


def _after_fork() -> None:
    for connection in _paused.pop(get_ident(), ()):
        connection.lock.release()


def _after_fork_in_child() -> None:
    """Forget who held which lock: those threads do not exist here."""
    _paused.clear()
    for connection in _connections.living():
        connection.lock = Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
