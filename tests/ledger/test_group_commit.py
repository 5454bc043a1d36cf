"""Transactions of several threads in one commit: nobody returns early, nobody pays for another's failure."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from weakincentives.errors import LedgerError
from weakincentives.runtime.ledger import Claimed, EffectId, Replay, SqliteEffectLedger, StoredResult
from weakincentives.runtime.ledger.group_commit import GroupCommit

TABLES = """
    PRAGMA foreign_keys = ON;
    CREATE TABLE notes (text TEXT PRIMARY KEY);
    CREATE TABLE replies (note TEXT REFERENCES notes (text) DEFERRABLE INITIALLY DEFERRED);
"""
PATIENT = 60.0


class Notes:
    """A ledger's file with tables of the tests beside its own, and a record of its commits."""

    def __init__(self, path: Path, patience: float = 30.0) -> None:
        self.path = path
        self.ledger = SqliteEffectLedger(path, patience=patience)
        self.statements: list[str] = []
        connection = self.ledger._database.writer.get()
        connection.executescript(TABLES)
        connection.set_trace_callback(self.statements.append)

    @property
    def group(self) -> GroupCommit:
        return self.ledger._database.commits

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")

    def write(self, text: str) -> str:
        return self.group.run(lambda connection: insert(connection, text))

    def on_disk(self, text: str) -> bool:
        """As another process would see it."""
        other = sqlite3.connect(self.path)
        try:
            return other.execute("SELECT count(*) FROM notes WHERE text = ?", [text]).fetchone()[0] == 1
        finally:
            other.close()

    def waiting(self) -> int:
        return len(self.group._lines.get(os.getpid(), {}))

    def wait_until_waiting(self, count: int) -> None:
        until = time.monotonic() + PATIENT
        while self.waiting() < count:
            assert time.monotonic() < until
            time.sleep(0.001)

    @contextmanager
    def busy_leader(self, waiting: int) -> Generator[None]:
        """A leader inside its transaction, until so many others wait in line and the block is left."""
        begun, go_on = threading.Event(), threading.Event()

        def work(_: sqlite3.Connection) -> None:
            begun.set()
            assert go_on.wait(PATIENT)

        leader = threading.Thread(target=self.group.run, args=(work,))
        leader.start()
        assert begun.wait(PATIENT)
        try:
            yield
            self.wait_until_waiting(waiting + 1)
        finally:
            go_on.set()
            leader.join(PATIENT)


def insert(connection: sqlite3.Connection, text: str) -> str:
    """What a careful transaction does: it may be run again after it went through."""
    connection.execute("INSERT INTO notes VALUES (?) ON CONFLICT DO NOTHING", [text])
    return text


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    made = Notes(tmp_path / "ledger.db")
    yield made
    made.ledger.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as made:
        yield made


def test_those_that_wait_are_committed_together(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """One commit for the leader, one for all that came meanwhile; each gets the result of its own work."""
    with notes.busy_leader(waiting=20):
        before = notes.commits
        results = [pool.submit(notes.write, f"n{number}") for number in range(20)]
    assert [result.result(PATIENT) for result in results] == [f"n{number}" for number in range(20)]
    assert notes.commits - before == 2
    assert all(notes.on_disk(f"n{number}") for number in range(20))


def test_nobody_returns_before_the_commit(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """Although the work of the first one is done for long, it returns when another process can see its row."""

    def write(text: str) -> bool:
        notes.write(text)
        return notes.on_disk(text)

    def slowly(connection: sqlite3.Connection) -> None:
        time.sleep(0.3)
        insert(connection, "last")

    with notes.busy_leader(waiting=6):
        results = [pool.submit(write, f"n{number}") for number in range(5)]
        notes.wait_until_waiting(6)
        last = pool.submit(notes.group.run, slowly)
    assert [result.result(PATIENT) for result in results] == [True] * 5
    last.result(PATIENT)


def test_threads_that_come_and_go_all_the_time(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """A thread may be committed by another at any moment, also while it looks whether it is the first in line."""

    def write(index: int) -> None:
        for number in range(40):
            assert notes.write(f"{index}-{number}") == f"{index}-{number}"

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        results = [pool.submit(write, index) for index in range(4)]
        for result in results:
            result.result(PATIENT)
    finally:
        sys.setswitchinterval(before)
    assert notes.waiting() == 0


def fails(connection: sqlite3.Connection) -> None:
    insert(connection, "undone")
    raise LookupError("It is not there.")


def fails_and_rolls_back(connection: sqlite3.Connection) -> None:
    """SQLite itself ends the transaction, as it does when the disk is full."""
    insert(connection, "undone")
    connection.execute("INSERT OR ROLLBACK INTO notes VALUES ('undone')")


def fails_to_commit(connection: sqlite3.Connection) -> None:
    insert(connection, "undone")
    connection.execute("INSERT INTO replies VALUES ('to nothing')")


@pytest.mark.parametrize(
    ("work", "error"), [(fails, LookupError), (fails_and_rolls_back, LedgerError), (fails_to_commit, LedgerError)]
)
def test_a_failure_is_its_own_caller_s(
    notes: Notes, pool: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], None], error: type[Exception]
) -> None:
    """Raised in the thread that asked for it, and nothing of it is written; the others are committed."""
    threads = list[int]()

    def noted(connection: sqlite3.Connection) -> None:
        threads.append(threading.get_ident())
        work(connection)

    def ask() -> int:
        with pytest.raises(error):
            notes.group.run(noted)
        return threading.get_ident()

    with notes.busy_leader(waiting=11):
        first = [pool.submit(notes.write, f"a{number}") for number in range(5)]
        notes.wait_until_waiting(6)
        failing = pool.submit(ask)
        notes.wait_until_waiting(7)
        others = [pool.submit(notes.write, f"b{number}") for number in range(5)]
    assert sorted(result.result(PATIENT) for result in first + others) == [
        f"{group}{number}" for group in "ab" for number in range(5)
    ]
    assert failing.result(PATIENT) == threads[-1]
    assert all(notes.on_disk(f"{group}{number}") for group in "ab" for number in range(5))
    assert not notes.on_disk("undone")
    assert notes.waiting() == 0


def test_a_leader_that_fails_fails_alone(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """The first in line raises; those behind it are committed, and the file is free for other processes."""
    with notes.busy_leader(waiting=4):
        failing = pool.submit(notes.group.run, fails)
        notes.wait_until_waiting(2)
        others = [pool.submit(notes.write, f"n{number}") for number in range(3)]
    with pytest.raises(LookupError):
        failing.result(PATIENT)
    assert [result.result(PATIENT) for result in others] == ["n0", "n1", "n2"]
    assert not notes.on_disk("undone")
    other = sqlite3.connect(notes.path, timeout=0, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.close()


@pytest.mark.slow
def test_each_waits_for_other_programs_as_long_as_it_is_patient(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    """A locked file is reported to all that wait at about the same time, not to one after the other."""
    notes = Notes(tmp_path / "ledger.db", patience=1.0)
    blocker = sqlite3.connect(notes.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    results = [pool.submit(notes.write, f"n{number}") for number in range(20)]
    for result in results:
        with pytest.raises(LedgerError, match=r"has been locked for 1 s"):
            result.result(PATIENT)
    assert time.monotonic() - began < 15  # one after the other: 20
    blocker.close()
    assert notes.write("later") == "later"
    notes.ledger.close()


def test_reading_does_not_wait_for_a_commit(notes: Notes) -> None:
    """A call that is known is answered while others wait for the disk."""
    ledger, known = notes.ledger, EffectId("known")
    claimed = ledger.claim(known, "t", "h", 60.0, False)
    assert isinstance(claimed, Claimed)
    ledger.finish(known, claimed.token, StoredResult("Done."), None)
    with notes.busy_leader(waiting=0):
        assert isinstance(ledger.claim(known, "t", "h", 60.0, False), Replay)
        assert ledger.find(EffectId("other")) is None


def test_an_interrupted_leader_loses_no_others(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """Ctrl-C in the middle of a commit for several: its caller is interrupted, the next in line commits the rest."""
    main, interrupted = threading.get_ident(), list[bool]()

    def write(number: int) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if number == 5 and threading.get_ident() == main:
                interrupted.append(True)
                signal.raise_signal(signal.SIGINT)
            insert(connection, f"n{number}")

        notes.group.run(work)

    with _locked_by_another(notes) as unlock:

        def come_after() -> list[Any]:
            notes.wait_until_waiting(1)
            results = [pool.submit(write, number) for number in range(10)]
            notes.wait_until_waiting(11)
            unlock()
            return results

        others = pool.submit(come_after)
        with pytest.raises(KeyboardInterrupt):
            notes.write("mine")
    assert interrupted == [True]
    for result in others.result(PATIENT):
        result.result(PATIENT)
    assert all(notes.on_disk(f"n{number}") for number in range(10))
    assert not notes.on_disk("mine")
    assert notes.waiting() == 0


HOLDING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
input()
"""


@contextmanager
def _locked_by_another(notes: Notes) -> Generator[Callable[[], None]]:
    """Another process writes, so that all who come meanwhile stand in line; the function ends that."""
    command = [sys.executable, "-c", HOLDING, str(notes.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            yield other.kill
        finally:
            other.kill()


def test_an_interrupted_waiter_leaves_the_line(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """Its work is not run any more; those before and behind it are committed."""
    with notes.busy_leader(waiting=6):
        results = [pool.submit(notes.write, f"a{number}") for number in range(3)]
        notes.wait_until_waiting(4)

        def interrupt() -> None:
            notes.wait_until_waiting(5)
            results.extend(pool.submit(notes.write, f"b{number}") for number in range(3))
            notes.wait_until_waiting(8)
            os.kill(os.getpid(), signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            notes.write("mine")
        helper.join(PATIENT)
    assert len(results) == 6
    assert not wait_for(results, PATIENT).not_done
    assert all(notes.on_disk(f"{group}{number}") for group in "ab" for number in range(3))
    assert not notes.on_disk("mine")


@pytest.mark.slow  # half a second of interrupts
def test_interrupts_at_any_moment(notes: Notes) -> None:
    """The main thread leads and waits in turn, interrupted at random; the others go on, and nothing is lost."""
    stop, written = threading.Event(), list[str]()

    def work(index: int) -> None:
        number = 0
        while not stop.is_set():
            written.append(notes.write(f"w{index}-{number}"))
            number += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    interrupted, rng, number = 0, random.Random(7), 0
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        while interrupted < 60:
            try:
                # Again after a while: an exception that is raised in a finalizer is dropped, and the loop has no end.
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.01), 1.0)
                while True:
                    notes.write(f"main-{number}")
                    number += 1
            except _InterruptedError:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        for thread in threads:
            thread.join(PATIENT)
    assert not any(thread.is_alive() for thread in threads)
    assert notes.waiting() == 0
    found = {row[0] for row in notes.ledger._database.writer.get().execute("SELECT text FROM notes")}
    assert found >= {*written, *(f"main-{done}" for done in range(number))}


class _InterruptedError(BaseException):
    """As KeyboardInterrupt, which would end the tests if one came late."""


def _raise(_signum: int, _frame: object) -> None:
    raise _InterruptedError


def in_child(step: Callable[[], object]) -> int:
    """Fork, and run a step there; the child's exit code."""
    pid = os.fork()
    if not pid:  # pragma: no cover - measured in the parent
        status = 1
        try:
            signal.alarm(30)
            step()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # there are threads, on purpose
def test_a_fork_waits_for_the_end_of_a_commit(notes: Notes) -> None:
    """In the middle of it SQLite would count as locked in the child for ever."""
    begun = threading.Event()

    def slowly(connection: sqlite3.Connection) -> None:
        begun.set()
        time.sleep(0.2)
        insert(connection, "the parent's")

    leader = threading.Thread(target=notes.group.run, args=(slowly,))
    leader.start()
    assert begun.wait(PATIENT)
    assert in_child(lambda: notes.write("the child's")) == 0
    leader.join(PATIENT)
    assert notes.on_disk("the parent's")
    assert notes.on_disk("the child's")
    assert notes.write("later") == "later"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.slow
def test_a_child_runs_nothing_that_its_parent_waits_for(notes: Notes, pool: ThreadPoolExecutor) -> None:
    """The lock is held, and others stand in line: a claim that the child made for one of them would have no holder."""
    ran, parent = notes.path.with_name("ran"), os.getpid()

    def marked(connection: sqlite3.Connection) -> None:
        if os.getpid() != parent:
            ran.touch()
        insert(connection, "the parent's")

    with _locked_by_another(notes) as unlock:
        results = [pool.submit(notes.group.run, marked) for _ in range(3)]
        notes.wait_until_waiting(3)
        timer = threading.Timer(1.5, unlock)
        timer.start()
        assert in_child(lambda: notes.write("the child's")) == 0
        timer.join()
    assert not wait_for(results, PATIENT).not_done
    assert notes.on_disk("the parent's")
    assert notes.on_disk("the child's")
    assert not ran.exists()


CLAIMING = """
import os, sys, threading
from weakincentives.runtime.ledger import Claimed, EffectId, SqliteEffectLedger, StoredResult

ledger = SqliteEffectLedger(sys.argv[1])

def work(index):
    for number in range(1_000_000):
        effect_id = EffectId(f"k{index}-{number}")
        claimed = ledger.claim(effect_id, "t", "h", 60.0, False)
        assert isinstance(claimed, Claimed)
        os.write(1, f"started {effect_id.key} {claimed.token}\\n".encode())
        ledger.finish(effect_id, claimed.token, StoredResult("Done."), None)
        os.write(1, f"succeeded {effect_id.key} {claimed.token}\\n".encode())

for index in range(16):
    threading.Thread(target=work, args=(index,)).start()
"""


@pytest.mark.slow  # processes that are killed
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4])
def test_what_a_killed_process_has_said_is_in_the_file(tmp_path: Path, seconds: float) -> None:
    """`kill -9` while sixteen threads claim and finish: each claim was there before its caller went on."""
    path = tmp_path / "ledger.db"
    child = subprocess.Popen([sys.executable, "-c", CLAIMING, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(seconds)
    child.kill()
    said = (first + child.stdout.read()).decode().splitlines()
    child.wait()
    child.stdout.close()
    tokens = [int(line.split()[2]) for line in said if line.startswith("started ")]
    assert len(tokens) == len(set(tokens)) > 0
    with SqliteEffectLedger(path) as ledger:
        found = {entry.id.key: entry.state for entry in ledger.entries()}
    for line in said:
        state, key, _ = line.split()
        assert found[key] in {state, "succeeded"}
