"""Removing what is kept for a root. Its caller holds the root's lock."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from .beneath import is_ours
from .kept_state import Entry
from .removal import remove
from .root_record import RootRecord
from .state_dir import JOURNAL, LOCK, MARKER, MIRROR, RECORD, TX
from .syscalls import DIRECTORY
from .vaults import Spot, Vaults


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


__all__ = ["drop_all", "drop_copies"]
