"""The events of one run, one after another, while it runs: for pages and programs that show it.

A run belongs to the block that reads its events. Leaving the block early cancels the run, and returns once the call
that was running is undone: a generator that is only dropped would be closed at some later moment, and the undo with it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import get_ident
from time import time
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, final

from ..crash_log import log_crash
from ..interrupts import Lock
from ..lazy_modules import asyncio
from ..runtime.options import RunToRecord
from ..runtime.progress import (
    OnEvent,
    ProgressEvent,
    ReasoningDelta,
    RunEvent,
    TextDelta,
)
from ..runtime.record.events import recorded_events
from ..runtime.record.reading import RecordedRun
from ..runtime.record.runs import RunRecord
from ..runtime.response import Finished, PromptResponse, RunStarted, StreamEvent
from ..session import Session
from .background import BackgroundLoop

OutputT = TypeVar("OutputT")

_logger = logging.getLogger(__name__)
_MAX_DIGITS = 15
_WAKE = 0.5
"""Seconds after which Ctrl-C is noticed at the latest."""
_NOT_ENTERED = "A stream of events is read inside its block: `with ... as events:`, or `async with` in async code."


class StreamedRun(NamedTuple, Generic[OutputT]):
    """A run that is about to begin."""

    session: Session
    prompt_name: str
    run_id: str | None
    response: Callable[[], Awaitable[PromptResponse[OutputT]]]
    record: RunToRecord | None = None


Begin = Callable[[OnEvent], StreamedRun[OutputT]]
"""Prepares a run that tells `on_event` what happens; may raise what preparing it raises."""


def tell_both(stream: OnEvent, other: OnEvent | None) -> OnEvent:
    """Tell the stream, then the listener that the caller has besides, if any."""
    if other is None:
        return stream

    def tell(event: ProgressEvent) -> None:
        stream(event)
        other(event)

    return tell


def _recorded_in(record: RunToRecord | None) -> RecordedRun | None:
    """What is on record of the run that is about to begin; None when nothing is."""
    if not isinstance(record, RunRecord) or record.store.info(record.run_id) is None:
        return None
    return RecordedRun(record.store, record.run_id)


def _number(step: int | str) -> int:
    """A step as a program or a browser names it. A header can hold anything: what is not a number means the start."""
    if isinstance(step, str):
        step = int(step) if step.isascii() and step.isdigit() and len(step) <= _MAX_DIGITS else 0
    return max(step, 0)


class _Stream(ABC, Generic[OutputT]):
    """Events that were not taken yet, and how the run ended.

    Events are told in the thread of the run and never wait for the reader. Text that was not taken yet is one event, so
    what is kept for a slow reader is no longer than what the model has said.
    """

    def __init__(self, begin: Begin[OutputT], after: int | str | None = None) -> None:
        self._begin = begin
        self._after = None if after is None else _number(after)
        self._run: StreamedRun[OutputT] | None = None
        self._lock = Lock()
        self._waiting: deque[RunEvent] = deque()
        self._pieces: list[str] = []
        self._last = RunEvent()
        self._response: PromptResponse[OutputT] | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._was_told = False

    @property
    def session(self) -> Session:
        """The session of the run; it is there once the block is entered."""
        if self._run is None:
            raise RuntimeError(_NOT_ENTERED)
        return self._run.session

    def _enter(self) -> StreamedRun[OutputT]:
        if self._run is not None:
            raise RuntimeError("A stream of events is one run: it cannot be entered a second time.")
        run = self._run = self._begin(self._put)
        self._put(RunStarted(run.prompt_name, run_id=run.run_id, at=time()))
        return run

    @abstractmethod
    def _wake(self) -> None:
        """There is something for the reader; called in any thread."""

    def _put(self, event: RunStarted | ProgressEvent) -> None:
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if isinstance(event, TextDelta | ReasoningDelta):
                where = event.turn, event.path
                if last is not None and type(last) is type(event) and (last.turn, last.path) == where:
                    self._pieces.append(event.text)
                    return
                self._join()
                self._pieces = [event.text]
            else:
                self._join()
            self._waiting.append(event)
            if not event.path:
                self._last = event
        self._wake()

    def _join(self) -> None:
        """Make one event of the text at the end."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, TextDelta | ReasoningDelta) and len(self._pieces) > 1:
            self._waiting[-1] = replace(last, text="".join(self._pieces))
        self._pieces = []

    def _ended(self, response: PromptResponse[OutputT] | None, error: BaseException | None) -> None:
        """The run is over; nothing is told any more."""
        with self._lock:
            self._response, self._error, self._is_over = response, error, True
        self._wake()

    def _take(self) -> StreamEvent[OutputT] | None:
        """The next event, or None when the reader must wait; raises what ended the run, once."""
        with self._lock:
            if len(self._waiting) == 1:
                self._join()
            if self._waiting:
                return self._waiting.popleft()  # pyright: ignore[reportReturnType] - only such were put
            if not self._is_over or self._was_told:
                return None
            self._was_told = True
        if self._response is None:
            raise self._error or RuntimeError("The run ended without an answer.")
        response, last = self._response, self._last
        step = last.step if response.step is None else response.step
        return Finished(response, run_id=last.run_id, step=step, turn=response.turns, at=time())

    # What is on record already.

    @property
    def _is_due(self) -> bool:
        """Whether the record is to be told now. The run is ours by then, so what happens next follows on that."""
        if self._after is None:
            return False
        with self._lock:
            return self._is_over or any(not isinstance(event, RunStarted) for event in self._waiting)

    def _tell_record(self) -> None:
        """Put what is on record before what happens now, up to where that begins; waits for the store."""
        with self._lock:
            now: Any = next((event for event in self._waiting if not isinstance(event, RunStarted)), self._response)
        record = None if self._run is None else _recorded_in(self._run.record)
        earlier: list[RunEvent] = []
        if record is not None:
            told = recorded_events(record, self._after or 0, None if now is None else now.step, raises=False)
            earlier = [event for event in told if not isinstance(event, RunStarted | Finished)]
        with self._lock:
            at = 1 if self._waiting and isinstance(self._waiting[0], RunStarted) else 0
            for number, event in enumerate(earlier):
                self._waiting.insert(at + number, event)
            self._after = None

    def _left(self, raised: BaseException | None) -> None:
        """The block was left: raise what the reader has not seen, unless it has an error of its own."""
        error = self._error
        if self._was_told or error is None or isinstance(error, asyncio.CancelledError):
            return
        self._was_told = True
        if raised is None:
            raise error
        log_crash(_logger, "A run that was left failed as well", error, None)


@final
class EventStream(_Stream[OutputT]):
    """The events of one run, for async code: `async with loop.stream(request) as events:`, then `async for`.

    The run begins when the block is entered and is cancelled when it is left: the call that runs is undone, all others
    are answered, and then the block ends. A run that fails raises its error where the next event was expected; after
    the last event, `Finished`, the iteration ends. One task reads it.
    """

    _task: asyncio.Task[None] | None = None
    _telling: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._ready = asyncio.Event()
        run = self._enter()
        self._task = self._loop.create_task(self._follow(run))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, cancelled = self._task, None
        if task is None:
            return
        task.cancel()
        ending: set[asyncio.Future[None]] = {task} if self._telling is None else {task, self._telling}
        while any(not one.done() for one in ending):
            try:
                await asyncio.wait(ending)
            except asyncio.CancelledError as again:  # the undo is finished first
                cancelled = again
        if cancelled is not None:
            raise cancelled
        self._left(error)

    def __aiter__(self) -> AsyncIterator[StreamEvent[OutputT]]:
        return self

    async def __anext__(self) -> StreamEvent[OutputT]:
        if self._task is None:
            raise RuntimeError(_NOT_ENTERED)
        while True:
            self._ready.clear()  # before looking: what comes afterwards sets it again
            if self._is_due:
                self._telling = self._telling or asyncio.ensure_future(asyncio.to_thread(self._tell_record))
                await asyncio.shield(self._telling)
            event = self._take()
            if event is not None:
                return event
            if self._was_told:
                raise StopAsyncIteration
            await self._ready.wait()

    async def _follow(self, run: StreamedRun[OutputT]) -> None:
        try:
            self._ended(await run.response(), None)
        except BaseException as error:
            self._ended(None, error)
            if not isinstance(error, Exception):
                raise

    def _wake(self) -> None:
        if get_ident() == self._thread:
            self._ready.set()
        else:
            self._loop.call_soon_threadsafe(self._ready.set)


@final
class SyncEventStream(_Stream[OutputT]):
    """The events of one run, for synchronous code: `with loop.stream_sync(request) as events:`, then `for`.

    The run goes on in another thread while you handle an event. Leaving the block, also by Ctrl-C, cancels it as
    leaving an `EventStream` does. One thread reads it.
    """

    _background: BackgroundLoop | None = None

    def __enter__(self) -> Self:
        self._ready: SimpleQueue[None] = SimpleQueue()
        run = self._enter()
        self._background = BackgroundLoop(_WAKE)
        self._background.__enter__()
        self._background.start(lambda: self._follow(run))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background is not None:
            self._background.__exit__(kind, error, trace)
            self._left(error)

    def __iter__(self) -> Iterator[StreamEvent[OutputT]]:
        return self

    def __next__(self) -> StreamEvent[OutputT]:
        if self._background is None:
            raise RuntimeError(_NOT_ENTERED)
        while True:
            if self._is_due:
                self._tell_record()
            event = self._take()
            if event is not None:
                return event
            if self._was_told:
                raise StopIteration
            try:
                self._ready.get(timeout=_WAKE)
            except Empty:
                continue

    async def _follow(self, run: StreamedRun[OutputT]) -> None:
        try:
            self._ended(await run.response(), None)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler, too, belongs to the reader's thread
            self._ended(None, error)

    def _wake(self) -> None:
        self._ready.put(None)


__all__ = ["Begin", "EventStream", "StreamedRun", "SyncEventStream", "tell_both"]
