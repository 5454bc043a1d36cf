"""The two ways to wait, blocking a thread or awaiting in an event loop. Code that waits is written once, as `async`.

It takes a `Waiting`. Synchronous code passes `blocking_here()`, with which a coroutine never suspends, and runs the
coroutine by `drive`; async code passes `awaiting_here()`, and awaits it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import get_ident
from time import monotonic
from types import CoroutineType
from typing import Any, Protocol, TypeVar, final

from .errors import ResourceError
from .event_loop import (
    EventLoop,
    KeptLoop,
    await_on,
    awaited,
    is_gone,
    outcome_of,
    run_on,
    running_loop,
    thread_loop,
    with_home,
)
from .interrupts import LOOK, MAIN, OTHER, Ending, Shield, unshielded, wait_until_done
from .lazy_modules import asyncio
from .threads import ThreadCall

T = TypeVar("T")

GetLoop = Callable[[], EventLoop]
"""Gives the loop on which synchronous code runs what is async; asked only when there is something."""

Meanwhile = Callable[[], object] | None
"""What is called from time to time during a long wait."""

CANCEL_GRACE = 0.05
"""Seconds a cancelled coroutine gets to unwind before it is left to itself."""


class OutOfTime(Exception):  # noqa: N818 - an event, not a fault
    """Time ran out: for a handler, which was killed or abandoned, or for a wait, which took no lock."""


class Waiting(Protocol):
    """How a call waits for locks, handlers, resources and the calls before it."""

    @property
    def shield(self) -> Shield:
        """The shield of the thread that waits."""
        ...

    @property
    def may_vanish(self) -> bool:
        """Whether the thread or the event loop may end before the process."""
        ...

    @property
    def in_loop(self) -> bool:
        """Whether it waits in an event loop, which other tasks share."""
        ...

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:
        """Wait for an async handler without a limit; synchronous code runs it on that loop."""
        ...

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        """Run a handler for at most `seconds`. After `OutOfTime` it may still run, but can change nothing."""
        ...

    async def until(
        self, done: Future[Any], seconds: float | None = None, *, meanwhile: Meanwhile = None, period: float = LOOK
    ) -> None:
        """Wait until another thread or task has set it; `meanwhile` is called every `period` seconds.

        Its result is not read. `OutOfTime` after `seconds`. Cancelling the wait does not cancel the future.
        """
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Run a short function that waits for a disk or a server; it runs to its end, also when cancelled."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    def resource_loop(self, event_loop: GetLoop, what: str, /) -> asyncio.AbstractEventLoop:
        """The loop on which an async resource is built and lives; `ResourceError` where it could not be awaited."""
        ...

    async def finish_on(
        self, loop: asyncio.AbstractEventLoop | None, pending: Awaitable[T], event_loop: GetLoop, what: str, /
    ) -> T:
        """Wait for something async of a resource that belongs to that loop, if to any. `what` names it in errors."""
        ...


@final
class Blocking:
    """For synchronous code. Its coroutines never suspend, so they need no event loop."""

    __slots__ = ("_deliver", "may_vanish", "shield")
    in_loop = False

    def __init__(self, shield: Shield, *, deliver: bool = True) -> None:
        self.shield: Shield = shield
        self.may_vanish: bool = shield is not MAIN
        self._deliver = deliver

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:
        return _run(awaitable, event_loop())

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        if not is_async:
            return _result(ThreadCall(lambda: _finished(function(), event_loop)), seconds, deliver=self._deliver)
        # The loop cancels the handler in time, so that the thread returns, unless the handler blocks the loop.
        patience = None if seconds is None else seconds + 2 * CANCEL_GRACE
        runner = event_loop()
        loop = runner.loop
        threaded = ThreadCall(lambda: _run(_called_within(seconds, function), runner))
        try:
            return _result(threaded, patience, deliver=self._deliver)
        except BaseException:
            if not threaded.done() and isinstance(runner, KeptLoop):
                runner.give_up(loop)
            raise

    async def until(
        self, done: Future[Any], seconds: float | None = None, *, meanwhile: Meanwhile = None, period: float = LOOK
    ) -> None:
        if not wait_until_done(done, seconds, meanwhile=meanwhile, period=period) and not done.done():
            raise OutOfTime

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    async def sleep(self, seconds: float) -> None:
        wait_until_done(Future[None](), seconds)  # unlike `sleep` it ends when an interrupt is to be delivered

    def resource_loop(self, event_loop: GetLoop, what: str, /) -> asyncio.AbstractEventLoop:
        if running_loop() is not None:  # it would be blocked, and is not where the result belongs
            raise ResourceError(
                f"{what} is async, and an event loop is running in this thread, so a plain get cannot wait for it. "
                "Use `await resources.aget(...)`; in a provider, make it async and `await r.aget(...)`."
            )
        runner = event_loop()
        if isinstance(runner, KeptLoop):
            runner.hold()  # what is built may have work in the background
        return runner.loop

    async def finish_on(
        self, loop: asyncio.AbstractEventLoop | None, pending: Awaitable[T], event_loop: GetLoop, what: str, /
    ) -> T:
        here, runner = running_loop(), event_loop()
        if loop is None or is_gone(loop) or loop is runner.loop is not here:
            return runner.run(pending)
        if loop is here:
            close_unbegun(pending)
            raise ResourceError(
                f"{what} is async and belongs to the event loop that is running here, so it was not called. Leave "
                "the resources with `async with` or `await resources.aclose()`."
            )
        if loop.is_running():
            return run_on(loop, pending)
        if here is None:
            return loop.run_until_complete(awaited(pending))
        return runner.run(pending)


@final
class Awaiting:
    """For tasks of an event loop."""

    __slots__ = ("shield",)
    may_vanish = in_loop = True

    def __init__(self, shield: Shield) -> None:
        self.shield: Shield = shield

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:  # noqa: ARG002 - it runs here
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        result = await unshielded(awaitable)
        if task is not None and task.cancelling() > before:  # the handler swallowed the cancellation
            raise asyncio.CancelledError
        return result

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        if is_async:
            return await _task_within(seconds, function())
        home = asyncio.get_running_loop()
        work = ThreadCall(lambda: with_home(home, lambda: _finished(function(), event_loop)))
        return await _thread_within(seconds, work)

    async def until(
        self, done: Future[Any], seconds: float | None = None, *, meanwhile: Meanwhile = None, period: float = LOOK
    ) -> None:
        waiting = asyncio.wrap_future(done)
        until = None if seconds is None else monotonic() + seconds
        while not done.done():
            left = period if until is None else min(until - monotonic(), period)
            if left <= 0:
                raise OutOfTime
            await _task_ended_within(left, waiting)
            if meanwhile is not None and left == period and not done.done():
                meanwhile()

    async def call(self, function: Callable[[], T]) -> T:
        threaded = ThreadCall(function)
        try:
            await _ended_within(None, threaded)
        except asyncio.CancelledError:
            await _ended_within(None, threaded)
            raise
        return threaded.result()

    async def sleep(self, seconds: float) -> None:
        await unshielded(asyncio.sleep(seconds))

    def resource_loop(self, _event_loop: GetLoop, _what: str, /) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def finish_on(
        self, loop: asyncio.AbstractEventLoop | None, pending: Awaitable[T], _event_loop: GetLoop, _what: str, /
    ) -> T:
        if loop is None or loop is running_loop() or not loop.is_running():
            return await pending
        return await await_on(loop, pending)


# In the main thread, and in any other one: looked up once per call.
BLOCKING: Waiting = Blocking(MAIN)
BLOCKING_ELSEWHERE: Waiting = Blocking(OTHER)
UNINTERRUPTED: Waiting = Blocking(MAIN, deliver=False)
"""For steps that end a call: an interrupt is delivered once the call is answered."""
AWAITING: Waiting = Awaiting(MAIN)
AWAITING_ELSEWHERE: Waiting = Awaiting(OTHER)


def blocking_here() -> Waiting:
    """How synchronous code waits in this thread."""
    return BLOCKING if get_ident() == MAIN.ident else BLOCKING_ELSEWHERE


def awaiting_here() -> Waiting:
    """How async code waits in this thread."""
    return AWAITING if get_ident() == MAIN.ident else AWAITING_ELSEWHERE


def current_waiting() -> Waiting:
    """For a coroutine: await where an event loop runs, block where the coroutine is driven without one."""
    return blocking_here() if running_loop() is None else awaiting_here()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits by blocking, and so never suspends; no event loop is needed.

    RuntimeError when it suspends after all.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("A blocking call tried to suspend.")


def close_unbegun(pending: Awaitable[Any]) -> None:
    """Close a coroutine that has not begun, and will not: Python would warn about it."""
    if isinstance(pending, CoroutineType) and inspect.getcoroutinestate(pending) == inspect.CORO_CREATED:  # pyright: ignore[reportUnknownArgumentType]
        pending.close()


def _result(threaded: ThreadCall, seconds: float | None, *, deliver: bool = True) -> Any:
    try:
        done = wait_until_done(threaded, seconds, deliver=deliver)
    except BaseException:
        threaded.abandon()  # Ctrl-C while waiting
        raise
    if not done and threaded.abandon():  # else it ended in the last moment
        raise OutOfTime
    return threaded.result()


async def _thread_within(seconds: float | None, threaded: ThreadCall) -> Any:
    try:
        await _ended_within(seconds, threaded)
    except BaseException:
        threaded.abandon()
        raise
    if not threaded.done() and threaded.abandon():
        raise OutOfTime
    return threaded.result()


async def _ended_within(seconds: float | None, ending: Ending) -> None:
    """Await the end of something that another thread does, for at most `seconds`. It is never cancelled."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    ending.add_done_callback(lambda _: _wake_from_thread(loop, waiter))
    await _woken_within(seconds, waiter)


def _wake_from_thread(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    with suppress(Exception):  # the loop was closed meanwhile, so nothing waits in it; the worker must go on
        loop.call_soon_threadsafe(_wake, waiter)


async def _task_ended_within(seconds: float | None, task: asyncio.Future[Any]) -> None:
    """The same for a task of this loop."""
    waiter = task.get_loop().create_future()

    def wake(_: object) -> None:
        _wake(waiter)

    task.add_done_callback(wake)
    try:
        await _woken_within(seconds, waiter)
    finally:
        task.remove_done_callback(wake)


async def _woken_within(seconds: float | None, waiter: asyncio.Future[None]) -> None:
    # As `asyncio.wait` does it, for a single thing, which takes a third of the time.
    timer = None if seconds is None else waiter.get_loop().call_later(seconds, _wake, waiter)
    try:
        await unshielded(waiter)
    finally:
        if timer is not None:
            timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _called_within(seconds: float | None, function: Callable[[], Any]) -> Any:
    return await _task_within(seconds, function())


async def _task_within(seconds: float | None, awaitable: Awaitable[Any]) -> Any:
    waiter = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(_outcome_of(awaitable, waiter))
    task.add_done_callback(lambda _: _wake(waiter))  # for a task that is cancelled before it begins
    try:
        await _woken_within(seconds, waiter)
        if task.done():
            return task.result()()
        await _stopped(task)
    except BaseException:
        await _stopped(task)
        raise
    finally:
        close_unbegun(awaitable)
    raise OutOfTime


async def _outcome_of(awaitable: Awaitable[T], waiter: asyncio.Future[None]) -> Callable[[], T]:
    try:
        return await outcome_of(awaitable)
    finally:
        _wake(waiter)  # one round of the event loop before the task calls back


async def _stopped(task: asyncio.Future[Any]) -> None:
    """Cancel a handler and wait for its end, for `CANCEL_GRACE` seconds; one that does not end stays fenced."""
    if not task.done():
        task.cancel()
        await _task_ended_within(CANCEL_GRACE, task)
    if task.done() and not task.cancelled():
        task.exception()  # read, so that asyncio does not warn


def _finished(result: Any, event_loop: GetLoop) -> Any:
    """What a handler returned; an awaitable from a function that did not look async is awaited first."""
    return _run(result, event_loop()) if inspect.isawaitable(result) else result


def _run(awaitable: Awaitable[Any], event_loop: EventLoop) -> Any:
    """Run an awaitable to its end from synchronous code, also where the event loop of this thread is waiting for it."""
    here = running_loop()
    if here is not None and here is event_loop.loop:  # it is running already, and cannot be run again
        return _result(ThreadCall(lambda: asyncio.run(awaited(awaitable))), None)
    try:
        return event_loop.run(awaitable)
    finally:
        close_unbegun(awaitable)


__all__ = [
    "AWAITING", "AWAITING_ELSEWHERE", "BLOCKING", "BLOCKING_ELSEWHERE", "UNINTERRUPTED", "GetLoop", "OutOfTime",
    "Waiting", "awaiting_here", "blocking_here", "close_unbegun", "current_waiting", "drive",
]  # fmt: skip
