"""`wink prune` and `wink verify`: old runs removed from a store, and whether it can be read."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from ..output import UsageError, count, show, show_json, shown_line
from ..run_stores import existing_store

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def run_prune(arguments: argparse.Namespace) -> int:
    """Remove runs that ended long ago, and say which."""
    older_than = _age(arguments.older_than)
    with existing_store(arguments.store, arguments.seal) as store:
        removed = store.prune(older_than, interrupted=arguments.interrupted, dry_run=arguments.dry_run)
    if arguments.json:
        show_json({"removed": [info.run_id for info in removed], "dry_run": arguments.dry_run})
        return 0
    for info in removed:
        show(f"{shown_line(info.run_id)}  {shown_line(info.loop)}")
    runs = count(len(removed), "run")
    show(f"{runs} would be removed." if arguments.dry_run else f"Removed {runs}.")
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Read everything that is in the store; the exit code is 1 when something is wrong."""
    with existing_store(arguments.store, arguments.seal, reads=True) as store:
        problems = store.verify()
        runs = len(store.infos())
    if arguments.json:
        show_json({"runs": runs, "problems": list(problems)})
    else:
        for problem in problems:
            show(shown_line(problem))
        found = count(len(problems), "problem") if problems else "nothing wrong"
        show(f"{count(runs, 'run')}, {found}.")
    return 1 if problems else 0


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if found is None:
        raise UsageError(f"--older-than takes a number with s, m, h, d or w, such as 30d, not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
