"""Keeping a store small: runs are removed with their rows, and so is content that no run refers to any more."""
# ruff: noqa: S608 - statements are put together from constants; whatever comes from outside is a value

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..ledger.sql import SqlTransaction
from .seals import RowForm
from .statements import RUN_ROWS
from .verification import MARK, digests_in

_PAGE = 1000

Unused = tuple[str, Any]
"""The name of content that no run refers to, and which version of its row is meant."""


def remove_run(transaction: SqlTransaction, run_id: str, token: int) -> bool:
    """Remove a run with its rows; False when another process has taken it meanwhile, or removed it."""
    removed = transaction.change(
        "DELETE FROM wink_runs WHERE run_id = :run_id AND token = :token", run_id=run_id, token=token
    )
    if removed:
        for table, _ in RUN_ROWS:
            transaction.change(f"DELETE FROM {table} WHERE run_id = :run_id", run_id=run_id)
    return removed > 0


def unused_content(transaction: SqlTransaction, form: RowForm, version: str = "0") -> list[Unused]:
    """The content that no run refers to, all of it seen at one moment; `version` is what tells versions of a row."""
    known = transaction.rows(f"SELECT hash, {version} FROM wink_blobs ORDER BY hash")
    used: set[str] = set()
    for table, column in (("wink_files", "before"), ("wink_files", "after"), ("wink_frames", "blob")):
        found = transaction.rows(f"SELECT DISTINCT {column} FROM {table} WHERE {column} <> ''")
        used.update(reference.rpartition(":")[2] for (reference,) in found)
    for row in _pages(lambda after: _bodies(transaction, after, "%" if form.hides_names else f"%{MARK}%")):
        used.update(map(form.name, digests_in(form.body_text(row[-1]))))
    return [(name, seen) for name, seen in known if name not in used]


def remove_content(transaction: SqlTransaction, unused: Iterable[Unused], version: str = "0") -> None:
    """Remove content, unless its row is another version by now."""
    for name, seen in unused:
        transaction.change(f"DELETE FROM wink_blobs WHERE hash = :hash AND {version} = :seen", hash=name, seen=seen)


def _bodies(transaction: SqlTransaction, after: Sequence[Any], pattern: str) -> Sequence[Sequence[Any]]:
    run_id, seq = after or ("", 0)
    return transaction.rows(
        "SELECT run_id, seq, body FROM wink_steps WHERE (run_id > :run_id OR (run_id = :run_id AND seq > :seq)) "
        f"AND body LIKE :pattern ORDER BY run_id, seq LIMIT {_PAGE}",
        run_id=run_id, seq=seq, pattern=pattern,
    )  # fmt: skip


def _pages(page: Callable[[Sequence[Any]], Sequence[Sequence[Any]]]) -> Iterator[Sequence[Any]]:
    """All rows of a query that takes the first columns of the row to begin after; the last column is the content."""
    after: Sequence[Any] = ()
    while True:
        rows = page(after)
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][:-1]


__all__ = ["Unused", "remove_content", "remove_run", "unused_content"]
