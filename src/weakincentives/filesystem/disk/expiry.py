"""Entries that a killed process left although nothing in them is needed: they go when another root is first written."""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...clock import SYSTEM_CLOCK
from ...errors import JournalError
from . import private_dir
from .confine import Handle, is_ours
from .kept_state import Entry, entries
from .private_dir import NotPrivateError, PrivateDir
from .removal import remove
from .state_dir import JOURNAL, LOCK, MARKER, MIRROR, RECORD, TX
from .syscalls import DIRECTORY, Syscalls
from .vaults import RootRecord, Spot, Vaults

# Removing what is kept for a root. Its caller holds the root's lock.


def drop_copies(entry: Entry) -> None:
    """Remove what an idle root keeps for the next time, and what a crash left over."""
    sys = entry.sys
    for fd in {entry.fd, entry.vault} - {-1}:
        for name in sys.names(fd):
            if name == MIRROR or is_ours(name):
                remove(sys, fd, name)


def drop_all(entry: Entry) -> list[str]:
    """Remove entry and vault. What others put into a vault outside of the private directory stays, and so does it."""
    sys = entry.sys
    for name in (JOURNAL, MARKER):  # first: without these nothing is undone by halves
        with suppress(FileNotFoundError, NotADirectoryError):
            remove(sys, entry.fd, name)
    left: list[str] = []
    record = entry.record
    if entry.vault not in {-1, entry.fd}:
        for name in sys.names(entry.vault):
            if name in {MIRROR, TX} or is_ours(name) or name.startswith("rejected-"):
                remove(sys, entry.vault, name)
        assert record is not None
        if not _remove_vault(entry, record):
            left.append(entry.vault_path)
    elif record is not None and not record.inode:
        _remove_vault(entry, record)  # it was only intended, and may be there
    for name in sorted(sys.names(entry.fd), key=lambda name: name == RECORD):  # the description last
        remove(sys, entry.fd, name)
    sys.rmdir(entry.name, dir_fd=entry.home.roots)
    with suppress(FileNotFoundError):
        sys.unlink(entry.name + LOCK, dir_fd=entry.home.roots)
    return left


def _remove_vault(entry: Entry, record: RootRecord) -> bool:
    """Whether it could be removed: it must be empty. The root's own time stays."""
    sys = entry.sys
    root = entry.root or record.path
    at = str(Path(entry.vault_path or f"{root if record.inside else Path(root).parent}/{record.vault}").parent)
    try:
        fd = sys.open(at, DIRECTORY)
    except OSError:
        return False
    try:
        Vaults(sys, root, fd, durable=False).remove(Spot(at, record.vault, record.inside))
    except OSError:
        return False
    finally:
        sys.close(fd)
    return True


_log = logging.getLogger(__name__)

_LOOKED: Final = "looked"
_EVERY: Final = 3600
"""A file whose time says when somebody last looked at all entries, and the seconds until the next look: there may be
many of them, and this is called whenever one is added."""


def remove_left_over(location: str) -> None:
    """Now and then, remove the entries in the private directory that nothing needs, with their vaults. Raises nothing.

    Not needed is one without an open transaction and without anything that was put aside, be its root there, deleted or
    moved. A process that has the root open, but no transaction, makes a new one when it writes again. What is kept of
    a root on a disk that is not mounted stays, as its vault is not there either.
    """
    with suppress(OSError, NotPrivateError):
        home = private_dir.find(location)
        if home is None or not _is_due(Path(home.path, _LOOKED)):
            return
        for entry in entries(Syscalls(), home):
            if isinstance(entry, Entry):
                with suppress(OSError, JournalError, NotPrivateError):
                    _remove_idle(entry)
        _remove_locks(Syscalls(), home)


def _is_due(looked: Path) -> bool:
    """Whether the last look was long ago; if so, this is the one that looks."""
    now = SYSTEM_CLOCK.time()
    with suppress(FileNotFoundError):
        if abs(now - looked.stat().st_mtime) < _EVERY:  # a clock that was wrong puts it off for an hour, not for years
            return False
    looked.touch(0o600)
    os.utime(looked, (now, now))
    return True


def _remove_idle(entry: Entry) -> None:
    if entry.vault < 0 or entry.is_open() or entry.rejected():
        return
    with entry.locked():  # raises when a process is at work there
        if not entry.is_open() and not entry.rejected():
            drop_all(entry)
            _log.info("Removed undo state that nothing needs any more: %s", entry.path)


def _remove_locks(sys: Syscalls, home: PrivateDir) -> None:
    """Remove the files that stood for roots that cannot be locked, where nobody holds them."""
    for name in sys.names(home.roots):
        if name.endswith(LOCK):
            with suppress(OSError), Handle(sys, sys.open(name, os.O_RDWR, dir_fd=home.roots)) as fd:
                sys.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sys.unlink(name, dir_fd=home.roots)
