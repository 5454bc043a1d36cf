"""One contract, three ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from weakincentives.runtime.ledger import EffectLedger, Ledger, PostgresEffectLedger, SqliteEffectLedger
from weakincentives.testing import FakeClock, LedgerContract


class TestMemory(LedgerContract):
    def make(self, clock: FakeClock) -> Ledger:
        return EffectLedger(clock=clock)


class TestSqlite(LedgerContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "ledger.db"

    def make(self, clock: FakeClock) -> Ledger:
        return SqliteEffectLedger(self.path, clock=clock)


class TestPostgres(LedgerContract):
    durable = real_time = True

    @pytest.fixture(autouse=True)
    def _place(self, postgres: str) -> None:
        self.dsn = postgres

    def make(self, clock: FakeClock) -> Ledger:
        return PostgresEffectLedger(self.dsn)
