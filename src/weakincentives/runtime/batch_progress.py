"""How far a batch of requests is: counted, told to a function, or shown as one line of a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any, NamedTuple, Self, TextIO, final

from .loop_result import LoopResult

_logger = logging.getLogger(__name__)


class LoopProgress(NamedTuple):
    """How far a run is. `total` is None when the requests cannot be counted; `last` is what has just ended."""

    done: int
    failed: int
    running: int
    total: int | None
    last: LoopResult[Any, Any]

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}{of} done{failed}" + (f", {self.running} running" if self.running else "")


ProgressTold = Callable[[LoopProgress], object]


@final
class ProgressCounter:
    """Counts the requests of a run and tells whoever wants to know. Used from one thread."""

    def __init__(self, requests: object, progress: ProgressTold | bool | None) -> None:
        self._total = length_hint(requests, 0) or None if not isinstance(requests, Iterator) else None
        self._done = self._failed = self._running = 0
        self._line = _Line(sys.stderr) if progress is True or (progress is None and sys.stderr.isatty()) else None
        self._told = progress if callable(progress) else self._line

    def begin(self) -> None:
        """One more is running."""
        self._running += 1

    def end(self, result: LoopResult[Any, Any]) -> None:
        """One is over."""
        self._running -= 1
        self._done += 1
        self._failed += not result.ok
        if self._told is None:
            return
        try:
            self._told(LoopProgress(self._done, self._failed, self._running, self._total, result))
        except Exception:
            _logger.exception("The function that is told of progress raised")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._line is not None:
            self._line.end()


@final
class _Line:
    """One line of a terminal, written over again and again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def __call__(self, progress: LoopProgress) -> None:
        text = str(progress)
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def end(self) -> None:
        if self._width:
            self._stream.write("\n")
            self._stream.flush()


__all__ = ["LoopProgress", "ProgressCounter", "ProgressTold"]
