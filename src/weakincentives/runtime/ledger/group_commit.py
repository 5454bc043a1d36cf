"""Transactions of several threads in one durable commit: the disk is waited for once, not once per transaction."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, final

from ...interrupts import LOOK
from .sqlite_connection import SqliteConnection
from .sqlite_file import WriterQueue

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""The statements of one transaction, without its BEGIN and COMMIT."""


@final
class GroupCommit:
    """Runs the transactions of all threads of a process on one connection.

    Callers stand in line, and there is no thread of its own: the first in line leads. It runs the work of all that are
    waiting by then, its own included, each inside a savepoint, commits everything at once, and wakes the others. Those
    that come meanwhile wait for the next commit, which the first of them leads.

    - `run` returns after the commit that holds the changes of its work; with `synchronous=FULL` they are on disk.
    - Work that raises, or that cannot be committed together with others, is undone and run again by its own thread, in
      a transaction of its own. So no error of one reaches another, and each caller gets the error of its own work.
    - Work may run in the thread of another caller, and several times. It must end the same when an earlier try went
      through unnoticed, and must not depend on the thread it runs in.
    - A caller that is interrupted leaves the line. If its work is being run at that moment it may still be committed,
      as if the interrupt had come a moment later. The others lose nothing: the next in line leads.
    - A forked child has a line of its own, and runs nothing that its parent was waiting for.
    """

    __slots__ = ("_connection", "_lines", "_queue")

    def __init__(self, connection: SqliteConnection, queue: WriterQueue) -> None:
        self._connection = connection
        self._queue = queue
        self._lines: dict[int, _Line] = {}  # by process: a forked child finds its parent's, and begins another

    def run(self, work: Work[T]) -> T:
        """Run one transaction, and return what `work` returned once it is on disk.

        Raises what `work` raised; the file's own error when it cannot be used, or is locked by another process for
        longer than the connection is patient. Then nothing of it is in the file.
        """
        line = self._lines.setdefault(os.getpid(), {})
        mine = _QueuedWork(work)
        try:
            line[mine] = None
            while not mine.committed:
                if list(line)[:1] == [mine]:  # a copy: others change the line; mine may be committed just now
                    self._lead(line, mine)
                else:
                    mine.wait()
        finally:
            line.pop(mine, None)
            for first in list(line)[:1]:
                first.wake()
        return mine.result

    def _lead(self, line: _Line, mine: _QueuedWork) -> None:
        with self._connection.lock:  # for `close`; no other caller in this line leads
            try:
                commit = lambda: self._commit(line, mine)  # noqa: E731
                self._connection.retry_while_busy(commit, mine.since, self._queue.join)
            finally:
                self._queue.leave()

    def _commit(self, line: _Line, mine: _QueuedWork) -> None:
        """Commit what is waiting, until `mine` is among it."""
        while not mine.committed:
            connection = self._connection.get()
            if connection.in_transaction:  # a leader was interrupted twice, the second time in its `finally`
                connection.execute("ROLLBACK")
            self._queue.give_way()
            try:
                connection.execute("BEGIN IMMEDIATE")
                group = [mine] if mine.alone else [one for one in list(line) if not one.alone]
                if len(group) > 1:
                    group = _commit_together(connection, group)
                else:
                    mine.result = mine.work(connection)
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            for one in group:
                one.committed = True
                line.pop(one, None)
                one.wake()
            self._queue.wrote()


@final
class _QueuedWork:
    """The work of one caller. `alone`: it failed together with others, so its own thread has to run it."""

    __slots__ = ("_woken", "alone", "committed", "result", "since", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.result: Any = None
        self.committed = self.alone = False
        self.since: float = time.monotonic()
        self._woken: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """Let its caller look again: the work is committed, or it is the first in line."""
        self._woken.put(None)

    def wait(self) -> None:
        """Block until then; an interrupted thread may have failed to wake the next one, so not for long."""
        with suppress(Empty):
            self._woken.get(timeout=LOOK)


_Line = dict[_QueuedWork, None]
"""Who waits, in the order of arrival. All keep it in order together: each caller adds and removes its own transaction,
also when it is interrupted, and a leader removes what it has committed."""


def _commit_together(connection: sqlite3.Connection, group: Sequence[_QueuedWork]) -> list[_QueuedWork]:
    """Those of the group that were committed; what could not be is marked, to be run alone."""
    try:
        for transaction in group:
            connection.execute("SAVEPOINT one")
            try:
                transaction.result = transaction.work(connection)
            except Exception:  # noqa: BLE001 - its own thread will run into it again, and raise it
                transaction.alone = True
                connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
        connection.execute("COMMIT")
    except sqlite3.Error:  # the commit, or a failure by which SQLite undid everything, as when the disk is full
        for transaction in group:
            transaction.alone = True
        return []
    return [transaction for transaction in group if not transaction.alone]
