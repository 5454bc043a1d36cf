"""Many requests, one after another or several at a time; each result is handed over as soon as it is there."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from time import monotonic, sleep
from typing import Any, Final, Generic, TypeVar, cast, final

from pydantic import BaseModel

from ..errors import EndlessRequestsError
from ..event_loop import run_to_end
from ..lazy_modules import asyncio
from .background import BackgroundLoop, refuse_in_event_loop
from .result import NO_RETRIES, Attempts, LoopResult, ProgressCounter, ProgressTold, Retries

T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

MAX_UNCOUNTED = 100_000
"""How many results of an iterable without a length are collected, unless the caller says otherwise."""

_ONE_REQUEST = (str, bytes, Mapping, BaseModel)
"""What can be iterated over, but is a request rather than many."""
_END: Final = object()
_WAKE = 0.5
"""Seconds after which Ctrl-C is noticed at the latest."""


@final
@dataclass(frozen=True, slots=True)
class Batch(Generic[RequestT, ResponseT]):
    """Requests and what answers them.

    Attributes:
        answer: fills in the result of its request, or raises; for synchronous code.
        aanswer: the same for async code.
    """

    answer: Callable[[LoopResult[RequestT, ResponseT]], None]
    aanswer: Callable[[LoopResult[RequestT, ResponseT]], Awaitable[None]]
    requests: Iterable[RequestT] | AsyncIterable[RequestT]
    concurrency: int
    progress: ProgressTold | bool | None
    retries: Retries | None

    def __post_init__(self) -> None:
        given = cast("object", self.requests)
        if not isinstance(given, Iterable | AsyncIterable) or isinstance(given, _ONE_REQUEST):
            raise TypeError(f"{type(cast('object', given)).__name__} is one request; pass a list: [request].")
        if not isinstance(self.concurrency, int) or isinstance(self.concurrency, bool):
            raise TypeError(f"concurrency must be an int, got {type(self.concurrency).__name__}.")
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, got {self.concurrency}.")

    # All results, in the order of the requests.

    def collect(self, limit: int | None) -> list[LoopResult[RequestT, ResponseT]]:
        """Run all of them; with a concurrency above 1 in an event loop of this thread, which must not have one."""
        if self.concurrency == 1:
            collected = _Collected[RequestT, ResponseT](self.requests, limit)
            for result in self.in_order():
                collected.add(result)
            return collected.results()
        refuse_in_event_loop("run()", "await loop.arun(...)")
        return run_to_end(self.acollect(limit))

    async def acollect(self, limit: int | None) -> list[LoopResult[RequestT, ResponseT]]:
        """Run all of them; cancelling it cancels those that run and waits until they have ended."""
        collected = _Collected[RequestT, ResponseT](self.requests, limit)
        async with aclosing(self.numbered()) as results:
            async for number, result in results:
                collected.add(result, number)
        return collected.results()

    # One result after the other.

    def in_order(self) -> Generator[LoopResult[RequestT, ResponseT], None, None]:
        """One after another, in this thread: a request begins when the result before it was taken."""
        with ProgressCounter(self.requests, self.progress) as counter:
            for request in _plain(self.requests):
                result = LoopResult[RequestT, ResponseT](request)
                counter.begin()
                self._try(result)
                counter.end(result)
                yield result

    def in_background(self) -> Generator[LoopResult[RequestT, ResponseT], None, None]:
        """Several at a time, in a thread of its own, so that they go on while a result is being handled.

        The requests are taken in this thread. Closing the iterator, and Ctrl-C, cancel those that run and wait until
        they have ended.
        """
        source = iter(_plain(self.requests))
        more = True
        with ProgressCounter(self.requests, self.progress) as counter, BackgroundLoop(_WAKE) as background:
            while True:
                while more and background.running < self.concurrency and not background.has_ended():
                    request = next(source, _END)
                    more = request is not _END
                    if more:
                        counter.begin()
                        background.start(partial(self._finished, LoopResult(cast("RequestT", request))))
                if not background.running:
                    return
                result = background.next_ended()
                counter.end(result)
                yield result

    async def as_they_come(self) -> AsyncGenerator[LoopResult[RequestT, ResponseT], None]:
        """Several at a time, in the event loop that runs; closing the iterator cancels those that run."""
        async with aclosing(self.numbered()) as results:
            async for _, result in results:
                yield result

    async def numbered(self) -> AsyncGenerator[tuple[int, LoopResult[RequestT, ResponseT]], None]:
        """As above, each with its place among the requests."""
        source = _Source(self.requests)
        running: dict[asyncio.Task[LoopResult[RequestT, ResponseT]], int] = {}
        taking: asyncio.Task[Any] | None = None
        ends = _Ends()
        numbers = itertools.count()
        with ProgressCounter(self.requests, self.progress) as counter:

            def begin(request: RequestT | object) -> None:
                if request is not _END:
                    counter.begin()
                    task = ends.watch(asyncio.create_task(self._finished(LoopResult(cast("RequestT", request)))))
                    running[task] = next(numbers)

            try:
                while True:
                    while taking is None and not source.is_over and len(running) < self.concurrency:
                        if source.is_async:  # it may make us wait: then what has ended meanwhile is handed over
                            taking = ends.watch(asyncio.create_task(source.take_later()))
                        else:
                            begin(source.take())
                    if taking is None and not running:
                        return
                    task = await ends.next()
                    if task is taking:
                        taking = None
                        begin(task.result())
                    else:
                        number = running.pop(task)
                        counter.end(task.result())
                        yield number, task.result()
            finally:
                left: list[asyncio.Task[Any]] = [*running, *([] if taking is None else [taking])]
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

    # One request.

    def _try(self, result: LoopResult[RequestT, ResponseT]) -> None:
        began, attempts = monotonic(), Attempts(self.retries or NO_RETRIES)
        while True:
            try:
                self.answer(result)
                break
            except Exception as error:  # noqa: BLE001 - whatever ends one request must not end the others
                delay = attempts.failed(result, error)
            if delay is None:
                break
            sleep(delay)
        result.duration = monotonic() - began

    async def _finished(self, result: LoopResult[RequestT, ResponseT]) -> LoopResult[RequestT, ResponseT]:
        began, attempts = monotonic(), Attempts(self.retries or NO_RETRIES)
        while True:
            try:
                await self.aanswer(result)
                break
            except Exception as error:  # noqa: BLE001 - as above
                delay = attempts.failed(result, error)
            if delay is None:
                break
            await asyncio.sleep(delay)
        result.duration = monotonic() - began
        return result


@final
class _Collected(Generic[RequestT, ResponseT]):
    """Results by their place; refuses to collect for ever."""

    def __init__(self, requests: object, limit: int | None) -> None:
        if _is_endless(requests):
            raise ValueError(
                f"run() collects all results, and {type(requests).__name__} never ends; use stream_results(), "
                "or take a part of it with itertools.islice()."
            )
        counted = length_hint(requests, 0) > 0
        self._limit = MAX_UNCOUNTED if limit is None and not counted else limit
        self._results: dict[int, LoopResult[RequestT, ResponseT]] = {}

    def add(self, result: LoopResult[RequestT, ResponseT], number: int | None = None) -> None:
        self._results[len(self._results) if number is None else number] = result
        if self._limit is not None and len(self._results) > self._limit:
            raise EndlessRequestsError(
                f"run() has collected {len(self._results):,} results, and the requests have not ended. They are in "
                "`results` of this error. Use stream_results(), or allow more with max_requests=.",
                results=self.results(),
            )

    def results(self) -> list[LoopResult[RequestT, ResponseT]]:
        return [self._results[number] for number in sorted(self._results)]


def _is_endless(requests: object) -> bool:
    """Whether an iterator of the standard library says of itself that it never ends."""
    if isinstance(requests, itertools.repeat):
        return length_hint(cast("object", requests), -1) < 0
    return isinstance(requests, itertools.count | itertools.cycle)


def _plain(requests: Iterable[RequestT] | AsyncIterable[RequestT]) -> Iterable[RequestT]:
    if not isinstance(requests, Iterable):
        raise TypeError(f"{type(requests).__name__} is asynchronous; use arun() or astream_results().")
    return requests


@final
class _Source(Generic[RequestT]):
    """Takes requests one at a time, from a plain or an asynchronous iterable."""

    def __init__(self, requests: Iterable[RequestT] | AsyncIterable[RequestT]) -> None:
        self._later = aiter(requests) if isinstance(requests, AsyncIterable) else None
        self._now = None if isinstance(requests, AsyncIterable) else iter(requests)
        self.is_over = False

    @property
    def is_async(self) -> bool:
        """Whether `take_later` is to be used."""
        return self._later is not None

    def take(self) -> RequestT | object:
        """The next request, `_END` after the last."""
        return self._taken(next(cast("Iterator[RequestT]", self._now), _END))

    async def take_later(self) -> RequestT | object:
        """The same, of an asynchronous iterable."""
        return self._taken(await anext(cast("AsyncIterator[RequestT]", self._later), _END))

    def _taken(self, taken: RequestT | object) -> RequestT | object:
        self.is_over = taken is _END
        return taken


@final
class _Ends:
    """Gives tasks in the order of their ends. `asyncio.wait` would look at every task for each of them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: deque[asyncio.Task[Any]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def watch(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Give it when it has ended."""
        task.add_done_callback(self._add)
        return task

    async def next(self) -> asyncio.Task[Any]:
        """Wait for the next end."""
        while not self._ended:
            self._waiter = self._loop.create_future()
            # Woken now and then: a signal that comes just before the loop begins to wait does not end the waiting, so
            # its handler would run only when something else happens.
            timer = self._loop.call_later(_WAKE, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
        return self._ended.popleft()

    def _add(self, task: asyncio.Task[Any]) -> None:
        self._ended.append(task)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
