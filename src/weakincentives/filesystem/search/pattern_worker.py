"""Patterns without `google-re2`: the module `regex` in a process with limits, which is killed when time is up.

`regex` backtracks, and can be stopped neither by wall-clock time nor by memory from within. The process has a limit of
memory (`RLIMIT_AS`, which Linux enforces and macOS does not) and of processor time, in case this process is killed.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Final, final

from ...errors import PatternError
from .pattern_syntax import Translation, too_large

MAX_MEMORY: Final = 512 << 20
MAX_SECONDS: Final = 86_400.0

_PROGRAM: Final = Path(__file__).with_name("pattern_child.py")
_HEADER: Final = struct.Struct("<I")
_ANSWER: Final = struct.Struct("<qqd")


@final
class WorkerMatcher:
    """A pattern compiled in a process of its own, which lives until `close` or until time is up.

    Text goes to the process once for each search, so this is slower than `Re2Matcher` by a copy and a process start.
    """

    __slots__ = ("_deadline", "_process", "_socket", "spent")

    def __init__(self, pattern: str, *, ignore_case: bool, deadline: float) -> None:
        text = Translation(pattern, ignore_case=ignore_case, for_re2=False).text.encode()
        self.spent: float = 0.0
        self._deadline = deadline
        seconds = ceil(min(max(1.0, deadline - monotonic()), MAX_SECONDS))
        ours, theirs = socket.socketpair()
        self._socket = ours
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", _PROGRAM, str(MAX_MEMORY), str(seconds)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for us: we end it
                )
        except BaseException:
            ours.close()
            raise
        try:
            refused, _ = self._ask(text)
            if refused:
                raise too_large(pattern, "its tables need too much memory")  # noqa: TRY301 - closed below
        except BaseException:
            self.close()
            raise

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """See `Matcher.search`."""
        low, high = self._ask(text[start:end])
        return None if low < 0 else (start + low, start + high)

    def close(self) -> None:
        """Kill the process and wait for its end."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, data: bytes) -> tuple[int, int]:
        try:
            self._limit()
            self._socket.sendall(_HEADER.pack(len(data)) + data)
            answer = b""
            while len(answer) < _ANSWER.size:
                self._limit()
                if not (piece := self._socket.recv(_ANSWER.size - len(answer))):
                    raise ConnectionResetError
                answer += piece
        except ConnectionError as error:
            raise self._ended() from error
        low, high, self.spent = _ANSWER.unpack(answer)
        return low, high

    def _limit(self) -> None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(min(left, MAX_SECONDS))

    def _ended(self) -> Exception:
        """Why the process is gone. Its processor time ends no sooner than the search's own, so that is a time-out."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._deadline - monotonic()))
        if monotonic() >= self._deadline:
            return TimeoutError()
        if self._process.returncode == 3:
            return PatternError("Searching needs google-re2 or regex, and neither is here: pip install regex")
        return PatternError("The search needed too much memory and was stopped; use a simpler pattern.")
