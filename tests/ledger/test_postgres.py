"""The PostgreSQL ledger's server: restarts, locks, strangers."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from weakincentives.errors import LedgerError
from weakincentives.runtime.ledger import (
    Busy,
    Claimed,
    EffectId,
    PostgresEffectLedger,
    Replay,
    StoredResult,
    UnknownOutcome,
)

from .breaking import Breaking
from .conftest import Server

KEY = EffectId("shop:refund:1")


def claim(ledger: PostgresEffectLedger, effect_id: EffectId = KEY, lease: float = 60.0) -> Any:
    return ledger.claim(effect_id, tool_name="refund", params_hash="h", lease=lease, strict_params=False)


def connect(dsn: str) -> Any:
    import psycopg

    return psycopg.connect(dsn, autocommit=True)


def test_it_lives_through_a_restart_of_the_server(postgres_server: Server, postgres: str) -> None:
    """Connections are opened again, and everything that was claimed is still there."""
    with PostgresEffectLedger(postgres) as ledger:
        token = claim(ledger).token
        for mode in ("fast", "immediate"):
            postgres_server.stop(mode)
            postgres_server.start()
            assert isinstance(claim(ledger), Busy)
        ledger.finish(KEY, token, StoredResult("Done."), None)
        assert isinstance(claim(ledger), Replay)


def test_a_server_that_is_away_is_waited_for(postgres_server: Server, postgres: str) -> None:
    """A claim made meanwhile goes through when it is back."""
    with PostgresEffectLedger(postgres) as ledger:
        postgres_server.stop()
        timer = threading.Timer(0.3, postgres_server.start)
        timer.start()
        assert isinstance(claim(ledger), Claimed)
        timer.join()


def test_a_server_that_stays_away_is_an_error_before_the_effect(postgres_server: Server, postgres: str) -> None:
    """It says so, at once when the ledger is made, and after the patience later."""
    with PostgresEffectLedger(postgres, patience=0.3) as ledger:
        postgres_server.stop()
        try:
            with pytest.raises(LedgerError, match="cannot be reached"):
                claim(ledger)
            with pytest.raises(LedgerError, match="cannot be used"):
                PostgresEffectLedger(postgres)
        finally:
            postgres_server.start()
        assert isinstance(claim(ledger), Claimed)


def test_a_claim_whose_answer_was_lost_is_recognised(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit went through, then the connection broke: trying again finds its own claim, not a rival's."""
    with PostgresEffectLedger(postgres) as ledger:
        ledger._server.release(Breaking(ledger._server.acquire(), after=True))
        found = claim(ledger)
        assert isinstance(found, Claimed)
        (entry,) = ledger.entries()
        assert entry.token == found.token
        ledger._server.discard(ledger._server.acquire())
        ledger._server.release(Breaking(ledger._server.acquire(), after=True))
        effect = ledger.finish(KEY, found.token, StoredResult("Done."), timedelta(hours=1))
        assert effect.result_message == "Done."


def test_a_row_that_others_lock_is_an_error_after_a_while(postgres: str) -> None:
    """An open transaction of another program does not stop everything forever."""
    with PostgresEffectLedger(postgres, patience=0.2) as ledger:
        claim(ledger, lease=0.01)
        time.sleep(0.02)
        with connect(postgres) as other, other.transaction():
            other.execute("SELECT * FROM wink_effects FOR UPDATE")
            with pytest.raises(LedgerError, match=r"refused: .*lock timeout"):
                claim(ledger)
        assert isinstance(claim(ledger), UnknownOutcome)


def test_a_ledger_of_the_future_is_refused(postgres: str) -> None:
    """An older WINK would not know what the rows mean."""
    PostgresEffectLedger(postgres).close()
    with connect(postgres) as other:
        other.execute("UPDATE wink_ledger SET version = 3")
    with pytest.raises(LedgerError, match="has version 3, but this WINK knows versions up to 2"):
        PostgresEffectLedger(postgres)


def test_commits_wait_for_the_disk_whatever_the_server_says(postgres: str) -> None:
    """A crash must not lose a claim."""
    with PostgresEffectLedger(
        f"{postgres}\\ -csynchronous_commit=off".replace("options=", "options='") + "'"
    ) as ledger:
        connection = ledger._server.acquire()
        assert connection.execute("SHOW synchronous_commit").fetchone()[0] == "on"
        ledger._server.release(connection)


def test_many_may_make_the_tables_together(postgres: str) -> None:
    """One makes them, all use them, one claim goes through."""
    found: list[Any] = []

    def use() -> None:
        with PostgresEffectLedger(postgres) as ledger:
            found.append(claim(ledger))

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(item).__name__ for item in found) == ["Busy"] * 5 + ["Claimed"]


def test_the_servers_clock_counts(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose own clock is wrong disturbs no other."""
    with PostgresEffectLedger(postgres) as ledger:
        token = claim(ledger).token
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert isinstance(claim(ledger), Busy)
        effect = ledger.finish(KEY, token, StoredResult("x"), timedelta(hours=1))
        assert effect.created_at.year > 2000


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every extra."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'weakincentives\[postgres\]'"):
        PostgresEffectLedger("host=nowhere")
