"""The PostgreSQL server of the ledger's tests, for runs."""

from __future__ import annotations

from ..ledger.conftest import postgres, postgres_server, pytest_collection_modifyitems

__all__ = ["postgres", "postgres_server", "pytest_collection_modifyitems"]
