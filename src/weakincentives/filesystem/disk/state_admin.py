"""Managing kept undo state by hand: list it, recover a root, delete state, replace the key.

Each step that removes something holds the root's lock, and removes the undo instructions before the files they refer
to. So an interruption at any point leaves nothing that would undo only part of a transaction.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import JournalError
from . import private_dir
from .filesystem import HostFilesystem
from .kept_state import KeptState, StateEntry, drop_all, drop_copies, entries, entry_name
from .private_dir import NotPrivateError, PrivateDir
from .syscalls import Syscalls

_id = re.compile(r"[0-9a-f]{8,32}").fullmatch
_vault = re.compile(r"wink-[0-9a-f]{16}").fullmatch

_WHAT_WAS: Final = {
    "create": "{path} was made and stays",
    "replace": "{path} was changed and stays so; what it was before is lost",
    "delete": "{path} was deleted; it is lost",
    "move": "{path} was moved to {target} and stays there",
}


class StateAdminError(Exception):
    """What was asked for cannot be done; the text says why and what to do."""


class NotThereError(StateAdminError):
    """What was named is not there, or is several things."""


class Stray(NamedTuple):
    """A directory beside or in a root that looks like undo state, and that nothing here refers to."""

    path: str
    version: int


class StateListing(NamedTuple):
    """All that is kept, entries that cannot be used with the reason, and what lies about near the roots."""

    states: list[KeptState]
    unusable: list[tuple[str, str]]
    strays: list[Stray]


def list_state(state_dir: str | os.PathLike[str] | None = None, roots: Iterable[str] = ()) -> StateListing:
    """What is kept in the private directory. Changes nothing; `StateAdminError` where it cannot be used.

    Args:
        state_dir: the private directory; None stands for the user's.
        roots: further roots near which to look for state that nothing refers to.
    """
    home = _find_home(state_dir)
    states: list[KeptState] = []
    unusable: list[tuple[str, str]] = []
    if home is not None:
        for entry in entries(Syscalls(), home):
            if isinstance(entry, StateEntry):
                states.append(entry.describe())
            else:
                unusable.append(entry)
    near = dict.fromkeys([*(state.root for state in states if state.root), *map(os.path.realpath, roots)])
    known = {state.vault for state in states}
    return StateListing(
        states, unusable, [stray for root in near for stray in _strays(root) if stray.path not in known]
    )


def _strays(root: str) -> list[Stray]:
    found: list[Stray] = []
    parent, name = os.path.split(root)
    for directory, prefix in ((parent, f".{name}."), (root, ".")):
        with suppress(OSError), os.scandir(directory) as children:
            for child in children:
                rest = child.name.removeprefix(prefix)
                if rest == child.name or not child.is_dir(follow_symlinks=False):
                    continue
                if child.stat(follow_symlinks=False).st_uid == os.geteuid() and (rest == "wink" or _vault(rest)):
                    found.append(Stray(child.path, 1 if rest == "wink" else 2))
    return sorted(found)


def clean(root: str, state_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Undo what a killed process left open in the root, then drop what is kept; returns what was put aside and stays.

    Raises `JournalError` when another process is at work there, or the undo fails, and `StateAdminError`.
    """
    if not Path(root).is_dir():
        raise NotThereError(f"{root} is not a directory. If it is gone for good: wink state forget {root}")
    home = _find_home(state_dir)
    if home is None:
        raise StateAdminError(f"nothing is kept in {_location(state_dir)}")
    HostFilesystem(root, state_dir=home.path).close()
    path = os.path.realpath(root)
    name = entry_name(Syscalls(), home, path)
    try:
        opened = StateEntry(Syscalls(), home, name or "", path)
    except FileNotFoundError:
        return []
    except (OSError, NotPrivateError) as error:
        raise StateAdminError(str(error)) from error
    with opened as entry, entry.locked():
        if entry.is_open():
            raise JournalError(f"A process has just begun a transaction in {root}. Try again when it is over.")
        drop_copies(entry)
        left = entry.rejected()
        if not left:
            drop_all(entry)
        return left


def find_entry(what: str, state_dir: str | os.PathLike[str] | None = None) -> StateEntry:
    """The entry of a root, given by its path, or by its id or the beginning of it. Its caller closes it.

    Raises `NotThereError` when there is none, or more than one.
    """
    home = _find_home(state_dir)
    sys = Syscalls()
    name = entry_name(sys, home, os.path.realpath(what)) if home is not None else None
    if home is not None and name is not None:
        with suppress(FileNotFoundError):
            return _open(sys, home, name, os.path.realpath(what))
    names: list[str] = []
    for entry in entries(sys, home) if home is not None else ():
        at, of = (entry.name, entry.record) if isinstance(entry, StateEntry) else (entry[0], None)
        path = of.path if of is not None else None
        if path in {os.path.realpath(what), what} or (_id(what) and at.startswith(what)):
            names.append(at)
    if len(names) != 1 or home is None:
        why = (
            f"{what} has more than one entry: {', '.join(names)}. Name one" if names else f"nothing is kept for {what}"
        )
        raise NotThereError(f"{why}; `wink state list` shows what there is")
    return _open(sys, home, names[0], None)


def _open(sys: Syscalls, home: PrivateDir, name: str, root: str | None) -> StateEntry:
    try:
        return StateEntry(sys, home, name, root)
    except NotPrivateError as error:
        raise StateAdminError(f"{error}. Make it yours and private, or remove it") from error


def losses(entry: StateEntry) -> list[str]:
    """What is lost when the entry is thrown away, one line each."""
    lines: list[str] = []
    if entry.is_open():
        lines.append("A transaction was left open. It will not be undone: the files stay as they are now.")
        for record in entry.records():
            lines += ["  " + _WHAT_WAS[record.operation].format(path=record.path, target=record.target)]
    if entry.is_watched():
        lines.append("  the copy of the root from before the transaction is lost")
    if copies := entry.copies():
        lines.append(f'The copy that watch="scan" keeps ({copies} files); it is made again when it is needed.')
    lines += [f"{name}, which was put aside and not used" for name in entry.rejected()]
    return lines


def forget(entry: StateEntry, lost: list[str]) -> list[str]:
    """Throw away what is kept for a root; returns the directories that could not be removed, as others wrote to them.

    `lost` is what `losses` returned when the user agreed. Raises `StateAdminError` when that has changed since, and
    `JournalError` when a process is at work in the root.
    """
    with entry.locked():
        if losses(entry) != lost:
            raise StateAdminError("what is kept has changed in the meantime; list it again")
        return drop_all(entry)


def rotate_key(state_dir: str | os.PathLike[str] | None = None) -> int:
    """Replace the key; the copies of `watch="scan"` go with the old one. Returns for how many roots.

    Raises `StateAdminError` while anything could still be undone or looked at, and `JournalError` while a process is at
    work. Then the key is the old one.
    """
    home = _find_home(state_dir)
    if home is None:
        raise StateAdminError(f"there is no key in {_location(state_dir)} yet")
    with private_dir.alone(home.path):
        _refuse_needed(home)
        count = 0
        for entry in entries(Syscalls(), home):
            if isinstance(entry, StateEntry):
                with entry.locked():
                    if entry.is_open():
                        raise JournalError(f"A process has just begun a transaction in {entry.root}. Try again.")
                    drop_all(entry)
                    count += 1
        private_dir.replace_key(home.path)
    return count


def _refuse_needed(home: PrivateDir) -> None:
    needed: list[str] = []
    for entry in entries(Syscalls(), home):
        if not isinstance(entry, StateEntry):
            needed.append(f"{entry[0]} cannot be used: {entry[1]}")
            continue
        state = entry.describe()
        name = state.root if state.there else state.id
        if state.status == "in use":
            needed.append(f"a process is at work in {state.root}: wait until it is over")
        elif state.status == "open":
            needed.append(f"a transaction was left open: wink state {'clean' if state.there else 'forget'} {name}")
        elif state.rejected:
            needed.append(f"something was put aside: wink state forget {name}")
    if needed:
        raise StateAdminError("the key is still needed.\n  " + "\n  ".join(needed))


# --- the private directory


def _location(state_dir: str | os.PathLike[str] | None) -> str:
    try:
        return private_dir.location(state_dir)
    except NotPrivateError as error:
        raise StateAdminError(f"{error}; name a directory with --state-dir") from error


def _find_home(state_dir: str | os.PathLike[str] | None) -> PrivateDir | None:
    try:
        return private_dir.find(_location(state_dir))
    except NotPrivateError as error:
        raise StateAdminError(str(error)) from error
