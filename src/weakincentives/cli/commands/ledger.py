"""`wink ledger`: see what an effect ledger holds, and settle what is unknown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from ...errors import LedgerError
from ...results import ToolResult
from ...runtime.ledger import EffectId, Ledger, LedgerEntry, PostgresEffectLedger, SqliteEffectLedger
from ...runtime.ledger.sqlite_file import NotALedgerError
from ..output import FailedError, UsageError, existing_file, show, show_json
from ..run_stores import is_dsn


def run_list(arguments: argparse.Namespace) -> int:
    """Print the rows."""
    return _with_ledger(arguments, lambda ledger: _list(ledger, arguments))


def run_resolve(arguments: argparse.Namespace) -> int:
    """Settle one row; `FailedError` when there is nothing to settle."""
    return _with_ledger(arguments, lambda ledger: _resolve(ledger, arguments))


def _with_ledger(arguments: argparse.Namespace, step: Callable[[Ledger], int]) -> int:
    try:
        ledger = _open(arguments.ledger)
        try:
            return step(ledger)
        finally:
            ledger.close()
    except (ImportError, NotALedgerError) as error:
        raise UsageError(str(error)) from None
    except LedgerError as error:
        raise FailedError(str(error)) from None


def _open(where: str) -> Ledger:
    if is_dsn(where):
        return PostgresEffectLedger(where)
    if not existing_file(where).stat().st_size:  # opening it for a claim would make it a ledger
        raise UsageError(f"{where} is empty, not an effect ledger")
    return SqliteEffectLedger(where)


def _list(ledger: Ledger, arguments: argparse.Namespace) -> int:
    entries = ledger.entries(arguments.state)
    for entry in entries:
        if arguments.json:
            show_json(_as_json(entry))
        else:
            when = entry.started_at.isoformat(sep=" ", timespec="seconds")
            show(f"{entry.state:<9}  {when}  {entry.id.text}  {_detail(entry)}".rstrip())
    if not arguments.json:
        unknown = sum(entry.state == "unknown" for entry in entries)
        show(f"{len(entries)} {'call' if len(entries) == 1 else 'calls'}, {unknown} unknown.")
        if unknown:
            show("Find out what happened, then: wink ledger resolve FILE KEY --done | --absent")
    return 0


def _detail(entry: LedgerEntry) -> str:
    if entry.effect is not None:
        return entry.effect.result_message.partition("\n")[0]
    if entry.state == "started":
        left = entry.lease_left
        return f"(lease: {left:.0f} s)" if left > 0 else "(lease run out: will be reported as unknown)"
    return f"({entry.why})"


def _as_json(entry: LedgerEntry) -> dict[str, object]:
    effect = entry.effect
    return {
        "key": entry.id.key,
        "session_id": entry.id.session_id,
        "tool": entry.tool_name,
        "state": entry.state,
        "started_at": entry.started_at.isoformat(),
        "lease_left": entry.lease_left,
        "why": entry.why,
        "message": None if effect is None else effect.result_message,
        "value": None if effect is None else effect.result_value,
        "expires_at": None if effect is None or effect.expires_at is None else effect.expires_at.isoformat(),
    }


def _resolve(ledger: Ledger, arguments: argparse.Namespace) -> int:
    result: ToolResult[object] | None = None
    if arguments.done:
        try:
            value = None if arguments.value is None else json.loads(arguments.value)
        except ValueError as error:
            raise UsageError(f"--value is not valid JSON: {error}") from None
        result = ToolResult(arguments.message, value)
    found = _find(ledger, arguments.key)
    if not ledger.resolve(found, result, force=arguments.force):
        raise FailedError(f"{found.text} succeeded already: there is nothing to settle")
    show(f"{found.text}: {'recorded as done' if arguments.done else 'may run again'}.")
    return 0


def _find(ledger: Ledger, key: str) -> EffectId:
    """The one call with that key; `UsageError` when there is none, or several."""
    entries = ledger.entries()
    exact = [entry.id for entry in entries if entry.id.text == key]
    found = exact or [entry.id for entry in entries if entry.id.key == key]
    if not found:
        raise UsageError(f"there is no call {key}; `wink ledger list FILE` shows them")
    if len(found) > 1:
        raise UsageError(f"several sessions have {key}; name one: {', '.join(each.text for each in found)}")
    return found[0]
