"""Which process owns a container or folder, so that those of dead processes can be found and removed."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ...errors import SandboxError
from .command import podman, run
from .inside.scratch import wipe

LABEL = "wink.owner"


def owner() -> str:
    """This process, on this machine: its number alone may be used again by another."""
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(label: str) -> bool:
    """Whether the process of that label has ended; False for one of another machine, which cannot be known."""
    machine, _, rest = label.partition(":")
    pid, _, started = rest.partition(":")
    return machine == _machine() and pid.isdigit() and _started(int(pid)) != started


def sweep(program: str) -> list[str]:
    """Remove the containers whose owners are gone; their ids. What cannot be removed is left for the next time."""
    listed = run(podman(program, "ps", "--all", "--filter", f"label={LABEL}", "--format", "json"))
    rows: list[dict[str, Any]] = []
    with suppress(ValueError):
        rows = json.loads(listed.stdout or "[]")
    gone = [str(row["Id"]) for row in rows if is_gone(_owner_of(row))]
    if gone:
        with suppress(SandboxError):
            run(podman(program, "rm", "--force", "--time", "0", "--ignore", *gone))
    return gone


def _owner_of(row: dict[str, Any]) -> str:
    labels: dict[str, str] = row.get("Labels") or {}
    return str(labels.get(LABEL, ""))


def _machine() -> str:
    """Where numbers of processes mean the same: a container may share its host's name and files, not its processes."""
    host = socket.gethostname().replace(":", "_")
    try:
        return f"{host}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return host


def _started(pid: int) -> str:
    """When the process was started, in ticks since the machine was; empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


# Temporary workspaces: each says whose it is, so that those of processes that were killed can be removed.


PREFIX: Final = "wink-sandbox-"
FOLDER_LABEL: Final = "owner"
"""The file in it that names the owner."""

SWEEP_SECONDS: Final = 10.0
"""Seconds that removing what others left may take; the rest is left for the next time."""


def make_folder() -> Path:
    """A new folder for a workspace and its journal, with this process as its owner."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / FOLDER_LABEL).write_text(owner(), encoding="utf-8")
    return folder


def remove_folder(folder: Path, seconds: float) -> bool:
    """Remove it with all that is in it; False when that takes too long. The label goes last, for another try."""
    until = monotonic() + seconds
    for child in folder.iterdir():
        if child.name != FOLDER_LABEL and stat.S_ISDIR(child.lstat().st_mode):
            child.chmod(0o700)
            if not wipe(str(child), until):
                return False
    if not wipe(str(folder), until):
        return False
    folder.rmdir()
    return True


def sweep_folders() -> list[Path]:
    """Remove the folders whose owners are gone, and only this user's; what was removed."""
    until = monotonic() + SWEEP_SECONDS
    removed: list[Path] = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process may be sweeping as well
            if _is_left(folder) and remove_folder(folder, until - monotonic()):
                removed.append(folder)
    return removed


def _is_left(folder: Path) -> bool:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        return False  # not made here, so what it says of its owner cannot be trusted
    return is_gone((folder / FOLDER_LABEL).read_text(encoding="utf-8", errors="replace"))
