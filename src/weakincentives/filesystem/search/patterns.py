"""Compiled patterns that take bounded time and memory, whatever the pattern.

`google-re2` matches in this process: its time is linear in the text and its memory has a limit. Where it is not
installed, `regex` does in a process of its own that is limited and killed (`pattern_worker.py`).
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
from typing import Any, Final, Protocol, final

from ...errors import PatternError
from .pattern_syntax import Translation, too_large

MAX_MEMORY: Final = 8 << 20
"""What a pattern and its tables may take. Less makes some patterns slow: 2.3 s with 2 MiB, 0.07 s with 8."""


class Matcher(Protocol):
    """Finds a pattern in lines. Used by one thread; `close` it when the search is over, whatever happened."""

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """Where the first match in `text[start:end]` is, which is valid UTF-8 and begins and ends at line breaks.

        `TimeoutError` when it was stopped.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def compiled(pattern: str, *, ignore_case: bool, deadline: float) -> Matcher:
    """The pattern, ready to search until `deadline` (of `time.monotonic`); `PatternError` when it cannot be used.

    What reads patterns is imported by the first search: it compiles some of its own, and most programs never search.
    """
    try:
        import re2  # noqa: PLC0415 - as above
    except ImportError:
        return WorkerMatcher(pattern, ignore_case=ignore_case, deadline=deadline)
    return Re2Matcher(re2, pattern, ignore_case=ignore_case)


@final
class Re2Matcher:
    """A pattern compiled by RE2, which never backtracks."""

    __slots__ = ("_search",)

    def __init__(self, re2: Any, pattern: str, *, ignore_case: bool) -> None:
        from .pattern_syntax import Translation, too_large  # noqa: PLC0415 - see `compiled`

        text = Translation(pattern, ignore_case=ignore_case, for_re2=True).text
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        try:
            self._search: Any = re2.compile(text.encode(), options).search
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            raise too_large(pattern, reason.decode("ascii", "replace")) from error
        finally:
            re2.purge()  # its cache would keep the memory of 128 patterns

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """See `Matcher.search`."""
        found = self._search(text, start, end)
        return None if found is None else found.span()

    def close(self) -> None:
        """Nothing: its memory goes with it."""


# Patterns without `google-re2`: the module `regex` in a process with limits, which is killed when time is up.
#
# `regex` backtracks, and can be stopped neither by wall-clock time nor by memory from within. The process has a limit
# of
# memory (`RLIMIT_AS`, which Linux enforces and macOS does not) and of processor time, in case this process is killed.


WORKER_MEMORY: Final = 512 << 20
MAX_SECONDS: Final = 86_400.0

_PROGRAM: Final = Path(__file__).with_name("pattern_child.py")
_HEADER: Final = struct.Struct("<I")
_ANSWER: Final = struct.Struct("<qq")


@final
class WorkerMatcher:
    """A pattern compiled in a process of its own, which lives until `close` or until time is up.

    Text goes to the process once for each search, so this is slower than `Re2Matcher` by a copy and a process start.
    """

    __slots__ = ("_deadline", "_process", "_socket")

    def __init__(self, pattern: str, *, ignore_case: bool, deadline: float) -> None:
        text = Translation(pattern, ignore_case=ignore_case, for_re2=False).text.encode()
        self._deadline = deadline
        seconds = ceil(min(max(1.0, deadline - monotonic()), MAX_SECONDS))
        ours, theirs = socket.socketpair()
        self._socket = ours
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", _PROGRAM, str(WORKER_MEMORY), str(seconds)],
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
        low, high = _ANSWER.unpack(answer)
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
