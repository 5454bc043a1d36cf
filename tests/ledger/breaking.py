"""A connection to PostgreSQL that is lost in the moment of a commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Breaking:
    """A connection that breaks when a transaction is committed: before the server hears of it, or after."""

    def __init__(self, connection: Any, *, after: bool, then: Callable[[], object] = lambda: None) -> None:
        self._connection = connection
        self._after = after
        self._then = then
        self.closed = False

    def execute(self, *args: Any) -> Any:
        return self._connection.execute(*args)

    def transaction(self) -> Any:
        return self

    def __enter__(self) -> None:
        self._inner = self._connection.transaction()
        self._inner.__enter__()

    def __exit__(self, *exc: object) -> None:
        import psycopg

        if self._after:
            self._inner.__exit__(*exc)
        self.close()
        self._then()
        raise psycopg.OperationalError("connection lost")

    def close(self) -> None:
        self.closed = True
        self._connection.close()
