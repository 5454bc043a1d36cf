"""Runs in PostgreSQL: the contract, and what a server and leases bring with them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from weakincentives.errors import RecordError, RunBusyError
from weakincentives.runtime import PostgresRunStore
from weakincentives.runtime.record import FileStep, HeldRun, NewRows, NewRun, Step
from weakincentives.runtime.record.rows import digest_of
from weakincentives.testing import RunStoreContract

from ..ledger.breaking import Breaking
from ..ledger.conftest import Server

NEW = NewRun("Desk", "a session")


class TestPostgresRunStore(RunStoreContract):
    """The contract, on a server."""

    @pytest.fixture(autouse=True)
    def _place(self, postgres: str) -> None:
        self.dsn = postgres

    def make_store(self) -> PostgresRunStore:
        return PostgresRunStore(self.dsn)


def connect(dsn: str) -> Any:
    import psycopg

    return psycopg.connect(dsn, autocommit=True)


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def turn(seq: int) -> NewRows:
    content = f"content {seq}".encode()
    name = digest_of(content)
    return NewRows([Step(seq=seq, kind="turn")], [FileStep("a", seq, None, f"file:644:{name}")], {name: content})


TAKE = """
import sys
from weakincentives.errors import RunBusyError
from weakincentives.runtime.record import NewRows, NewRun, PostgresRunStore, Step
held = PostgresRunStore(sys.argv[1], lease=float(sys.argv[2])).take("r", NewRun("Desk", "a session"))
print("taken", flush=True)
for line in sys.stdin:
    try:
        held.append(NewRows([Step(seq=int(line), kind="turn", body={"by": "the other"})]))
        print("added", flush=True)
    except RunBusyError as error:
        print("busy", flush=True)
"""


class Other:
    """Another process that has the run, and adds a row when it is told to."""

    def __init__(self, dsn: str, lease: float) -> None:
        command = [sys.executable, "-c", TAKE, dsn, str(lease)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == "taken"

    def add(self, seq: int) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seq}\n")
        self.process.stdin.flush()
        return self._line()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def test_a_run_of_a_killed_process_is_free_when_its_lease_is_over(postgres: str) -> None:
    """Until then it is busy; the error names the process."""
    other = Other(postgres, lease=1.0)
    with PostgresRunStore(postgres) as store:
        try:
            time.sleep(1.5)  # longer than the lease: the heartbeat renews it
            with pytest.raises(RunBusyError, match=f"process {other.process.pid} "):
                store.take("r")
            assert store.interrupted() == []
        finally:
            other.kill()
        wait_until(store.interrupted)
        held = store.take("r")
        assert (held.is_new, held.info.token) == (False, 2)
        held.append(turn(1))
        held.release()


def test_a_process_that_was_stopped_for_longer_than_its_lease_adds_nothing(postgres: str) -> None:
    """It wakes up when another one has the run: its rows are refused, and its heartbeat takes nothing back."""
    other = Other(postgres, lease=0.6)
    try:
        assert other.add(1) == "added"
        with PostgresRunStore(postgres, lease=0.6) as store:
            other.process.send_signal(signal.SIGSTOP)
            wait_until(store.interrupted)
            held = store.take("r")
            other.process.send_signal(signal.SIGCONT)
            assert other.add(2) == "busy"
            time.sleep(1.0)  # some heartbeats of both
            assert other.add(2) == "busy"
            held.append(turn(2))
            assert [dict(step.body) for step in store.steps("r")] == [{"by": "the other"}, {}]
            assert store.interrupted() == []
            held.release()
    finally:
        other.kill()


def test_a_process_that_was_stopped_goes_on_when_nobody_took_its_run(postgres: str) -> None:
    """Its heartbeat renews the lease: nothing happened meanwhile."""
    other = Other(postgres, lease=0.6)
    try:
        with PostgresRunStore(postgres, lease=0.6) as store:
            other.process.send_signal(signal.SIGSTOP)
            wait_until(store.interrupted)
            other.process.send_signal(signal.SIGCONT)
            assert other.add(1) == "added"
            wait_until(lambda: not store.interrupted())
    finally:
        other.kill()


def test_of_many_that_take_an_interrupted_run_at_once_one_gets_it(postgres: str) -> None:
    """Also of the threads of one process, whose owner has one name; each time."""
    stores = [PostgresRunStore(postgres) for _ in range(6)]
    stores[0].take("r", NEW).release()
    barrier = threading.Barrier(len(stores))

    def take(store: PostgresRunStore) -> HeldRun | None:
        barrier.wait()
        try:
            return store.take("r")
        except RunBusyError:
            return None

    with ThreadPoolExecutor(len(stores)) as pool:
        for _ in range(20):
            (held,) = [one for one in pool.map(take, stores) if one is not None]
            held.release()
    for store in stores:
        store.close()


def test_it_lives_through_restarts_of_the_server(postgres_server: Server, postgres: str) -> None:
    """In the middle of appends too: each row is there once."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        done = threading.Event()

        def restart() -> None:
            for mode in ("fast", "immediate", "fast"):
                time.sleep(0.1)
                postgres_server.stop(mode)
                postgres_server.start()
            done.set()

        thread = threading.Thread(target=restart)
        thread.start()
        seq = 0
        while not done.is_set():
            seq += 1
            held.append(turn(seq))
        thread.join()
        held.append(turn(seq + 1))
        assert [step.seq for step in store.steps("r")] == list(range(1, seq + 2))
        assert len(store.files("r")) == seq + 1
        assert [info.run_id for info in store.infos() if info.alive] == ["r"]
        held.release()


@pytest.mark.parametrize("after", [False, True])
def test_an_append_whose_answer_was_lost_is_there_once(postgres: str, after: bool) -> None:
    """Whether the commit went through or not."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        server = store._server
        server.release(Breaking(server.acquire(), after=after))
        held.append(turn(1))
        assert [step.seq for step in store.steps("r")] == [1]
        assert store.blob(digest_of(b"content 1")) == b"content 1"
        held.release()


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_is_told_truly_when_another_took_the_run_meanwhile(postgres: str, after: bool) -> None:
    """Rows that went through are not told as refused: their call would be undone although it is on record."""
    with PostgresRunStore(postgres) as store, PostgresRunStore(postgres) as thief:
        held = store.take("r", NEW)

        def steal() -> None:
            with connect(postgres) as other:
                other.execute("UPDATE wink_owners SET lease_until = 0")
            thief.take("r")

        server = store._server
        server.release(Breaking(server.acquire(), after=after, then=steal))
        if after:
            held.append(turn(1))
        else:
            with pytest.raises(RunBusyError):
                held.append(turn(1))
        assert [step.seq for step in store.steps("r")] == ([1] if after else [])
        with pytest.raises(RunBusyError):
            held.append(turn(2))
        held.release()
        assert store.interrupted() == []  # it was not the thief's to let go


def test_taking_a_run_whose_answer_was_lost_takes_it_once(postgres: str) -> None:
    """It is new, and has the first token."""
    with PostgresRunStore(postgres) as store:
        server = store._server
        server.release(Breaking(server.acquire(), after=True))
        held = store.take("a", NEW)
        assert (held.is_new, held.info.token) == (True, 1)
        store.take("b", NEW).release()
        server.release(Breaking(server.acquire(), after=True))
        held.append(turn(1))
        server.release(Breaking(server.acquire(), after=True))
        assert store.take("b").info.token == 2


def test_connections_that_the_server_ends_are_opened_again(postgres: str) -> None:
    """As an administrator or a proxy does it."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        for seq in range(1, 6):
            held.append(turn(seq))
            with connect(postgres) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'wink-run-store'"
                )
        assert [step.seq for step in store.steps("r")] == [1, 2, 3, 4, 5]
        held.release()


def test_a_server_that_stays_away_is_an_error(postgres_server: Server, postgres: str) -> None:
    """At once when the store is made, after the patience later; letting go does not raise."""
    with PostgresRunStore(postgres, patience=0.3) as store:
        held = store.take("r", NEW)
        postgres_server.stop()
        try:
            with pytest.raises(RecordError, match="run store's PostgreSQL server cannot be reached"):
                held.append(turn(1))
            with pytest.raises(RecordError, match="cannot be used"):
                PostgresRunStore(postgres)
            held.release()
        finally:
            postgres_server.start()
        assert list(store.steps("r")) == []


def test_the_servers_clock_counts(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose own clock is wrong takes nothing from others."""
    with PostgresRunStore(postgres) as store, PostgresRunStore(postgres) as other:
        held = store.take("r", NEW)
        monkeypatch.setattr(time, "time", lambda: 9e9)
        with pytest.raises(RunBusyError):
            other.take("r")
        assert held.info.created < 9e9
        held.release()


def test_a_store_of_the_future_is_refused(postgres: str) -> None:
    """An older WINK would not know what the rows mean."""
    PostgresRunStore(postgres).close()
    with connect(postgres) as other:
        other.execute("UPDATE wink_record SET version = 99")
    with pytest.raises(RecordError, match="has version 99"):
        PostgresRunStore(postgres)


def test_many_may_make_the_tables_together(postgres: str) -> None:
    """One makes them, all use them."""

    def use(number: int) -> None:
        with PostgresRunStore(postgres) as store, store.ledger() as ledger:
            store.take(f"r{number}", NEW).release()
            assert ledger.entries() == []

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(6)))
    with PostgresRunStore(postgres) as store:
        assert len(store.interrupted()) == 6


@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")  # one that a beat has just opened
def test_the_heartbeat_ends_with_the_last_run(postgres: str) -> None:
    """There is a thread only while runs are held; a store that was dropped does not hold its runs for ever."""

    def beating() -> int:
        return sum(thread.name == "wink-run-lease" for thread in threading.enumerate())

    before = beating()
    store = PostgresRunStore(postgres, lease=0.3)
    one, two = store.take("a", NEW), store.take("b", NEW)
    assert beating() == before + 1
    one.release()
    assert beating() == before + 1
    two.release()
    wait_until(lambda: beating() == before)
    held: HeldRun | None = store.take("a")
    assert held is not None
    store._server.close()
    dropped, store = store, PostgresRunStore(postgres)
    del dropped, held, one, two
    gc.collect()
    wait_until(lambda: beating() == before)
    wait_until(lambda: len(store.interrupted()) == 2)
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # other tests may have left threads behind
def test_a_forked_child_does_not_let_go_of_its_parents_runs(postgres: str) -> None:
    """Nor does closing its copy of the store."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        child = os.fork()
        if child == 0:
            held.release()
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert store.interrupted() == []
        held.append(turn(1))
        held.release()
        assert len(store.interrupted()) == 1


def test_ids_of_transactions_are_removed_again(postgres: str) -> None:
    """What makes a lost answer known does not grow with the number of writes."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        for seq in range(1, 21):
            held.append(turn(seq))
        with connect(postgres) as other:
            assert other.execute("SELECT count(*) FROM wink_writes").fetchone()[0] == 1
        held.release()


def ended(store: PostgresRunStore, run_id: str, content: bytes) -> None:
    name = digest_of(content)
    held = store.take(run_id, NEW)
    files = [FileStep("a", 1, None, f"file:644:{name}")]
    held.append(NewRows([Step(seq=1, kind="end")], files, {name: content}, "done"))
    held.release()


def test_appends_do_not_wait_for_pruning(postgres: str) -> None:
    """However long it looks through the rows; content that they count on meanwhile stays, and the rest goes."""
    with PostgresRunStore(postgres) as store, PostgresRunStore(postgres) as other, connect(postgres) as slow:
        ended(store, "old", b"needed again")
        ended(store, "older", b"gone")
        slow.execute("BEGIN; LOCK TABLE wink_frames IN ACCESS EXCLUSIVE MODE")  # pruning waits in the middle

        def waits() -> bool:
            with connect(postgres) as looking:
                statement = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                return looking.execute(statement).fetchone()[0] > 0

        with ThreadPoolExecutor(1) as pool:
            # Not `prune`: removing the rows of runs, frames among them, is what comes first.
            with connect(postgres) as removing:
                removing.execute("DELETE FROM wink_runs; DELETE FROM wink_steps; DELETE FROM wink_files")
            pruning = pool.submit(other._remove_unused)
            try:
                wait_until(waits)
                ended(store, "new", b"needed again")
                ended(store, "newer", b"another")
                assert not pruning.done()
            finally:
                slow.execute("COMMIT")
            pruning.result()
        assert store.blob(digest_of(b"needed again")) == b"needed again"
        assert store.blob(digest_of(b"another")) == b"another"
        with pytest.raises(RecordError, match="lacks"):
            store.blob(digest_of(b"gone"))
        assert store.verify() == []


def test_content_that_an_open_append_counts_on_is_not_removed(postgres: str) -> None:
    """Removing waits for that one row, and then sees that it is another version."""
    from weakincentives.runtime.record.upkeep import remove_content, unused_content

    version = "CAST(xmin AS TEXT)"
    with PostgresRunStore(postgres) as store, connect(postgres) as appending:
        ended(store, "old", b"content")
        with connect(postgres) as removing:
            removing.execute("DELETE FROM wink_runs; DELETE FROM wink_steps; DELETE FROM wink_files")
        unused = store._read(lambda transaction: unused_content(transaction, store._form, version))
        assert [name for name, _ in unused] == [digest_of(b"content")]
        appending.execute("BEGIN")
        appending.execute(f"INSERT INTO wink_blobs SELECT * FROM wink_blobs ON CONFLICT (hash) {store._KNOWN_CONTENT}")
        with ThreadPoolExecutor(1) as pool:
            removed = pool.submit(
                lambda: store._write(lambda transaction: remove_content(transaction, unused, version))
            )
            time.sleep(0.2)
            assert not removed.done()
            appending.execute("COMMIT")
            removed.result()
        assert store.blob(digest_of(b"content")) == b"content"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_locks_of_its_parents_threads(postgres: str) -> None:
    """A thread of the parent may have them at that moment, and the child has no such thread to let go of them."""
    with PostgresRunStore(postgres) as store:
        held = store.take("r", NEW)
        taken, over = threading.Event(), threading.Event()

        def hold() -> None:
            with store._server._lock, store._heartbeat._lock:
                taken.set()
                over.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends it when it waits for ever
            own = store.take("child", NEW)
            own.append(turn(1))
            own.release()
            store.close()
            os._exit(0)
        try:
            assert os.waitpid(child, 0)[1] == 0
        finally:
            over.set()
            thread.join()
        assert [info.run_id for info in store.interrupted()] == ["child"]
        held.append(turn(1))
        held.release()
