"""Running a command in a container, and what all that runs there has in common."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from ...errors import SandboxError
from .answers import Answer
from .container import Container
from .spec import ContainerSpec

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the container's own
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What every process finds, and nothing of the host's."""

FLOOD: Final = 50
"""How many times what is kept of the output may be said before the command is stopped."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that was run to its end, or ended.

    Attributes:
        how: "exit", or why it was ended: "timeout", "flood" or "disk"; "before" when it was not begun, since the
            workspace was over its limits already.
        why: more about that.
        code: what it returned; minus the signal that killed it.
        stdout, stderr: the first bytes of what it said; `stdout_bytes` and `stderr_bytes` is how many there were.
        seconds: how long it took.
    """

    how: str
    why: str
    code: int
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    seconds: float


def run_command(
    container: Container,
    command: str,
    *,
    cwd: str = ".",
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    seconds: float = 60.0,
    output: int = 30_000,
    ticket: int | None = None,
) -> Done:
    """Run it with the container's shell, in a directory of the workspace; when it returns, nothing of it runs any more.

    `SandboxError` when the container cannot be started or breaks down, when the disk has too little room, and when the
    container was halted since it gave out the ticket.
    """
    check_room(container.spec)
    started = monotonic()
    message = {
        "act": "run",
        "command": command,
        "cwd": cwd,
        "env": {**ENVIRONMENT, **(env or {})},
        "stdin": Answer.packed(stdin),
        "seconds": seconds,
        "output": output,
        "flood": FLOOD * output,
        **allowance(container.spec),
    }
    answer = Answer(container.request(message, seconds, 3 * output + 100_000, ticket))
    how = answer.text("how")
    if how in {"broken", "stuck"}:
        raise SandboxError(f"The command could not be run: {answer.text('why') or 'its processes do not end'}.")
    return Done(
        how,
        answer.text("why"),
        answer.number("code"),
        answer.data("stdout")[:output],
        answer.data("stderr")[:output],
        answer.number("stdout_bytes"),
        answer.number("stderr_bytes"),
        monotonic() - started,
    )


def allowance(spec: ContainerSpec) -> dict[str, Any]:
    """How much of the disk a request may use: of the workspace, and what must be left of the whole."""
    bounds = {"disk": spec.disk, "files": spec.files, "reserve": spec.disk, "readable": spec.rootless}
    return {"bounds": bounds}


def before(why: str) -> str:
    """What to do about a workspace that is over its limits already."""
    problem = why.partition("\n")[0]
    return (
        f"before it began, {problem}\nDelete files with the file tools; whoever made the sandbox can raise disk= or "
        "max_files=."
    )


def check_room(spec: ContainerSpec) -> None:
    """Going back needs room for a copy of the workspace, so what a command can fill must not be the last of it."""
    found = os.statvfs(spec.root)
    free = found.f_bavail * found.f_frsize
    if free < 2 * spec.disk:
        raise SandboxError(
            f"The disk of {spec.root} has {free:,} bytes left, and a sandbox needs twice its limit of {spec.disk:,}. "
            "Free some, set TMPDIR or root= to a bigger place, or lower disk=."
        )


__all__ = ["ENVIRONMENT", "FLOOD", "Done", "allowance", "before", "check_room", "run_command"]
