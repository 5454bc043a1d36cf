"""`wink ledger`: see what an effect ledger holds, and settle what is unknown."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..output import Subcommands, show, show_json
from ..usage import FailedError, WrongUseError, existing_file

if TYPE_CHECKING:
    from ...runtime.ledger import EffectId, Ledger, LedgerEntry


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("ledger", help="list the effects of an effect ledger, settle unknown ones")
    actions = parser.add_commands("action")
    where = "the ledger's file, or the DSN of a PostgreSQL database"

    listing = actions.add_parser("list", help="show calls, oldest first")
    listing.add_argument("ledger", metavar="FILE", help=where)
    listing.add_argument("--state", choices=("started", "succeeded", "unknown"), help="only these")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=run_list)

    resolving = actions.add_parser("resolve", help="say how an unknown call ended")
    resolving.add_argument("ledger", metavar="FILE", help=where)
    resolving.add_argument("key", metavar="KEY", help="as `list` shows it")
    how = resolving.add_mutually_exclusive_group(required=True)
    how.add_argument("--done", action="store_true", help="it happened: the next call is answered with the result")
    how.add_argument("--absent", action="store_true", help="it did not happen: the next call runs")
    resolving.add_argument("--message", default="Done.", help="with --done: what the model reads")
    resolving.add_argument("--value", metavar="JSON", help="with --done: the result's value")
    resolving.add_argument("--force", action="store_true", help="also for a call that may still be running")
    resolving.set_defaults(run=run_resolve)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the rows."""
    return _with_ledger(arguments, lambda ledger: _list(ledger, arguments))


def run_resolve(arguments: argparse.Namespace) -> int:
    """Settle one row; `FailedError` when there is nothing to settle."""
    return _with_ledger(arguments, lambda ledger: _resolve(ledger, arguments))


def _with_ledger(arguments: argparse.Namespace, step: Callable[[Ledger], int]) -> int:
    from ...errors import LedgerError  # noqa: PLC0415 - heavy, see main.build_parser
    from ...runtime.ledger.sqlite_file import NotALedgerError  # noqa: PLC0415 - as above

    try:
        ledger = _open(arguments.ledger)
        try:
            return step(ledger)
        finally:
            ledger.close()
    except (ImportError, NotALedgerError) as error:
        raise WrongUseError(str(error)) from None
    except LedgerError as error:
        raise FailedError(str(error)) from None


def _open(where: str) -> Ledger:
    from ...runtime.ledger import PostgresEffectLedger, SqliteEffectLedger  # noqa: PLC0415 - heavy, see main.build_parser

    if re.match(r"postgres(?:ql)?://|\w+\s*=", where):  # a path may have a `=`, but further on
        return PostgresEffectLedger(where)
    if not existing_file(where).stat().st_size:  # opening it for a claim would make it a ledger
        raise WrongUseError(f"{where} is empty, not an effect ledger")
    return SqliteEffectLedger(where)


def _list(ledger: Ledger, arguments: argparse.Namespace) -> int:
    entries = ledger.entries(arguments.state)
    for entry in entries:
        if arguments.json:
            show_json(_as_json(entry))
        else:
            show(_as_line(entry))
    if not arguments.json:
        unknown = sum(entry.state == "unknown" for entry in entries)
        show(f"{len(entries)} calls, {unknown} of them unknown.")
        if unknown:
            show("Find out what happened, then: wink ledger resolve FILE KEY --done | --absent")
    return 0


def _as_line(entry: LedgerEntry) -> str:
    when = entry.started_at.isoformat(sep=" ", timespec="seconds")
    return f"{entry.state:<9}  {when}  {entry.id.text}  {_detail(entry)}".rstrip()


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
    from ...results import ToolResult  # noqa: PLC0415 - heavy, see main.build_parser

    result: ToolResult[object] | None = None
    if arguments.done:
        try:
            value = None if arguments.value is None else json.loads(arguments.value)
        except ValueError as error:
            raise WrongUseError(f"--value is not valid JSON: {error}") from None
        result = ToolResult(arguments.message, value)
    found = _find(ledger, arguments.key)
    if len(found) != 1:
        raise WrongUseError(_which(arguments.key, found))
    if not ledger.resolve(found[0], result, force=arguments.force):
        raise FailedError(f"{found[0].text} succeeded already: there is nothing to settle")
    show(f"{found[0].text}: {'recorded as done' if arguments.done else 'may run again'}.")
    return 0


def _find(ledger: Ledger, key: str) -> list[EffectId]:
    entries = ledger.entries()
    exact = [entry.id for entry in entries if entry.id.text == key]
    return exact or [entry.id for entry in entries if entry.id.key == key]


def _which(key: str, found: list[EffectId]) -> str:
    if not found:
        return f"there is no call {key}; `wink ledger list FILE` shows them"
    return f"several sessions have {key}; name one: {', '.join(effect_id.text for effect_id in found)}"
