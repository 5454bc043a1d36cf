"""Whose a container is, so that those of processes that are gone can be told and removed."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import SandboxError
from .command import podman, run

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


__all__ = ["LABEL", "is_gone", "owner", "sweep"]
