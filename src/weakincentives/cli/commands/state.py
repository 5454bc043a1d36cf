"""`wink state`: see and tidy what is kept so that transactions can be undone after a crash."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..output import LogFormatter, Subcommands, show, show_json, shown_line
from ..usage import FailedError, WrongUseError

if TYPE_CHECKING:
    from ...filesystem.disk.kept_state import KeptState


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("state", help="list, clean or forget what is kept to undo changes of folders")
    actions = parser.add_commands("action")

    listing = _add(actions, "list", "show what is kept, for which folders", run_list)
    listing.add_argument("roots", metavar="ROOT", nargs="*", help="look beside and in these folders as well")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")

    cleaning = _add(actions, "clean", "undo what a killed process left open, then drop what is kept", run_clean)
    cleaning.add_argument("root", metavar="ROOT", help="the folder")

    forgetting = _add(actions, "forget", "throw away what is kept, without undoing anything", run_forget)
    forgetting.add_argument("root", metavar="ROOT", help="the folder, or its id as `list` shows it")
    _add_yes(forgetting)

    importing = _add(actions, "import-v1", "undo what an older version of WINK left open, step by step", run_import)
    importing.add_argument("root", metavar="ROOT", help="the folder")
    _add_yes(importing)

    _add(actions, "rotate-key", "have a new key; only when nothing is left to undo", run_rotate_key)


def _add(
    actions: Subcommands,
    name: str,
    text: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=text)
    where = "the private directory, if it is not $XDG_STATE_HOME/wink or ~/.local/state/wink"
    action.add_argument("--state-dir", metavar="DIR", help=where)
    action.set_defaults(run=partial(_guarded, run))
    return action


def _add_yes(action: argparse.ArgumentParser) -> None:
    action.add_argument("--yes", action="store_true", help="do not ask")


def _guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run it; `FailedError` when it cannot be done, `WrongUseError` when it names what is not there."""
    from ...filesystem.disk.frames import RejectedError  # noqa: PLC0415 - `wink --help` stays quick
    from ...filesystem.disk.state_admin import NotThereError, StateAdminError  # noqa: PLC0415

    try:
        return run(arguments)
    except BrokenPipeError:
        raise
    except RejectedError as error:
        raise FailedError(f"what is there is not used, because {error}") from None
    except NotThereError as error:
        raise WrongUseError(str(error)) from None
    except (StateAdminError, OSError) as error:
        raise FailedError(str(error)) from None


# --- list


def run_list(arguments: argparse.Namespace) -> int:
    """Print what is kept."""
    from ...filesystem.disk.state_admin import list_state  # noqa: PLC0415 - as above

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
    from ...clock import SYSTEM_CLOCK  # noqa: PLC0415 - as above

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


def run_clean(arguments: argparse.Namespace) -> int:
    """Have the folder as it was before a transaction that was left open; 1 when it is in use."""
    from ...filesystem.disk.state_admin import clean  # noqa: PLC0415 - as above

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


def run_forget(arguments: argparse.Namespace) -> int:
    """Throw away what is kept; 1 when the folder is in use, or the answer is no."""
    from ...filesystem.disk.state_admin import find_entry, forget, losses  # noqa: PLC0415 - as above

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


def run_import(arguments: argparse.Namespace) -> int:
    """Tell what version 1 left open, and undo it after a yes; 1 when it cannot be used, or the answer is no."""
    from ...filesystem.disk.state_admin import StateAdminError  # noqa: PLC0415 - as above
    from ...filesystem.disk.version_1 import old_transactions  # noqa: PLC0415 - as above

    if not Path(arguments.root).is_dir():
        raise WrongUseError(f"{arguments.root} is not a directory")
    done = 0
    for old in old_transactions(arguments.root, arguments.state_dir):
        show(f"{shown_line(old.path)} has a transaction that was left open. Whoever could write there could have made")
        show("it up, and you may have worked on these files since. This would undo it:")
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


def run_rotate_key(arguments: argparse.Namespace) -> int:
    """Replace the key; 1 while it is still needed."""
    from ...filesystem.disk.state_admin import rotate_key  # noqa: PLC0415 - as above

    dropped = rotate_key(arguments.state_dir)
    show(f"There is a new key. Copies that were kept (folders: {dropped}) are made again when they are needed.")
    return 0


def _agreed(question: str, arguments: argparse.Namespace) -> bool:
    """Ask, unless it was answered on the command line. Without a terminal it must be."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise WrongUseError("standard input is not a terminal, so this cannot ask; add --yes to go ahead")
    show(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    show("Nothing was changed.")
    return False
