"""What is said about a folder before it is opened as a root: that it is undo state, or has some of version 1."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from . import private_dir
from .private_dir import NotPrivateError
from .reserved import reserved

_log = logging.getLogger(__name__)


def refuse_undo_state(root: str, location: str, *, given: bool) -> None:
    """Raise `ValueError` for a root that is a vault or the private directory, or is in one.

    `location` is the private directory in use, empty where there is none. If it was `given`, it is not the user's own,
    which is asked for as well.
    """
    private = [location]
    if given:
        with suppress(NotPrivateError):
            private.append(private_dir.location(None))
    if any(map(reserved, root.split("/"))) or any((root + "/").startswith(each + "/") for each in private if each):
        raise ValueError(f"{root!r} is where undo state is kept, so it cannot be a root; name another folder.")


def old_places(root: str) -> tuple[str, str]:
    """Where version 1 kept its state: beside the root, or in it."""
    parent, name = os.path.split(root)
    return f"{parent.rstrip('/')}/.{name}.wink", f"{root.rstrip('/')}/.wink"


def warn_of_old_state(root: str) -> None:
    """Say so if a version of WINK that kept its journal beside or in the root left one open. Reads nothing."""
    for path in old_places(root):
        with suppress(OSError):
            if path not in _warned and os.stat(path + "/journal", follow_symlinks=False).st_size > 0:  # noqa: PTH116
                _warned.add(path)
                _log.warning(
                    "%s has the journal of a transaction that an older version of WINK left open. It is not used, as "
                    "it could have been planted. To look at it, and have it undone: wink state import-v1 %s",
                    path,
                    root,
                )


_warned: set[str] = set()


__all__ = ["old_places", "refuse_undo_state", "warn_of_old_state"]
