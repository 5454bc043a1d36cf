"""The store of runs that a command line names."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from ..errors import RecordError
from ..runtime.record import PostgresRunStore, Seal, SqliteRunStore
from ..runtime.record.sql import SqlRunStore
from .loading import load_object
from .output import FailedError, UsageError, existing_file


def is_dsn(where: str) -> bool:
    """Whether this names a PostgreSQL database; a path may have a `=` too, but further on."""
    return re.match(r"postgres(?:ql)?://|\w+\s*=", where) is not None


def open_store(where: str, seal: str | None) -> SqlRunStore:
    """The store in that file or database, made if it is not there; raises `RecordError`, `ImportError`.

    `seal` is what `--seal` names; `UsageError` when that is not a seal.
    """
    found = None if seal is None else _seal(seal)
    return PostgresRunStore(where, seal=found) if is_dsn(where) else SqliteRunStore(where, seal=found)


def _seal(text: str) -> Seal:
    found = load_object(text)
    if isinstance(found, type) or not isinstance(found, Seal):
        raise UsageError(f"{text} is not a seal; name an object with the methods seal() and open()")
    return found


@contextmanager
def existing_store(where: str, seal: str | None) -> Generator[SqlRunStore]:
    """Open a store that is there, for the block; `UsageError` when there is none, `FailedError` for `RecordError`."""
    if not is_dsn(where) and not existing_file(where).stat().st_size:  # opening it would make it a store
        raise UsageError(f"{where} is empty, not a store of runs")
    try:
        with open_store(where, seal) as store:
            yield store
    except ImportError as error:
        raise UsageError(str(error)) from None
    except RecordError as error:
        raise FailedError(str(error)) from None


__all__ = ["existing_store", "is_dsn", "open_store"]
