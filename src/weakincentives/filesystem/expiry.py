"""Entries of roots that are long gone: they go by themselves, unless something in them could still be undone."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..clock import SYSTEM_CLOCK
from .frames import Authenticator
from .private_dir import ROOTS, PrivateDir
from .removal import remove
from .root_record import SAME, read_record
from .state_dir import JOURNAL, MARKER
from .syscalls import DIRECTORY, Syscalls

_log = logging.getLogger(__name__)

KEPT_FOR: Final = 30 * 24 * 3600
"""Seconds for which nothing in an entry must have changed: its root may only be unmounted."""


_LOOKED: Final = "looked"
_EVERY: Final = 24 * 3600
"""A file whose time says when somebody last looked at all entries, and the seconds until the next look: there may be
thousands of them, and this is called whenever one is added."""


def remove_expired(sys: Syscalls, home: PrivateDir) -> None:
    """Once a day, remove old entries without an open transaction whose root is not there any more. Raises nothing."""
    with suppress(OSError):
        if not _is_due(Path(home.path, _LOOKED)):
            return
        now = SYSTEM_CLOCK.time()
        for name in sys.names(home.roots):
            with suppress(OSError):
                if now - sys.stat(name, dir_fd=home.roots).st_mtime > KEPT_FOR and _is_gone(sys, home, name):
                    remove(sys, home.roots, name)
                    _log.info("Removed the undo state of a root that is gone: %s/%s/%s", home.path, ROOTS, name)


def _is_due(looked: Path) -> bool:
    """Whether the last look was long ago; if so, this is the one that looks."""
    now = SYSTEM_CLOCK.time()
    with suppress(FileNotFoundError):
        if abs(now - looked.stat().st_mtime) < _EVERY:  # a clock that was wrong puts it off for a day, not for years
            return False
    looked.touch(0o600)
    os.utime(looked, (now, now))
    return True


def _is_gone(sys: Syscalls, home: PrivateDir, name: str) -> bool:
    entry = sys.open(name, DIRECTORY, dir_fd=home.roots)
    try:
        record = read_record(sys, entry, Authenticator(home.root_key(name)))
        if record is None or record.vault != SAME or Path(record.path).exists():
            return False
        with suppress(FileNotFoundError):
            if sys.stat(JOURNAL, dir_fd=entry).st_size > 0:
                return False
        with suppress(FileNotFoundError, NotADirectoryError):
            sys.stat(MARKER, dir_fd=entry)
            return False
        return not any(found.startswith("rejected-") for found in sys.names(entry))
    finally:
        sys.close(entry)


__all__ = ["KEPT_FOR", "remove_expired"]
