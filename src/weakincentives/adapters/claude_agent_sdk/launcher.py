"""Started instead of Claude Code: runs it with a clean environment, and ends everything it started when it ends.

A program of its own that needs only the standard library: `python -I launcher.py PID_FILE NAMES CLI ARGUMENTS...`.
It starts itself again with the clean environment first: `/proc/PID/environ` shows what a program was started with, and
every command of Claude Code may read it.
It is the reaper of all descendants (on Linux only), so that a command which left its shell, its session and its process
group becomes its child, where `processes.py` finds it when the call ends. When Claude Code ends, or the process that
started it does, everything that is left is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
PREFIXES = ("LC_", "ANTHROPIC_", "CLAUDE_")
"""Names that begin so are passed on: locale, and what Claude Code is set up with."""
_GRACE = 2.0
"""Seconds that Claude Code has to end by itself when it is told to."""


def descendants(ancestor: int) -> dict[int, int]:
    """Every process below `ancestor`, and its parent. Zombies count as gone."""
    parents = _parents()
    found: dict[int, int] = {}
    below = {ancestor}
    while below:
        children = {pid: parent for pid, parent in parents.items() if parent in below and pid not in found}
        found.update(children)
        below = set(children)
    return found


def _parents() -> dict[int, int]:
    """All processes but zombies, and their parents."""
    parents: dict[int, int] = {}
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - names are all that is needed
    except FileNotFoundError:  # not Linux
        with subprocess.Popen(["/bin/ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE) as listing:
            lines = listing.communicate()[0].decode("latin-1").splitlines()
        for line in lines:
            with suppress(ValueError):
                pid, parent, state = line.split()
                if state[0] != "Z" and int(pid) != listing.pid:
                    parents[int(pid)] = int(parent)
        return parents
    for entry in entries:
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                state, parent = Path(f"/proc/{entry}/stat").read_text("latin-1").rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(entry)] = int(parent)
    return parents


def clean(names: str) -> dict[str, str]:
    """The environment with nothing in it but the names that were allowed; secrets are in pipes."""
    allowed = set(names.split(","))
    environment = {name: value for name, value in os.environ.items() if name in allowed or name.startswith(PREFIXES)}
    _hide(environment, "ANTHROPIC_API_KEY", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR")
    _hide(environment, "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR")
    environment.setdefault("SHLVL", "1")  # without it bash takes a socket for a remote login and reads ~/.bashrc
    return environment


def main(pid_file: str, starter: int, command: list[str]) -> int:
    """Run the command until it ends, or until `starter`, our parent, does; its exit code."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", _nothing)
    if prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system does not let a process collect its descendants")
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    child = os.fork()
    if child == 0:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.execv(command[0], command)  # noqa: S606 - it is the program we were given

    def told_to_end(*_: object) -> None:
        _end(child)

    signal.signal(signal.SIGTERM, told_to_end)
    if os.getppid() != starter:  # it ended before we asked to be told
        _end(child)
    Path(pid_file).write_text(f"{os.getpid()} {child}", "ascii")
    # The pipes are Claude Code's alone: a reader must see their end when it ends.
    for descriptor in (0, 1):
        os.close(descriptor)
    status = _wait_for(child) if prctl is not _nothing else _watch(child, starter)
    _kill_all()
    return os.waitstatus_to_exitcode(status) & 0xFF


def _hide(environment: dict[str, str], name: str, descriptor_name: str) -> None:
    """Hand a secret over in a pipe, which Claude Code reads once; in the environment every command would see it."""
    secret = environment.pop(name, "")
    if secret and descriptor_name not in environment:
        reading, writing = os.pipe()
        os.write(writing, secret.encode())
        os.close(writing)
        os.set_inheritable(reading, True)
        environment[descriptor_name] = str(reading)


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def _nothing(*_: int) -> int:
    """Used instead of `prctl` on systems without it."""
    return 0


def _watch(child: int, starter: int) -> int:
    """As `_wait_for`, where the system does not tell when the process that started us ends."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if os.getppid() != starter:
            _end(child)
        if not pid:
            time.sleep(0.05)


def _end(child: int) -> None:
    """Tell Claude Code to end, and do not wait long: what it started must not outlive us."""
    known = descendants(os.getpid())
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    late = time.monotonic() + _GRACE
    while time.monotonic() < late and child in descendants(os.getpid()):
        time.sleep(0.02)
    _kill_all()
    for pid in known.keys() & _parents().keys():  # not on Linux: what lost its parent is not ours any more
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    os._exit(143)


def _kill_all() -> None:
    while left := descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


if __name__ == "__main__":
    if not sys.argv[2].isdigit():
        _given = len(sys.argv) - 1
        _again = [*sys.orig_argv[:-_given], sys.argv[1], str(os.getppid()), *sys.argv[3:]]
        os.execve(sys.executable, _again, clean(sys.argv[2]))  # noqa: S606 - ourselves
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
