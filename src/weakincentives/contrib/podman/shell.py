"""The tool that runs commands in a container."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from ...errors import PathRefusedError, SandboxError
from ...filesystem.paths import normalise
from ...prompt import Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult
from ..code.wire import pack_bytes
from .container import Container, SupervisorReply
from .spec import ContainerSpec

# Running a command in a container, and what all that runs there has in common.


ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the container's own
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What every process finds, and nothing of the host's."""

FLOOD_FACTOR: Final = 50
"""How many times the output that is kept may be printed before a command or the code is stopped."""


@dataclass(frozen=True, slots=True)
class CommandResult:
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
) -> CommandResult:
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
        "stdin": pack_bytes(stdin),
        "seconds": seconds,
        "output": output,
        "flood": FLOOD_FACTOR * output,
        **disk_bounds(container.spec),
    }
    answer = SupervisorReply(container.request(message, seconds, 3 * output + 100_000, ticket))
    how = answer.text("how")
    if how in {"broken", "stuck"}:
        raise SandboxError(f"The command could not be run: {answer.text('why') or 'its processes do not end'}.")
    return CommandResult(
        how,
        answer.text("why"),
        answer.number("code"),
        answer.data("stdout")[:output],
        answer.data("stderr")[:output],
        answer.number("stdout_bytes"),
        answer.number("stderr_bytes"),
        monotonic() - started,
    )


def disk_bounds(spec: ContainerSpec) -> dict[str, Any]:
    """How much of the disk a request may use: of the workspace, and what must be left of the whole."""
    bounds = {"disk": spec.disk, "files": spec.files, "reserve": spec.disk, "readable": spec.rootless}
    return {"bounds": bounds}


def over_limit_advice(why: str) -> str:
    """What to do about a workspace that is over its limits already."""
    problem = why.partition("\n")[0]
    return (
        f"before it began, {problem}\nDelete files with the file tools; the author of the sandbox can raise disk= or "
        "max_files=."
    )


def check_room(spec: ContainerSpec) -> None:
    """Undoing needs room for a copy of the workspace, so what a command can fill must not be the last of it."""
    found = os.statvfs(spec.root)
    free = found.f_bavail * found.f_frsize
    if free < 2 * spec.disk:
        raise SandboxError(
            f"The disk of {spec.root} has {free:,} bytes left, and a sandbox needs twice its limit of {spec.disk:,}. "
            "Free some, set TMPDIR or root= to a bigger place, or lower disk=."
        )


MAX_COMMAND: Final = 100_000
MAX_STDIN: Final = 8 * 1024 * 1024
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")


@dataclass(frozen=True, slots=True)
class ShellExecuteParams:
    """What to run."""

    command: str
    """A command line for the shell (bash where the image has it, else sh)."""
    cwd: str = field(default=".", metadata={"description": "The directory to run it in, from the workspace's root."})
    env: dict[str, str] = field(
        default_factory=dict[str, str], metadata={"description": "Further environment variables."}
    )
    stdin: str = field(default="", metadata={"description": "What the command reads from its standard input."})
    timeout_seconds: float | None = field(
        default=None, metadata={"description": "Stop it after this many seconds; by default, the sandbox's own limit."}
    )
    check: bool = field(
        default=False,
        metadata={"description": "Treat an exit code other than 0 as a failure: everything the command did is undone."},
    )


@dataclass(frozen=True, slots=True)
class ShellResult:
    """What a command said and returned. `dropped` counts the bytes of output that were not kept."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    dropped: int = 0

    def render(self) -> str:
        """What was said; how it ended is the message of the reply."""
        parts: list[str] = []
        if self.stdout:
            parts.append(self.stdout.rstrip("\n"))
        if self.stderr:
            parts.append(f"Standard error:\n{self.stderr.rstrip()}")
        if self.dropped:
            parts.append(
                f"[{self.dropped:,} more bytes of output were dropped; write it to a file and read parts of that]"
            )
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """What one command may use.

    Attributes:
        seconds: until it is stopped.
        output: bytes of each of its two outputs that are kept.
        memory: for the message when it was killed; the container sees to it.
    """

    seconds: float
    output: int
    memory: int


def shell_execute_tool(
    name: str, container: Container, limits: ShellLimits, env: Mapping[str, str], accepts_overrides: bool
) -> Tool[ShellExecuteParams, ShellResult]:
    """The tool. A command that fails in a way that fails the call is undone with all it did to the workspace."""

    def shell_execute(params: ShellExecuteParams, *, context: ToolContext) -> ToolResult[ShellResult]:
        problem = _problem(params, limits)
        if problem is not None:
            return ToolResult.error(problem)
        # A call that is over must start nothing. The ticket comes first: it is void once files are restored, so a
        # call that ends after `require_active` is noticed by the container.
        ticket = container.ticket
        context.require_active()
        seconds = limits.seconds if params.timeout_seconds is None else params.timeout_seconds
        if context.deadline is not None:
            seconds = min(seconds, max(0.1, context.deadline.remaining().total_seconds()))
        done = run_command(
            container,
            params.command,
            cwd=normalise(params.cwd),
            env={**env, **params.env},
            stdin=params.stdin.encode(errors="replace"),
            seconds=seconds,
            output=limits.output,
            ticket=ticket,
        )
        return _result(done, params, seconds, limits)

    isolated = container.spec.network == "none"
    network = "without network" if isolated else "with a network"
    return Tool[ShellExecuteParams, ShellResult](
        name=name,
        description=f"Run a shell command in a sandbox {network}, on the files of the workspace.",
        handler=shell_execute,
        examples=[
            ToolExample(
                "Count lines",
                ShellExecuteParams("grep -c tea", stdin="tea\nmilk\ntea\n", timeout_seconds=10.0),
                ShellResult(0, "2\n"),
            )
        ],
        annotations=ToolAnnotations(destructive=True, open_world=not isolated),
        accepts_overrides=accepts_overrides,
    )


def _problem(params: ShellExecuteParams, limits: ShellLimits) -> str | None:
    """What makes no sense, and what to do instead."""
    if not params.command.strip():
        return "The command is empty\nName a program to run."
    if len(params.command) > MAX_COMMAND or "\0" in params.command:
        return f"The command is over {MAX_COMMAND:,} characters, or has a NUL in it\nWrite a script and run that."
    if len(params.stdin) > MAX_STDIN:
        return f"stdin is over {MAX_STDIN:,} characters\nWrite a file, and let the command read it."
    wanted = params.timeout_seconds
    if wanted is not None and not 0 < wanted <= limits.seconds:
        return f"timeout_seconds must be above 0 and at most {limits.seconds:g}\nTake smaller steps if it needs longer."
    for variable, value in params.env.items():
        if not _VARIABLE.fullmatch(variable) or "\0" in value or len(value) > MAX_COMMAND:
            return f"The environment variable {variable[:100]!r} cannot be set\nUse letters, digits and _."
    try:
        normalise(params.cwd)
    except PathRefusedError as error:
        return f"{error}\nGive cwd as a directory of the workspace."
    return None


def _result(
    done: CommandResult, params: ShellExecuteParams, seconds: float, limits: ShellLimits
) -> ToolResult[ShellResult]:
    dropped = done.stdout_bytes + done.stderr_bytes - len(done.stdout) - len(done.stderr)
    value = ShellResult(
        done.code, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), max(0, dropped)
    )
    if done.how == "exit":
        if params.check and done.code != 0:
            ended = _ended(done.code, limits)
            return ToolResult.error(
                f"The command failed, so what it did is undone\n{ended}\n{_output_tail(value)}".rstrip("\n")
            )
        return ToolResult.ok(value, _ended(done.code, limits))
    if done.how == "no_directory":
        return ToolResult.error(f"There is no directory {params.cwd} to run it in\nMake it first, or give another cwd.")
    reasons = {
        "before": f"The command was not run: {over_limit_advice(done.why)}",
        "timeout": f"The command did not end within {seconds:g} s, so it was stopped and what it did is undone\nTake "
        "smaller steps, or make it faster.",
        "flood": "The command printed far too much, so it was stopped and what it did is undone\nWrite to "
        "a file instead, and read parts of that.",
        "disk": f"The command was stopped and what it did is undone: {done.why}",
    }
    reason = reasons.get(done.how, "The command was stopped, and what it did is undone")
    return ToolResult.error(f"{reason}\n{_output_tail(value)}".rstrip("\n"))


def _ended(code: int, limits: ShellLimits) -> str:
    if code >= 0:
        return f"Exit code: {code}"
    if code == -signal.SIGKILL:
        return f"Killed, as it seems for want of memory (limit: {limits.memory:,} bytes)"
    return f"Killed by {_signal(-code)}"


def _output_tail(value: ShellResult, most: int = 4000) -> str:
    """The end of what it said: that is where errors are."""
    text = value.render()
    return text if len(text) <= most else f"...\n{text[-most:]}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
