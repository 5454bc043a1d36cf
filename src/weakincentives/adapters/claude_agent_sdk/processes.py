"""The processes of one evaluation with Claude Code: a clean environment for them, and an end with their call."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, final

from . import launcher

_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "PWD",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""What Claude Code gets of the environment of this process, beside its own `env=`; see `launcher.PREFIXES`."""

_SECONDS = 5.0

_OWN_PROCESSES = (
    ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--"),
    ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),  # as root
    ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
)
"""Commands that leave a program all files, and give it processes of its own, which the kernel ends with it."""

_SHELL = """\
#!/bin/sh
unset ANTHROPIC_AUTH_TOKEN ANTHROPIC_CUSTOM_HEADERS CLAUDE_CODE_MESSAGING_SOCKET CLAUDE_CODE_MESSAGING_TOKEN
case "${CLAUDE_CODE_SHELL:-$SHELL}" in
    */bash | */zsh) shell="${CLAUDE_CODE_SHELL:-$SHELL}" ;;
    *) shell=bash ;;
esac
exec %s "$shell" -c "$1"
"""
"""What a command of `Bash` is run by; Claude Code gives it the whole command as one argument."""

logger: logging.Logger = logging.getLogger(__name__)


class ProcessesLeft(RuntimeError):  # noqa: N818 - a state of the machine
    """Processes that a call had started could not be ended, so what it did cannot be told or undone."""


def adapter_cli(adapter: Any) -> str:
    """The program to start: the one that was named, or the SDK's own, or the one on the PATH."""
    own = Path(adapter.sdk.__file__).parent / "_bundled" / "claude"
    found = adapter.cli_path or (str(own) if own.is_file() else shutil.which("claude"))
    if found is None:
        raise FileNotFoundError("Claude Code was not found. Install it, or pass cli_path= to the adapter.")
    return os.path.abspath(found)  # noqa: PTH100 - a link stays a link


@cache
def own_processes(path: str) -> tuple[str, ...]:
    """The first of these commands that works here; none, which is logged once, where the system forbids it."""
    for name, *options in _OWN_PROCESSES:
        program = shutil.which(name, path=path)
        if program is not None:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run([program, *options, "true"], check=True, capture_output=True, timeout=30)  # noqa: S603 - ours
                return program, *options
    logger.warning(
        "Neither bubblewrap nor unshare works here, so commands of Claude Code's Bash see the processes of this user, "
        "and in /proc their environment; what they leave running is looked for and killed, which a process that hides "
        "can escape. Install bubblewrap (apt-get install bubblewrap), or use a PodmanSandboxSection."
    )
    return ()


@final
class Processes:
    """Where Claude Code is started from. `close` removes the folder; the launcher ends its processes by itself."""

    def __init__(self, cli: str, env_names: Iterable[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wink-claude-")
        self._pid_file = Path(self._folder.name) / "pids"
        self._pids: tuple[int, int] | None = None
        script = Path(self._folder.name) / "claude"
        names = ",".join((*_PASSED, *env_names))
        command = [sys.executable, "-I", "-S", launcher.__file__, str(self._pid_file), names, cli]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o700)
        self.cli_path: str = str(script)

    def shell(self) -> str:
        """A program that runs the commands of `Bash`, each with processes of its own where that works."""
        script = Path(self._folder.name) / "shell"
        script.write_text(_SHELL % shlex.join(own_processes(os.environ.get("PATH", os.defpath))))
        script.chmod(0o700)
        return str(script)

    async def end_left_over(self, *, alone: bool) -> int:
        """Kill what finished calls left running, and wait until it is gone; how many processes that were.

        A process whose shell has ended is the launcher's child. What is still below Claude Code itself belongs to a
        call that is under way; when there is none (`alone`), to a command that did not end when it was told to.
        """
        ended: set[int] = set()
        late = time.monotonic() + _SECONDS
        while left := self._left_over(alone=alone):
            if time.monotonic() > late:
                raise ProcessesLeft(f"{len(left)} processes that a native tool started could not be ended.")
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            ended |= left
            await asyncio.sleep(0.005)
        return len(ended)

    def _left_over(self, *, alone: bool) -> set[int]:
        if self._pids is None:
            return set()
        ours, claude = self._pids
        under_way = set[int]() if alone else set(launcher.descendants(claude))
        return set(launcher.descendants(ours)) - under_way - {claude}

    def look(self) -> None:
        """Read who the launcher and Claude Code are: before the first command runs, which could change the file."""
        if self._pids is None:
            with suppress(OSError, ValueError):
                ours, claude = map(int, self._pid_file.read_text("ascii").split())
                self._pids = ours, claude

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()
