"""Large content beside a SQLite store: private, on disk before its row, and gone with the last run that needs it."""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from weakincentives.errors import RecordError
from weakincentives.runtime import PostgresRunStore, SqliteRunStore
from weakincentives.runtime.record import FileStep, NewRows, NewRun, Step
from weakincentives.runtime.record.rows import digest_of

NEW = NewRun("Desk", "a session")
LARGE = b"large" * 300_000
NAME = digest_of(LARGE)


def rows(content: bytes = LARGE, status: str | None = None) -> NewRows:
    name = digest_of(content)
    kind = "end" if status else "begin"
    files = [FileStep("a", 1, None, f"file:644:{name}")]
    return NewRows([Step(seq=1, kind=kind)], files, {name: content}, "done" if status else None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def blob_file(path: Path) -> Path:
    return Path(f"{path}.blobs") / NAME[:2] / NAME[2:]


def test_large_content_is_in_a_private_file_of_its_own(path: Path) -> None:
    """And small content is not: most runs have no such directory."""
    with SqliteRunStore(path) as store:
        store.take("small", NEW).append(rows(b"x" * 1024 * 1024))
        assert not Path(f"{path}.blobs").exists()
        mask = os.umask(0)
        try:
            store.take("large", NEW).append(rows())
        finally:
            os.umask(mask)
        file = blob_file(path)
        assert file.read_bytes() == LARGE
        assert file.stat().st_mode & 0o777 == 0o600
        assert {parent.stat().st_mode & 0o777 for parent in (file.parent, file.parent.parent)} == {0o700}
        assert path.stat().st_size + Path(f"{path}-wal").stat().st_size < 1024 * 1024 * 1.5
        assert store.blob(NAME) == LARGE


def test_a_damaged_or_missing_file_is_noticed(path: Path) -> None:
    """When it is read, and by `verify`, which says which step refers to it; recording it again mends it."""
    with SqliteRunStore(path) as store:
        held = store.take("r", NEW)
        held.append(rows())
        blob_file(path).write_bytes(b"X" + LARGE[1:])
        with pytest.raises(RecordError, match="damaged"):
            store.blob(NAME)
        assert [problem.split(":")[0] for problem in store.verify()] == ["Run 'r', step 1, a"]
        blob_file(path).unlink()
        with pytest.raises(RecordError, match="lacks"):
            store.blob(NAME)
        assert len(store.verify()) == 1
        held.append(rows())
        assert store.verify() == []


def test_pruning_removes_files_and_what_was_not_finished(path: Path) -> None:
    """But for what another process may be writing just now."""
    with SqliteRunStore(path) as store:
        held = store.take("r", NEW)
        held.append(rows(status="done"))
        held.release()
        old, new = blob_file(path).with_suffix(".1.new"), blob_file(path).with_suffix(".2.new")
        for file in (old, new):
            file.write_bytes(b"half")
        os.utime(old, (0, 0))
        store.prune(timedelta(0))
        assert not blob_file(path).exists()
        assert (old.exists(), new.exists()) == (False, True)


def test_verifying_names_files_that_no_row_has_named_for_long(path: Path) -> None:
    """A process was killed before it added the row, or lost the run; pruning removes them. New ones may get it yet."""
    with SqliteRunStore(path) as store:
        store.take("r", NEW).append(rows())
        blob_file(path).rename(blob_file(path).with_name("0" * 38))
        unfinished = blob_file(path).with_suffix(".1.new")
        unfinished.write_bytes(b"half")
        assert len(store.verify()) == 1  # the row's content is missing
        for file in (blob_file(path).with_name("0" * 38), unfinished):
            os.utime(file, (0, 0))
        problems = store.verify()
        assert [problem.split(": no row")[0] for problem in problems[:2]] == [
            str(blob_file(path).with_name("0" * 38)), str(unfinished),
        ]  # fmt: skip
        assert len(problems) == 3
        store.prune(timedelta(days=1))
        assert len(store.verify()) == 1


def test_a_file_that_cannot_be_written_leaves_no_row(path: Path) -> None:
    """The call is undone then, so it must not be on record."""
    with SqliteRunStore(path) as store:
        held = store.take("r", NEW)
        Path(f"{path}.blobs").write_text("in the way")
        with pytest.raises(RecordError, match=r"runs\.db\.blobs"):
            held.append(rows())
        assert list(store.steps("r")) == []
        Path(f"{path}.blobs").unlink()
        held.append(rows())
        assert store.verify() == []


KILLED = """
import os, sys
from tests.record.test_blob_files import NEW, rows
from weakincentives.runtime import SqliteRunStore
step = int(sys.argv[2])
held = SqliteRunStore(sys.argv[1]).take("r", NEW)
real = {name: getattr(os, name) for name in ("fsync", "replace")}
def dying(name):
    def call(*args, **kwargs):
        global step
        step -= 1
        if step < 0:
            os._exit(9)
        return real[name](*args, **kwargs)
    return call
for name in real:
    setattr(os, name, dying(name))
held.append(rows())
print("added")
"""


@pytest.mark.slow  # starts interpreters
def test_a_process_killed_at_any_moment_leaves_a_row_with_its_file_or_neither(path: Path) -> None:
    """The file is on disk before the row; going on after the kill adds both."""
    import subprocess

    outcomes: list[int] = []
    for step in range(9):
        with SqliteRunStore(path) as store:
            store.prune(timedelta(0), interrupted=True)
        command = [sys.executable, "-c", KILLED, str(path), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        outcomes.append(done.returncode)
        assert done.returncode in {0, 9}, done.stderr
        with SqliteRunStore(path) as store:
            assert store.verify() == []
            assert len(list(store.steps("r"))) == (done.returncode == 0)
            store.take("r").append(rows())
            assert store.verify() == []
    assert outcomes[0] == 9
    assert outcomes[-1] == 0


def test_appends_while_it_is_pruned_have_their_files(path: Path) -> None:
    """Content that was there when an append began may be removed before its row is written; it is put back then."""
    with SqliteRunStore(path, durable=False) as store, SqliteRunStore(path, durable=False) as other:
        ended = threading.Event()

        def prune() -> None:
            while not ended.is_set():
                other.prune(timedelta(0))

        thread = threading.Thread(target=prune)
        thread.start()
        try:
            for number in range(30):
                held = store.take(f"r{number}", NEW)
                held.append(rows(status="done"))
                held.release()
        finally:
            ended.set()
            thread.join()
        store.take("last", NEW).append(rows())
        assert store.verify() == []


def refuses_too_large(store: SqliteRunStore | PostgresRunStore) -> None:
    held = store.take("r", NEW)
    with pytest.raises(RecordError, match=r"1,001 bytes cannot be recorded.*max_file of the run store is 1,000"):
        held.append(rows(b"x" * 1001))
    assert list(store.steps("r")) == []
    held.append(rows(b"x" * 1000))
    held.release()


def test_a_file_above_the_limit_is_refused(path: Path) -> None:
    """Nothing is added; the message names the setting."""
    with SqliteRunStore(path, max_file=1000) as store:
        refuses_too_large(store)


def test_a_file_above_the_limit_is_refused_by_a_server_too(postgres: str) -> None:
    """Likewise."""
    with PostgresRunStore(postgres, max_file=1000) as store:
        refuses_too_large(store)
