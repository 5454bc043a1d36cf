"""The SQLite ledger's file: what it refuses, and what it says."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives.errors import LedgerError
from weakincentives.results import ToolResult
from weakincentives.runtime.ledger import (
    Busy,
    Claimed,
    EffectId,
    Replay,
    SqliteEffectLedger,
    StoredResult,
    UnknownOutcome,
)
from weakincentives.runtime.ledger import sqlite_file as files
from weakincentives.testing import FakeClock

KEY = EffectId("shop:refund:1")


def claim(ledger: SqliteEffectLedger, effect_id: EffectId = KEY, lease: float = 60.0) -> Any:
    return ledger.claim(effect_id, tool_name="refund", params_hash="h", lease=lease, strict_params=False)


def _always(answer: object) -> Callable[[Path], object]:
    return lambda _: answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_it_is_durable(path: Path) -> None:
    """Write-ahead log, every commit waits for the disk, the header names WINK and the version."""
    with SqliteEffectLedger(path) as ledger:
        claim(ledger)
        connection = ledger._database.writer.get()
        values = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "application_id", "user_version", "busy_timeout")
        }
    assert values == {
        "journal_mode": "wal", "synchronous": 2, "application_id": 0x57494E4B, "user_version": 2, "busy_timeout": 0,
    }  # fmt: skip
    with SqliteEffectLedger(path) as ledger:
        assert isinstance(claim(ledger), Busy)


def test_a_closed_ledger_opens_again(path: Path) -> None:
    """Closing lets go of the file, twice if need be; the next use takes it up again."""
    ledger = SqliteEffectLedger(path)
    ledger.close()
    ledger.close()
    assert isinstance(claim(ledger), Claimed)
    ledger.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Dear diary, today I was no database at all. " * 40, "is not a SQLite database, so not an effect ledger"),
        (None, "there is no directory"),
    ],
)
def test_files_that_are_no_ledger_are_refused(path: Path, content: bytes | None, message: str) -> None:
    """With the fix, and without touching them."""
    if content is None:
        path = path / "missing" / "ledger.db"
    else:
        path.write_bytes(content)
    with pytest.raises(LedgerError, match=message):
        SqliteEffectLedger(path)
    assert content is None or path.read_bytes() == content


def test_a_database_of_others_is_refused(path: Path) -> None:
    """Nothing is added to it."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"not an effect ledger\. Choose another file"):
        SqliteEffectLedger(path)
    assert path.read_bytes() == before


def test_a_ledger_of_the_future_is_refused(path: Path) -> None:
    """An older WINK would not know what the rows mean."""
    SqliteEffectLedger(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(LedgerError, match="has version 3, but this WINK knows versions up to 2"):
        SqliteEffectLedger(path)


def test_a_directory_and_a_read_only_file_are_refused(tmp_path: Path) -> None:
    """Before anything depends on them."""
    with pytest.raises(LedgerError, match="cannot be opened for writing"):
        SqliteEffectLedger(tmp_path)


def test_a_damaged_ledger_is_noticed_before_the_effect(path: Path) -> None:
    """A claim on a torn page raises; nothing runs on the strength of it."""
    with SqliteEffectLedger(path) as ledger:
        for number in range(200):
            ledger.record(idempotency_key=f"k{number}", tool_name="t", params=None, result=ToolResult.ok("x" * 500))
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = os.urandom(200)
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="is damaged"), SqliteEffectLedger(path) as ledger:
        claim(ledger)


def _fill(ledger: SqliteEffectLedger) -> None:
    for number in range(1000):
        claim(ledger, EffectId(f"k{number}"))


def test_a_full_disk_is_noticed_before_the_effect(path: Path) -> None:
    """The claim raises, and goes through once there is room."""
    with SqliteEffectLedger(path) as ledger:
        connection = ledger._database.writer.get()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match=r"the disk is full\. Make room"):
            _fill(ledger)
        connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert isinstance(claim(ledger, EffectId("later")), Claimed)


def test_a_locked_ledger_is_waited_for_then_reported(path: Path) -> None:
    """A short transaction of others is waited out; a long one gives an error that says what to look for."""
    with SqliteEffectLedger(path, patience=0.2) as ledger:
        blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.05, lambda: blocker.execute("ROLLBACK"))
        timer.start()
        assert isinstance(claim(ledger), Claimed)
        timer.join()
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"has been locked for 0.2 s\. Look for a program"):
            claim(ledger, EffectId("other"))
        assert isinstance(claim(ledger), Busy)  # reading needs no lock
        blocker.close()


def test_a_file_that_vanishes_is_noticed(path: Path) -> None:
    """Without it, effects would be repeated: nothing is claimed until a person has looked."""
    with SqliteEffectLedger(path) as ledger:
        path.unlink()
        with pytest.raises(LedgerError, match="was removed or replaced while it was in use"):
            claim(ledger)


@pytest.mark.parametrize("magic", [0x6969, 0xFE534D42, 0x01021997, 0x00C36400])
def test_network_filesystems_are_refused(path: Path, magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's locks do not hold there."""
    monkeypatch.setattr(files, "_magic", _always(magic))
    with pytest.raises(LedgerError, match=r"network filesystem \(.*PostgresEffectLedger"):
        SqliteEffectLedger(path)
    assert not path.exists()


def test_a_network_filesystem_behind_fuse_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its mount; other FUSE filesystems are local."""
    monkeypatch.setattr(files, "_magic", _always(0x65735546))
    SqliteEffectLedger(path).close()
    monkeypatch.setattr(files, "_mounted_as", _always("fuse.sshfs"))
    with pytest.raises(LedgerError, match=r"fuse\.sshfs"):
        SqliteEffectLedger(path)


def test_the_kind_of_a_real_filesystem_is_read() -> None:
    """The system is asked, and answers."""
    assert files._magic(Path("/proc")) == 0x9FA0
    assert files._magic(Path("/nowhere")) == 0
    assert files._mounted_as(Path("/proc")) == "proc"
    assert files.network_filesystem(Path("/proc")) is None


def test_the_wall_clock_does_not_move_leases(path: Path) -> None:
    """Set back or forward, a running call stays running, and an abandoned one becomes unknown in time."""
    clock = FakeClock(datetime(2025, 6, 1, tzinfo=UTC))
    with SqliteEffectLedger(path, clock=clock) as ledger:
        token = claim(ledger, lease=10.0).token
        for day in (datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)):
            clock.set(day)
            assert isinstance(claim(ledger), Busy)
        clock.set(datetime(2020, 1, 1, tzinfo=UTC))
        clock.advance(11)
        assert isinstance(claim(ledger), UnknownOutcome)
        ledger.finish(KEY, token, StoredResult("late"), timedelta(hours=1))
        clock.set(datetime(2019, 1, 1, tzinfo=UTC))
        assert isinstance(claim(ledger), Replay)


def test_a_reboot_ends_all_leases(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock starts anew, so a lease of an earlier boot counts as run out: its owner is gone."""
    with SqliteEffectLedger(path) as ledger:
        claim(ledger, lease=10_000.0)
        monkeypatch.setattr(files, "BOOT", "another")
        assert isinstance(claim(ledger), UnknownOutcome)


def test_tokens_rise_over_everything(path: Path) -> None:
    """Forgetting, expiry and restarts do not bring an old one back."""
    tokens: list[int] = []
    for number in range(4):
        with SqliteEffectLedger(path) as ledger:
            tokens.append(claim(ledger).token)
            if number % 2:
                ledger.finish(KEY, tokens[-1], StoredResult("x"), None)
                ledger.clear()
            else:
                ledger.forget(KEY, tokens[-1])
    assert tokens == sorted(set(tokens))


def _child(ledger: SqliteEffectLedger, inherited: sqlite3.Connection, queue: Any) -> None:
    queue.put((type(claim(ledger)).__name__, ledger._database.writer.get() is inherited))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # other tests may have left threads behind
def test_a_ledger_survives_a_fork(path: Path) -> None:
    """The child opens its own connection; the parent's stays whole."""
    with SqliteEffectLedger(path) as ledger:
        claim(ledger)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=_child, args=(ledger, ledger._database.writer.get(), queue))
        child.start()
        assert queue.get() == ("Busy", False)
        child.join()
        assert child.exitcode == 0
        assert isinstance(claim(ledger), Busy)
        ledger.forget(KEY, ledger.entries()[0].token)


def _open_at_once(path: str, barrier: Any, queue: Any) -> None:
    barrier.wait(20)
    with SqliteEffectLedger(path) as ledger:
        queue.put(type(claim(ledger)).__name__)


@pytest.mark.slow  # processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # other tests may have left threads behind
def test_many_processes_may_make_the_file_together(path: Path) -> None:
    """One makes it, all use it, one claim goes through."""
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(6), context.SimpleQueue()
    children = [context.Process(target=_open_at_once, args=(str(path), barrier, queue)) for _ in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    found = sorted(queue.get() for _ in children)
    assert found == ["Busy"] * 5 + ["Claimed"]


@pytest.mark.slow  # waits for a lease
def test_a_dead_claim_is_reported_quickly(path: Path) -> None:
    """With the real clock: the lease, and not much more."""
    with SqliteEffectLedger(path) as ledger:
        began = time.monotonic()
        claim(ledger, lease=1.0)
        found = claim(ledger)
        assert isinstance(found, Busy)
        while isinstance(found, Busy):
            assert time.monotonic() - began < 30
            time.sleep(0.01)
            found = claim(ledger)
        assert isinstance(found, UnknownOutcome)
        assert time.monotonic() - began >= 1.0
