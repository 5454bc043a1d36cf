"""The store of runs that a command line names."""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from ..errors import RecordError
from ..runtime.record import PostgresRunStore, RecordedRun, Seal, SqliteRunStore
from ..runtime.record.export import reading_copy
from ..runtime.record.sql import SqlRunStore, check_id
from ..runtime.record.sqlite import NotARunStoreError
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
def existing_store(where: str, seal: str | None, *, reads: bool = False) -> Generator[SqlRunStore]:
    """Open a store that is there, for the block; `UsageError` when there is none, `FailedError` for `RecordError`.

    With `reads` a file that `wink export` wrote stays as it is, to the byte.
    """
    if not is_dsn(where) and not existing_file(where).stat().st_size:  # opening it would make it a store
        raise UsageError(f"{where} is empty, not a store of runs")
    if not is_dsn(where) and _is_ledger(Path(where)):
        raise UsageError(f"{where} is an effect ledger without runs; `wink ledger list` shows what it has")
    try:
        with _copy(where, seal) if reads and _is_exported(where) else open_store(where, seal) as store:
            yield store
    except (ImportError, NotARunStoreError) as error:
        raise UsageError(str(error)) from None
    except RecordError as error:
        raise FailedError(str(error)) from None


def _is_ledger(path: Path) -> bool:
    """Whether no run was ever recorded in the file, only effects; opening it would make it a store."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return False  # opening it says what is wrong
    return "wink_effects" in names and "wink_record" not in names


def _is_exported(where: str) -> bool:
    """Whether the file has no log of its own, as no store has that was ever opened."""
    if is_dsn(where):
        return False
    with Path(where).open("rb") as file:
        header = file.read(20)
    return header.startswith(b"SQLite format 3\0") and header[18:20] == b"\1\1"


def _copy(where: str, seal: str | None) -> AbstractContextManager[SqlRunStore]:
    return reading_copy(Path(where), None if seal is None else _seal(seal))


def existing_run(store: SqlRunStore, where: str, run_id: str, *steps: int) -> RecordedRun:
    """A run of the store; `UsageError` when it is not there, or does not have these steps."""
    if not run_id.isprintable() or store.info(run_id) is None:  # an id that is not, no database is asked for
        raise UsageError(f"there is no run {run_id!r}; `wink runs {shlex.quote(where)}` lists them")
    run = store.open(run_id)
    for seq in steps:
        try:
            run.step(seq)
        except RecordError:
            place = f"{shlex.quote(where)} {shlex.quote(run_id)}"
            raise UsageError(f"the run {run_id!r} has no step {seq}; `wink show {place}` lists them") from None
    return run


def new_run_id(option: str, given: str) -> str:
    """The name that a command line gives a run; `UsageError` when no run can have it."""
    try:
        check_id(given)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    return given


__all__ = ["existing_run", "existing_store", "is_dsn", "new_run_id", "open_store"]
