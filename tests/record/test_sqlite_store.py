"""Runs in a SQLite file: the contract, and what only a file has."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from weakincentives.errors import RecordError, RunBusyError
from weakincentives.runtime.record import FileStep, HeldRun, NewRows, NewRun, SqliteRunStore, Step
from weakincentives.runtime.record.rows import digest_of
from weakincentives.testing import RunStoreContract

NEW = NewRun("Desk", "a session")


class TestSqliteRunStore(RunStoreContract):
    """The contract, on a file."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    def make_store(self) -> SqliteRunStore:
        return SqliteRunStore(self.path)


def run_sql(path: Path, statement: str) -> None:
    """What another program does to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


TAKE = """
import sys
import threading
import time
from weakincentives.runtime.record import NewRun, SqliteRunStore
held = SqliteRunStore(sys.argv[1]).take("r", NewRun("Desk", "a session"))
print("taken", flush=True)
sys.stdin.read()
"""


def taken_by_another_process(path: Path) -> subprocess.Popen[str]:
    """A process that has the run, and does nothing."""
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def test_a_run_of_a_living_process_is_busy_and_of_a_killed_one_free(tmp_path: Path) -> None:
    """Without any wait: the system knows that the process has ended."""
    process = taken_by_another_process(tmp_path / "runs.db")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        with pytest.raises(RunBusyError, match=f"process {process.pid} "):
            store.take("r")
        assert store.interrupted() == []
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert [info.run_id for info in store.interrupted()] == ["r"]
        store.take("r").append(NewRows([Step(seq=1, kind="begin")]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # other tests may have left threads behind
def test_a_forked_child_does_not_keep_a_run(tmp_path: Path) -> None:
    """A child that outlives the process which has the run does not stand in the way of the next."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        store = SqliteRunStore(tmp_path / "runs.db")
        store.take("r", NEW)
        if os.fork() == 0:
            os.read(read, 1)  # until the test is over
        os._exit(0)
    os.waitpid(parent, 0)
    try:
        with SqliteRunStore(tmp_path / "runs.db") as other:
            assert other.take("r").info.token == 2
    finally:
        os.write(write, b"x")
        os.close(write)
        os.close(read)


def test_closing_a_store_lets_go_of_its_runs(tmp_path: Path) -> None:
    """And of its own alone: another store of the process keeps what it has taken."""
    one, other = SqliteRunStore(tmp_path / "runs.db"), SqliteRunStore(tmp_path / "runs.db")
    one.take("a", NEW)
    other.take("b", NEW)
    one.close()
    assert [info.run_id for info in other.interrupted()] == ["a"]
    other.close()


def test_the_file_is_private_and_its_directory_is_not_made(tmp_path: Path) -> None:
    """It holds whole conversations."""
    SqliteRunStore(tmp_path / "runs.db").close()
    assert (tmp_path / "runs.db").stat().st_mode & 0o777 == 0o600
    with pytest.raises(RecordError, match="no directory"):
        SqliteRunStore(tmp_path / "no" / "runs.db")
    assert not (tmp_path / "no").exists()


def test_a_file_of_a_newer_version_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    """And left as it is."""
    SqliteRunStore(tmp_path / "new.db").close()
    run_sql(tmp_path / "new.db", "UPDATE wink_record SET version = 99")
    with pytest.raises(RecordError, match="version 99"):
        SqliteRunStore(tmp_path / "new.db")
    for damage in ("UPDATE wink_record SET version = 0", "DELETE FROM wink_record"):
        run_sql(tmp_path / "new.db", damage)
        with pytest.raises(RecordError, match="does not say which version"):
            SqliteRunStore(tmp_path / "new.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be looked at as one " * 20)
    with pytest.raises(RecordError, match="not a SQLite database"):
        SqliteRunStore(tmp_path / "text.db")
    run_sql(tmp_path / "other.db", "CREATE TABLE things (name TEXT)")
    with pytest.raises(RecordError, match="but not a run store"):
        SqliteRunStore(tmp_path / "other.db")


def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    """Content is checked against its name."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        name = digest_of(b"content")
        held = store.take("r", NEW)
        held.append(NewRows(blobs={name: b"content"}))
        run_sql(tmp_path / "runs.db", "UPDATE wink_blobs SET data = X'00'")
        with pytest.raises(RecordError, match="damaged"):
            store.blob(name)


def test_a_store_that_is_not_durable_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """By default it does; its ledger does in any case, since an effect must not be repeated."""
    for durable, level in ((True, 2), (False, 1)):
        with SqliteRunStore(tmp_path / f"{durable}.db", durable=durable) as store, store.ledger() as ledger:
            assert store._database.writer.get().execute("PRAGMA synchronous").fetchone()[0] == level
            assert ledger._database.writer.get().execute("PRAGMA synchronous").fetchone()[0] == 2
    with SqliteRunStore(tmp_path / "default.db") as store:
        assert store._database.writer.get().execute("PRAGMA synchronous").fetchone()[0] == 2


def test_appends_of_several_threads_share_a_commit(tmp_path: Path) -> None:
    """The disk is waited for once for all that wait; a row that is refused takes no other with it."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        held = [store.take(f"r{number}", NEW) for number in range(8)]
        run_sql(tmp_path / "runs.db", "UPDATE wink_runs SET token = 99 WHERE run_id = 'r3'")
        statements: list[str] = []
        store._database.writer.get().set_trace_callback(statements.append)
        barrier = threading.Barrier(len(held))

        def append(one: HeldRun) -> bool:
            barrier.wait()
            try:
                one.append(NewRows([Step(seq=1, kind="begin")]))
            except RunBusyError:
                return False
            return True

        with ThreadPoolExecutor(len(held)) as pool:
            with store._database.writer.lock:
                futures = [pool.submit(append, one) for one in held]
                time.sleep(0.3)  # all stand in line behind the lock
            results = [future.result() for future in futures]
        assert results == [number != 3 for number in range(8)]
        assert statements.count("COMMIT") < len(held)
        assert all(len(list(store.steps(f"r{number}"))) == (number != 3) for number in range(8))


def test_errors_speak_of_the_run_store(tmp_path: Path) -> None:
    """Not of a ledger, whose file handling it shares."""
    with SqliteRunStore(tmp_path / "runs.db", patience=0.1) as store:
        held = store.take("r", NEW)
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RecordError, match=r"The run store .* has been locked for 0.1 s"):
                held.append(NewRows([Step(seq=1, kind="begin")]))
            other.execute("ROLLBACK")
        (tmp_path / "runs.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(RecordError, match="without it its runs are lost"):
            held.append(NewRows([Step(seq=1, kind="begin")]))
        (tmp_path / "elsewhere.db").rename(tmp_path / "runs.db")


@pytest.mark.parametrize("data", ["'text'", "7e300", "'', size = 'many'"])
def test_content_of_another_kind_is_damaged(tmp_path: Path, data: str) -> None:
    """SQLite keeps any value in any column: neither reading it nor verifying the store raises anything else."""
    path, name = tmp_path / "runs.db", digest_of(b"x")
    with SqliteRunStore(path) as store:
        held = store.take("r", NewRun("Desk", "s"))
        file = FileStep("a", 1, None, f"file:644:{name}")
        held.append(NewRows([Step(seq=1, kind="begin")], [file], {name: b"x"}))
        held.release()
        run_sql(path, f"UPDATE wink_blobs SET data = {data}")
        with pytest.raises(RecordError, match="damaged"):
            store.blob(name)
        (problem,) = store.verify()
        assert problem.startswith("Run 'r', step 1, a: ")


@pytest.mark.parametrize("change", ["tags = '['", "created = 'noon'", "session_id = x'ff'"])
def test_a_run_that_cannot_be_read_is_named(tmp_path: Path, change: str) -> None:
    """With what to do; the message names it."""
    path = tmp_path / "runs.db"
    with SqliteRunStore(path) as store:
        store.take("odd", NewRun("Desk", "s")).release()
        run_sql(path, f"UPDATE wink_runs SET {change}")
        for read in (store.infos, store.verify, lambda: store.open("odd")):
            with pytest.raises(RecordError, match=r"The row of the run 'odd' cannot be read.* from a backup"):
                read()


def test_verifying_names_what_was_damaged(tmp_path: Path) -> None:
    """Content that does not have its digest, and rows that cannot be read."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        name = digest_of(b"content")
        held = store.take("r", NEW)
        steps = [Step(seq=number, kind="turn") for number in (1, 2)]
        held.append(NewRows(steps, [FileStep("a", 2, None, f"file:644:{name}")], {name: b"content"}))
        run_sql(tmp_path / "runs.db", "UPDATE wink_blobs SET data = X'00'")
        run_sql(tmp_path / "runs.db", "UPDATE wink_steps SET body = '[', kind = 'song' WHERE seq = 1")
        problems = store.verify()
        assert [problem.split(":")[0] for problem in problems] == ["Run 'r', step 1"] * 2 + ["Run 'r', step 2, a"]
        assert "damaged" in problems[2]


def test_a_file_from_before_the_frames_gets_their_table(tmp_path: Path) -> None:
    """It is the same version: nothing else changed."""
    SqliteRunStore(tmp_path / "runs.db").close()
    run_sql(tmp_path / "runs.db", "DROP TABLE wink_frames")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        store.take("r", NEW)
        assert store.verify() == []


def test_files_with_odd_names_are_shown_and_left_out_of_a_filesystem(tmp_path: Path) -> None:
    """A store of a filesystem of the user's own may have them; files in memory cannot."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        name = digest_of(b"x")
        files = [FileStep(path, 1, None, f"file:644:{name}") for path in ("plain", "not utf-8 \udcff", "nul \x00")]
        store.take("r", NEW).append(NewRows([Step(seq=1, kind="begin")], files, {name: b"x"}))
        run = store.open("r")
        assert {step.path for step in store.files("r")} == {file.path for file in files}
        assert [file.path for file in run.files_at(1).list()] == ["plain"]
        assert store.verify() == []
