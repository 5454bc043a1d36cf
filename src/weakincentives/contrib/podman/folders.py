"""Temporary workspaces: each says whose it is, so that those of processes that were killed can be removed."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from .inside.scratch import wipe
from .owners import is_gone, owner

PREFIX: Final = "wink-sandbox-"
LABEL: Final = "owner"
"""The file in it that names the owner."""

PATIENCE: Final = 10.0
"""Seconds that removing what others left may take; the rest is left for the next time."""


def make_folder() -> Path:
    """A new folder for a workspace and its journal, with this process as its owner."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / LABEL).write_text(owner(), encoding="utf-8")
    return folder


def remove_folder(folder: Path, patience: float) -> bool:
    """Remove it with all that is in it; False when that takes too long. The label goes last, for another try."""
    until = monotonic() + patience
    for child in folder.iterdir():
        if child.name != LABEL and stat.S_ISDIR(child.lstat().st_mode):
            child.chmod(0o700)
            if not wipe(str(child), until):
                return False
    if not wipe(str(folder), until):
        return False
    folder.rmdir()
    return True


def sweep_folders() -> list[Path]:
    """Remove the folders whose owners are gone, and only this user's; what was removed."""
    until = monotonic() + PATIENCE
    removed: list[Path] = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process may be sweeping as well
            if _is_left(folder) and remove_folder(folder, until - monotonic()):
                removed.append(folder)
    return removed


def _is_left(folder: Path) -> bool:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        return False  # not made here, so what it says of its owner is nobody's word
    return is_gone((folder / LABEL).read_text(encoding="utf-8", errors="replace"))


__all__ = ["make_folder", "remove_folder", "sweep_folders"]
