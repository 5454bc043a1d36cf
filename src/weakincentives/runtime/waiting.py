"""The two ways to wait, so that a call is written once: blocking a thread, or awaiting in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from time import sleep
from typing import Any, Protocol, TypeVar, final

from .processes import POOL, Job
from .threads import Threaded
from .transactions import Savepoint

T = TypeVar("T")

_GRACE = 0.05
"""Seconds a cancelled coroutine gets to unwind before it is left to itself."""


class OutOfTime(Exception):  # noqa: N818 - an event, not a fault
    """The handler did not end in time; it was killed or abandoned."""


class Waiting(Protocol):
    """How a call waits for locks, handlers and its turn."""

    async def open(self, savepoint: Savepoint, *, shared: bool) -> None:
        """Open a savepoint once other calls have let go."""
        ...

    async def finish(self, awaitable: Awaitable[Any]) -> Any:
        """Wait for an async handler, as long as it takes."""
        ...

    async def within(self, seconds: float, function: Callable[[], Any], *, is_async: bool) -> Any:
        """Run a handler for at most so long; `OutOfTime` leaves it running, with nothing it can change."""
        ...

    async def in_process(self, seconds: float | None, job: Job) -> Any:
        """Run a job in a worker process; `OutOfTime` when it had to be killed."""
        ...

    async def turn(self, before: Future[None]) -> None:
        """Wait until the call before is settled."""
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Run something short that waits for a disk or a server; it always runs to its end, also when cancelled."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        ...


@final
class Blocking:
    """For plain threads. Its coroutines never suspend, so they need no event loop."""

    async def open(self, savepoint: Savepoint, *, shared: bool) -> None:
        savepoint.open(shared)

    async def finish(self, awaitable: Awaitable[Any]) -> Any:
        return _run_loop(awaitable)

    async def within(self, seconds: float, function: Callable[[], Any], *, is_async: bool) -> Any:
        threaded = Threaded((lambda: asyncio.run(_awaited(function()))) if is_async else function)
        return _result(threaded, seconds)

    async def in_process(self, seconds: float | None, job: Job) -> Any:
        worker = POOL.take()
        try:
            result = _result(Threaded(lambda: worker.run(job)), seconds)
        except OutOfTime:
            worker.kill()
            raise
        except BaseException:
            worker.kill()
            raise
        POOL.give_back(worker)
        return result

    async def turn(self, before: Future[None]) -> None:
        before.result()

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    async def pause(self, seconds: float) -> None:
        sleep(seconds)  # noqa: ASYNC251 - these coroutines run in plain threads


@final
class Awaiting:
    """For tasks of an event loop."""

    async def open(self, savepoint: Savepoint, *, shared: bool) -> None:
        await savepoint.aopen(shared)

    async def finish(self, awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    async def within(self, seconds: float, function: Callable[[], Any], *, is_async: bool) -> Any:
        if is_async:
            return await _task_within(seconds, function())
        return await _thread_within(seconds, Threaded(function))

    async def in_process(self, seconds: float | None, job: Job) -> Any:
        worker = POOL.take()
        try:
            result = await _thread_within(seconds, Threaded(lambda: worker.run(job)))
        except BaseException:
            worker.kill()
            raise
        POOL.give_back(worker)
        return result

    async def turn(self, before: Future[None]) -> None:
        await asyncio.wrap_future(before)

    async def call(self, function: Callable[[], T]) -> T:
        future = asyncio.wrap_future(Threaded(function).future)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


BLOCKING: Waiting = Blocking()
AWAITING: Waiting = Awaiting()


def _result(threaded: Threaded, seconds: float | None) -> Any:
    try:
        return threaded.future.result(seconds)
    except FutureTimeout:
        if threaded.future.done():  # it ended in the last moment, or raised a TimeoutError of its own
            return threaded.future.result()
        if threaded.abandon():
            raise OutOfTime from None
        return threaded.future.result()
    except BaseException:
        threaded.abandon()  # Ctrl-C while waiting; does nothing when the handler itself raised
        raise


async def _thread_within(seconds: float | None, threaded: Threaded) -> Any:
    future = asyncio.wrap_future(threaded.future)
    try:
        await asyncio.wait({future}, timeout=seconds)
    except BaseException:
        threaded.abandon()
        raise
    if future.done() or not threaded.abandon():
        return await future
    future.cancel()
    raise OutOfTime


async def _task_within(seconds: float, awaitable: Awaitable[Any]) -> Any:
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
    except BaseException:
        await _stopped(task)
        raise
    await _stopped(task)
    raise OutOfTime


async def _stopped(task: asyncio.Future[Any]) -> None:
    """Cancel a handler and let it unwind for a moment; one that will not end is left alone, fenced."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE)
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that nobody is told it was not


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run_loop(awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable to its end from plain code, also inside a thread whose event loop is busy with us."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(awaitable))
    return Threaded(lambda: asyncio.run(_awaited(awaitable))).future.result()


__all__ = ["AWAITING", "BLOCKING", "OutOfTime", "Waiting"]
