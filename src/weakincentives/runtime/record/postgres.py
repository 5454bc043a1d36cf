"""Runs in PostgreSQL: for any number of machines, with the server's clock."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any, TypeVar, final
from uuid import uuid4
from weakref import ref

from ...clock import checked_seconds
from ...errors import LedgerError, RecordError
from ...interrupts import Lock, WeakTable
from ..ledger.postgres import PostgresEffectLedger
from ..ledger.postgres_server import ONE_AT_A_TIME, WRITES, PostgresServer, PostgresUse, table_exists
from ..ledger.sql import SqlTransaction
from .protocol import HeldRun
from .rows import VERSION, NewRun, RunInfo
from .seals import Seal, form_of, new_seal
from .sql import MAX_FILE, SqlRunStore
from .statements import OVER, TABLES, busy, check_version, current, is_over, take_token
from .upkeep import Unused, remove_content, unused_content

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3
_LONGEST_BEAT = 3600.0
_BATCH = 200
"""So much content is removed in one transaction; appends that have the same content wait for it."""
_VERSION = "CAST(xmin AS TEXT)"
"""Which transaction wrote a row."""

OWNERS = """
CREATE TABLE wink_owners (
    run_id      TEXT PRIMARY KEY,
    token       BIGINT NOT NULL,            -- the one that the holder took the run with
    holder      TEXT NOT NULL,              -- which store of which process; a heartbeat renews all of its leases
    lease_until DOUBLE PRECISION NOT NULL   -- by the server's clock; 0 when it was let go
)"""
"""Apart from `wink_runs`, so that a heartbeat does not wait for a long append to the same run."""


@final
class PostgresRunStore(SqlRunStore):
    """A `RunStore` in a PostgreSQL database, shared by all processes that reach it. Usable as a context manager.

    Needs the extra `postgres`. Its tables are made in the first schema of the search path when they are missing. The
    database holds an effect ledger as well, see `ledger()`. Connections are opened as threads need them, and again
    after a restart of the server; a commit whose answer was lost is looked up, so that rows are added once or not at
    all. `RecordError` when the server cannot be reached within `patience` seconds, at once when the store is made.

    A run belongs to the process that took it for as long as its lease lasts, by the server's clock. A thread of the
    store renews it while the run is held, so it ends when the process does, or is stopped for longer. A process that
    wakes up after that may go on if no other took the run meanwhile; else its next row is refused, `RunBusyError`.

    Args:
        dsn: what libpq takes: "postgresql://user@host/database" or "host=... dbname=...".
        patience: how long to wait for a server that is gone, and for the locks of other connections, in seconds.
        lease: after how many seconds without a sign of life a run counts as interrupted.
        max_file: bytes of the largest content that is recorded; a call that changes a larger file is undone.
        seal: encrypts what was said and done; docs/record.md says what stays readable. It is chosen when the tables are
            made, and needed whenever they are used: `RecordError` without it, or with another one.
    """

    _KNOWN_CONTENT = "DO UPDATE SET size = EXCLUDED.size"  # a new version of the row: see `_remove_unused`
    _HAS_LEASE = (
        "EXISTS (SELECT 1 FROM wink_owners o WHERE o.run_id = wink_runs.run_id AND o.token = wink_runs.token "
        "AND o.lease_until > {now})"
    )

    def __init__(
        self,
        dsn: str,
        *,
        patience: float = 30.0,
        lease: float = 30.0,
        max_file: int = MAX_FILE,
        seal: Seal | None = None,
    ) -> None:
        self._max_file = max_file
        self._dsn = dsn
        self._patience = patience
        self._lease = checked_seconds("lease", lease)
        self._server = PostgresServer(dsn, _use(seal), patience=patience)
        try:
            self._form = form_of(seal, self._read(_kept_seal))
        except BaseException:
            self._server.close()
            raise
        self._heartbeat = _Heartbeat(self, min(self._lease / _BEATS_PER_LEASE, _LONGEST_BEAT))
        self._holders: dict[int, str] = {}  # by process: a forked child holds none of its parent's runs

    def ledger(self) -> PostgresEffectLedger:
        """An effect ledger in the same database; the caller closes it."""
        try:
            return PostgresEffectLedger(self._dsn, patience=self._patience)
        except LedgerError as error:
            raise RecordError(str(error)) from error

    def take(self, run_id: str, new: NewRun | None = None, /, *, retry: bool = False) -> HeldRun:
        """As `RunStore.take`."""
        held = super().take(run_id, new, retry=retry)
        if held.info.status not in OVER:
            self._heartbeat.add(run_id, held.info.token)
        return held

    def close(self) -> None:
        """As `RunStore.close`."""
        if self._heartbeat.clear():
            self._end_leases("holder = :holder", holder=self._holder())
        self._server.close()

    def renew(self, run_ids: Sequence[str]) -> None:
        """Begin the leases of runs anew that this store holds, but for those that others took; its heartbeat does."""
        statement = (
            "UPDATE wink_owners SET lease_until = {lease_end} "
            "WHERE holder = :holder AND lease_until > 0 AND run_id = ANY(:run_ids)"
        )
        values = {"holder": self._holder(), "lease": self._lease, "run_ids": list(run_ids)}
        self._write(lambda transaction: transaction.change(statement, **values))
        if not self._heartbeat.is_beating:  # the store was closed meanwhile, but for this connection
            self._server.close()

    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._server.read(run)

    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        return self._server.write_once(run)

    def _hold(self, info: RunInfo, _number: int, /) -> bool:
        return not info.alive  # `_take` decides; this spares it the transaction

    def _take(self, transaction: SqlTransaction, info: RunInfo, retry: bool) -> RunInfo:
        """Of all that want the run, one at a time gets past its row in `wink_owners`, and looks again."""
        values = {"run_id": info.run_id, "holder": self._holder(), "lease": self._lease}
        transaction.change(
            "INSERT INTO wink_owners (run_id, token, holder, lease_until) VALUES (:run_id, 0, '', 0) "
            "ON CONFLICT (run_id) DO NOTHING",
            **values,
        )
        leases = transaction.rows(
            "SELECT token, lease_until > {now} FROM wink_owners WHERE run_id = :run_id{for_update}", **values
        )
        now = current(transaction, info.run_id)
        if is_over(now, retry):
            return now
        if leases[0][1] and leases[0][0] == now.token:
            raise busy(now, self._owner())
        taken = take_token(transaction, now, self._owner())
        transaction.change(
            "UPDATE wink_owners SET token = :token, holder = :holder, lease_until = {lease_end} WHERE run_id = :run_id",
            **values, token=taken.token,
        )  # fmt: skip
        return taken

    def _let_go(self, info: RunInfo, _number: int, /) -> None:
        if self._heartbeat.discard(info.run_id, info.token):
            which = "run_id = :run_id AND token = :token AND holder = :holder"
            self._end_leases(which, run_id=info.run_id, token=info.token, holder=self._holder())

    def _forget(self, transaction: SqlTransaction, info: RunInfo, number: int, /) -> bool:
        removed = super()._forget(transaction, info, number)
        if removed:
            self._heartbeat.discard(info.run_id, info.token)
            transaction.change("DELETE FROM wink_owners WHERE run_id = :run_id", run_id=info.run_id)
        return removed

    def _remove_unused(self) -> None:
        """Without a lock on the tables: appends go on meanwhile, and may count on content that is not used yet.

        Content is looked for in a snapshot. An append that comes later makes a new version of the row that it counts
        on, and a row is only removed in the version that was seen; one that was removed is added again.
        """

        def look(transaction: SqlTransaction) -> list[Unused]:
            transaction.change("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return unused_content(transaction, self._form, _VERSION)

        unused = self._server.write(look)
        for start in range(0, len(unused), _BATCH):
            batch = unused[start : start + _BATCH]
            self._write(lambda transaction, batch=batch: remove_content(transaction, batch, _VERSION))
        old = "DELETE FROM wink_writes WHERE at < now() - interval '1 day'"  # of processes that were killed
        self._write(lambda transaction: transaction.change(old))

    def _end_leases(self, which: str, **values: object) -> None:
        """A run is let go at the end of what may be an error of its own, so a failure here is only logged."""
        statement = f"UPDATE wink_owners SET lease_until = 0 WHERE {which}"  # noqa: S608 - constants
        try:
            self._write(lambda transaction: transaction.change(statement, **values))
        except RecordError:
            logger.warning("A run could not be let go; others can take it in %g s", self._lease, exc_info=True)

    def _is_alive(self, number: int, *, has_lease: bool) -> bool:  # noqa: ARG002 - the row says it
        return has_lease

    def _owner(self) -> str:
        return f"process {os.getpid()} on {socket.gethostname()}"

    def _holder(self) -> str:
        return self._holders.setdefault(os.getpid(), uuid4().hex)


@final
class _Heartbeat:
    """Renews the leases of a store from a thread that lives as long as runs are held.

    The thread does not keep the store alive: leases of a store that is gone run out. A failure is logged, and tried
    again with the next beat; if the lease ran out meanwhile, the token decides who has the run.
    """

    def __init__(self, store: PostgresRunStore, pause: float) -> None:
        self._store = ref(store)
        self.pause: float = pause
        self._lock = Lock()
        self._held: set[tuple[str, int]] = set()
        self._idle: Event | None = None
        _heartbeats.put(self, None)

    def after_fork(self) -> None:
        """In the child: the runs are the parent's, and so is the thread; another thread may have held the lock."""
        self._lock = Lock()
        self._held = set()
        self._idle = None

    def add(self, run_id: str, token: int) -> None:
        """Renew a lease from now on."""
        with self._lock:
            is_first = not self._held
            self._held.add((run_id, token))
            if is_first:
                self._idle = Event()
                Thread(target=_beat, args=(ref(self), self._idle), name="wink-run-lease", daemon=True).start()

    @property
    def is_beating(self) -> bool:
        """Whether there is a lease to renew."""
        return self._idle is not None

    def beat(self) -> None:
        """Renew them all, once."""
        with self._lock:
            run_ids = [run_id for run_id, _ in self._held]
        store = self._store()
        if store is not None and run_ids:
            try:
                store.renew(run_ids)
            except Exception:
                logger.exception("The leases of runs could not be renewed; another process may take them")

    def discard(self, run_id: str, token: int) -> bool:
        """Renew it no longer; False when it was not."""
        with self._lock:
            if (run_id, token) not in self._held:
                return False
            self._held.discard((run_id, token))
            self._stop_if_idle()
            return True

    def clear(self) -> bool:
        """Renew none; False when there was none."""
        with self._lock:
            had_some = bool(self._held)
            self._held.clear()
            self._stop_if_idle()
            return had_some

    def _stop_if_idle(self) -> None:
        if not self._held and self._idle is not None:
            self._idle.set()
            self._idle = None


_heartbeats: WeakTable[_Heartbeat, None] = WeakTable()


def _after_fork() -> None:
    for heartbeat in _heartbeats.living():
        heartbeat.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _beat(of: ref[_Heartbeat], idle: Event) -> None:
    pause = 0.0
    while not idle.wait(pause):
        heartbeat = of()
        if heartbeat is None:
            return
        if pause:
            heartbeat.beat()
        pause = heartbeat.pause
        del heartbeat


def _kept_seal(transaction: SqlTransaction) -> str:
    rows = transaction.rows("SELECT value FROM wink_meta WHERE key = 'seal'")
    return rows[0][0] if rows else ""


def _create_tables(connection: Any, seal: str) -> None:
    """Make the tables that are missing, once: of several that start together the later ones find them there."""
    if not table_exists(connection, "wink_meta"):  # the youngest of them
        connection.execute(ONE_AT_A_TIME)
        is_new = not table_exists(connection, "wink_record")
        for name, table in {**TABLES, "wink_owners": OWNERS, "wink_writes": WRITES}.items():
            if not table_exists(connection, name):
                connection.execute(
                    table.replace("{number}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
                    .replace("{bytes}", "BYTEA")
                    .replace("{without_rowid}", "")
                )
        if is_new:
            connection.execute("INSERT INTO wink_record VALUES (%s)", [VERSION])
            connection.execute("INSERT INTO wink_meta VALUES ('seal', %s)", [seal])
    check_version(connection.execute("SELECT version FROM wink_record").fetchall())


def _use(seal: Seal | None) -> PostgresUse:
    new = new_seal(seal)
    return PostgresUse("run store", "PostgresRunStore", RecordError, lambda connection: _create_tables(connection, new))


__all__ = ["PostgresRunStore"]
