"""`wink state`: see and tidy what is kept so that transactions can be undone after a crash."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from ...clock import SYSTEM_CLOCK
from ...filesystem.disk.journal import RejectedError
from ...filesystem.disk.kept_state import KeptState
from ...filesystem.disk.state_admin import (
    NotThereError,
    StateAdminError,
    clean,
    find_entry,
    forget,
    list_state,
    losses,
    rotate_key,
)
from ...filesystem.disk.version_1 import old_transactions
from ..output import FailedError, LogFormatter, UsageError, show, show_json, shown_line


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """`FailedError` when the command cannot be carried out, `UsageError` when it names what is not there."""

    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except BrokenPipeError:
            raise
        except RejectedError as error:
            raise FailedError(f"what is there is not used, because {error}") from None
        except NotThereError as error:
            raise UsageError(str(error)) from None
        except (StateAdminError, OSError) as error:
            raise FailedError(str(error)) from None

    return guarded


# --- list


@_guarded
def run_list(arguments: argparse.Namespace) -> int:
    """Print what is kept."""
    found = list_state(arguments.state_dir, arguments.roots)
    if arguments.json:
        for state in found.states:
            show_json(_as_json(state))
        for name, reason in found.unusable:
            show_json({"id": name, "unusable": reason})
        for stray in found.strays:
            show_json({"stray": stray.path, "version": stray.version})
        return 0
    for state in found.states:
        show(_as_text(state))
    for name, reason in found.unusable:
        show(shown_line(f"{name}  cannot be used: {reason}"))
    for stray in found.strays:
        show(shown_line(f"{stray.path}  {_STRAYS[stray.version]}"))
    waiting = sum(state.status == "open" for state in found.states)
    show(f"Folders: {len(found.states)}; with a transaction that was left open: {waiting}.")
    if waiting:
        show("Opening such a folder undoes it, and so does: wink state clean ROOT")
    return 0


_STRAYS = {
    1: "undo state of an older version of WINK, which is not used; see: wink state import-v1 ROOT",
    2: "nothing here refers to it: kept with another --state-dir, or left by a killed process that had none",
}


def _as_text(state: KeptState) -> str:
    root = state.root or "(an entry that does not say for what)"
    notes = [state.status]
    if state.root and not state.there:
        notes.append("the folder is gone or was renamed")
    if state.rejected:
        notes.append(f"{len(state.rejected)} things put aside")
    lines = [root, f"{state.id}  {', '.join(notes)}", f"{_size(state.size)}, changed {_age(state.changed)} ago"]
    if state.vault:
        lines.append(f"old files in {state.vault}")
    return "\n    ".join(map(shown_line, lines))


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 10_000:
            return f"{count} {unit}"
        count //= 1000
    return f"{count} GB"


def _age(when: float) -> str:
    seconds = max(0, int(SYSTEM_CLOCK.time() - when))
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"


def _as_json(state: KeptState) -> dict[str, object]:
    return {
        "id": state.id,
        "root": state.root,
        "there": state.there,
        "status": state.status,
        "rejected": list(state.rejected),
        "vault": state.vault,
        "size": state.size,
        "changed": state.changed,
    }


# --- changing something


@_guarded
def run_clean(arguments: argparse.Namespace) -> int:
    """Have the folder as it was before a transaction that was left open; 1 when it is in use."""
    handler = logging.StreamHandler()  # what was undone, and what was not and why
    handler.setLevel(logging.WARNING)
    handler.setFormatter(LogFormatter(handler.stream))
    logger = logging.getLogger("weakincentives.filesystem")
    logger.addHandler(handler)
    try:
        left = clean(arguments.root, arguments.state_dir)
    finally:
        logger.removeHandler(handler)
    root = shown_line(arguments.root)
    if left:
        show(f"{root} is clean: no transaction is open. What was put aside before is kept: {', '.join(left)}")
        show("Look at it, then: wink state forget ROOT")
    else:
        show(f"{root} is clean: no transaction is open, and nothing is kept for it.")
    return 0


@_guarded
def run_forget(arguments: argparse.Namespace) -> int:
    """Throw away what is kept; 1 when the folder is in use, or the answer is no."""
    with find_entry(arguments.root, arguments.state_dir) as entry:
        path = shown_line(entry.record.path if entry.record is not None else entry.name)
        lost = losses(entry)
        show(f"What is kept for {path} ({entry.name}):")
        for line in lost or ["Nothing that could be undone."]:
            show("  " + shown_line(line))
        if not _agreed("Throw it away?", arguments):
            return 1
        for left in forget(entry, lost):
            show(f"Not removed, as there is something else in it: {left}")
    show(f"Forgotten: {path}")
    return 0


@_guarded
def run_import(arguments: argparse.Namespace) -> int:
    """Tell what version 1 left open, and undo it after a yes; 1 when it cannot be used, or the answer is no."""
    if not Path(arguments.root).is_dir():
        raise UsageError(f"{arguments.root} is not a directory")
    done = 0
    for old in old_transactions(arguments.root, arguments.state_dir):
        show(f"{shown_line(old.path)} has a transaction that was left open. Anyone with the right to write there could")
        show("have made it up, and you may have worked on these files since. This would undo it:")
        for line in old.lines():
            show("  " + shown_line(line))
        if not _agreed("Undo it?", arguments):
            return 1
        old.undo()
        removed = old.remove()
        show(f"Undone. {'Removed' if removed else 'Something else is left in'}: {shown_line(old.path)}")
        done += 1
    if not done:
        raise StateAdminError(f"version 1 left nothing open in {arguments.root}")
    return 0


@_guarded
def run_rotate_key(arguments: argparse.Namespace) -> int:
    """Replace the key; 1 while it is still needed."""
    dropped = rotate_key(arguments.state_dir)
    show(f"There is a new key. Copies that were kept (folders: {dropped}) are made again when they are needed.")
    return 0


def _agreed(question: str, arguments: argparse.Namespace) -> bool:
    """Ask, unless it was answered on the command line. Without a terminal it must be."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("standard input is not a terminal, so this cannot ask; add --yes to go ahead")
    show(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    show("Nothing was changed.")
    return False
