"""Many requests, one after another or several at a time: what came of each, and a line that says how far it is."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import length_hint
from time import monotonic
from typing import Any, Generic, NamedTuple, TextIO, TypeVar, final

from ..kept_loop import run_to_end, running_loop
from ..session import Session

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_logger = logging.getLogger(__name__)


@final
@dataclass(slots=True)
class LoopResult(Generic[RequestT, ResponseT]):
    """What came of one request.

    Attributes:
        response: the answer; None when there is an error.
        session: what the request left behind, also when it failed; None when `prepare` did.
        error: why there is no answer.
        duration: seconds it took.
    """

    request: RequestT
    response: ResponseT | None = None
    session: Session | None = field(default=None, repr=False)
    error: Exception | None = None
    duration: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.error is None


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
Answer = Callable[[LoopResult[RequestT, ResponseT]], None]
AwaitedAnswer = Callable[[LoopResult[RequestT, ResponseT]], Awaitable[None]]


def run_in_order(
    answer: Answer[RequestT, ResponseT], requests: Iterable[RequestT], progress: ProgressTold | bool | None
) -> list[LoopResult[RequestT, ResponseT]]:
    """One after another, in this thread."""
    with _Counter(requests, progress) as counter:
        results: list[LoopResult[RequestT, ResponseT]] = []
        for request in requests:
            result = counter.begin(LoopResult[RequestT, ResponseT](request))
            results.append(result)
            try:
                answer(result)
            except Exception as error:  # noqa: BLE001 - whatever ends one request must not end the others
                result.error = error
            counter.end(result)
        return results


def run_concurrently(
    answer: AwaitedAnswer[RequestT, ResponseT],
    requests: Iterable[RequestT],
    concurrency: int,
    progress: ProgressTold | bool | None,
) -> list[LoopResult[RequestT, ResponseT]]:
    """Several at a time, in an event loop of this thread; it must not have one already."""
    if running_loop() is not None:
        raise RuntimeError("run() would block the event loop it is called in; use `await loop.arun(...)`.")
    return run_to_end(gathered(answer, requests, concurrency, progress))


async def gathered(
    answer: AwaitedAnswer[RequestT, ResponseT],
    requests: Iterable[RequestT],
    concurrency: int,
    progress: ProgressTold | bool | None,
) -> list[LoopResult[RequestT, ResponseT]]:
    """Several at a time; cancelling it cancels those that run and waits until they have ended."""
    if concurrency < 1:
        raise ValueError(f"concurrency must be 1 or more, got {concurrency}.")
    with _Counter(requests, progress) as counter:
        results: list[LoopResult[RequestT, ResponseT]] = []
        running: set[asyncio.Task[None]] = set()

        async def one(result: LoopResult[RequestT, ResponseT]) -> None:
            try:
                await answer(result)
            except Exception as error:  # noqa: BLE001 - as above
                result.error = error
            counter.end(result)

        try:
            for request in requests:
                result = counter.begin(LoopResult[RequestT, ResponseT](request))
                results.append(result)
                running.add(asyncio.create_task(one(result)))
                if len(running) >= concurrency:
                    running = await _room(running)
            while running:
                running = await _room(running)
        except BaseException:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise
        return results


_WAKE = 0.5
"""Seconds after which Ctrl-C is noticed at the latest."""


async def _room(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    done, pending = set[asyncio.Task[None]](), running
    while not done:
        # Woken now and then: a signal that comes just before the loop begins to wait does not end the waiting, so its
        # handler would run only when something else happens.
        done, pending = await asyncio.wait(running, timeout=_WAKE, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return pending


@final
class _Counter:
    """Counts the requests of a run and tells whoever wants to know."""

    def __init__(self, requests: Iterable[Any], progress: ProgressTold | bool | None) -> None:
        self._total = length_hint(requests, 0) or None if not isinstance(requests, Iterator) else None
        self._done = self._failed = self._running = 0
        self._line = _Line(sys.stderr) if progress is True or (progress is None and sys.stderr.isatty()) else None
        self._told = progress if callable(progress) else self._line
        self._began: dict[int, float] = {}

    def begin(self, result: LoopResult[RequestT, ResponseT]) -> LoopResult[RequestT, ResponseT]:
        self._running += 1
        self._began[id(result)] = monotonic()
        return result

    def end(self, result: LoopResult[Any, Any]) -> None:
        result.duration = monotonic() - self._began.pop(id(result))
        self._running -= 1
        self._done += 1
        self._failed += not result.ok
        if self._told is None:
            return
        try:
            self._told(LoopProgress(self._done, self._failed, self._running, self._total, result))
        except Exception:
            _logger.exception("The function that is told of progress raised")

    def __enter__(self) -> _Counter:
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


__all__ = ["LoopProgress", "LoopResult", "ProgressTold", "gathered", "run_concurrently", "run_in_order"]
