"""The processes of one evaluation with Claude Code: a clean environment for them, and an end with their call."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
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


class ProcessesLeft(RuntimeError):  # noqa: N818 - a state of the machine
    """Processes that a call had started could not be ended, so what it did cannot be told or undone."""


def adapter_cli(adapter: Any) -> str:
    """The program to start: the one that was named, or the SDK's own, or the one on the PATH."""
    own = Path(adapter.sdk.__file__).parent / "_bundled" / "claude"
    found = adapter.cli_path or (str(own) if own.is_file() else shutil.which("claude"))
    if found is None:
        raise FileNotFoundError("Claude Code was not found. Install it, or pass cli_path= to the adapter.")
    return os.path.abspath(found)  # noqa: PTH100 - a link stays a link


@final
class Processes:
    """Where Claude Code is started from. `close` removes the folder; the launcher ends its processes by itself."""

    def __init__(self, cli: str, env_names: Iterable[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wink-claude-")
        self._pid_file = Path(self._folder.name) / "pids"
        script = Path(self._folder.name) / "claude"
        names = ",".join((*_PASSED, *env_names))
        command = [sys.executable, "-I", "-S", launcher.__file__, str(self._pid_file), names, cli]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o700)
        self.cli_path = str(script)

    async def end_left_over(self) -> int:
        """Kill what finished calls left running, and wait until it is gone; how many processes that were.

        A process whose shell has ended is the launcher's child. What Claude Code itself still waits for is left alone:
        it belongs to a call that is under way.
        """
        ended: set[int] = set()
        late = time.monotonic() + _SECONDS
        while left := self._left_over():
            if time.monotonic() > late:
                raise ProcessesLeft(f"{len(left)} processes that a native tool started could not be ended.")
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            ended |= left
            await asyncio.sleep(0.005)
        return len(ended)

    def _left_over(self) -> set[int]:
        try:
            ours, claude = map(int, self._pid_file.read_text("ascii").split())
        except (OSError, ValueError):
            return set()
        return set(launcher.descendants(ours)) - set(launcher.descendants(claude)) - {claude}

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


__all__ = ["Processes", "ProcessesLeft", "adapter_cli"]
