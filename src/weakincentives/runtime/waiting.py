"""The two ways to wait, so that a call is written once: blocking a thread, or awaiting in an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, NamedTuple, Protocol, TypeVar, final

from ..deadlines import Deadline
from ..event_loop import EventLoop, KeptLoop, outcome_of, running_loop, thread_loop, with_home
from ..interrupts import MAIN, OTHER, Shield, unshielded, wait_until_done
from ..prompt.events import Outcome
from .locks import LockTimeout
from .processes import POOL, Answer, Job
from .threads import Threaded
from .transactions import Savepoint

T = TypeVar("T")

GetLoop = Callable[[], EventLoop]
"""Gives the loop on which plain code runs what is async; asked only when there is something."""

_GRACE = 0.05
"""Seconds a cancelled coroutine gets to unwind before it is left to itself."""


_START = 60.0
"""Seconds that a worker process may take to start."""

_FOR_EVER = 365.0 * 24 * 3600
"""As long as anything waits: locks refuse to wait for centuries."""


class OutOfTime(Exception):  # noqa: N818 - an event, not a fault
    """The handler did not end in time; it was killed or abandoned."""


class Limits(NamedTuple):
    """How long a handler may run: so long, and not beyond the run's deadline."""

    timeout: float | None
    deadline: Deadline | None

    def seconds(self) -> float | None:
        """What is left from now on for a handler that begins now; None for no limit."""
        remaining = self.remaining()
        if self.timeout is None or (remaining is not None and remaining < self.timeout):
            return remaining
        return min(self.timeout, _FOR_EVER)

    def outcome(self) -> Outcome:
        """Which of the two a handler that begins now would exceed."""
        remaining = self.remaining()
        return (
            "timeout" if self.timeout is not None and (remaining is None or self.timeout <= remaining) else "deadline"
        )

    def start(self) -> float:
        """How long a worker process may take to start; that is not the handler's time, but it is the run's."""
        remaining = self.remaining()
        return _START if remaining is None else min(remaining, _START)

    def remaining(self) -> float | None:
        """What is left of the run."""
        return None if self.deadline is None else min(self.deadline.remaining().total_seconds(), _FOR_EVER)


class Waiting(Protocol):
    """How a call waits for locks, handlers and its turn."""

    @property
    def shield(self) -> Shield:
        """The shield of the thread that waits."""
        ...

    @property
    def may_vanish(self) -> bool:
        """Whether the thread or the event loop may end before the process does."""
        ...

    async def open(self, savepoint: Savepoint, *, shared: bool, seconds: float | None = None) -> None:
        """Open a savepoint once other calls have let go; `OutOfTime` when that takes too long."""
        ...

    @property
    def in_loop(self) -> bool:
        """Whether it waits in an event loop, which others need too."""
        ...

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:
        """Wait for an async handler, as long as it takes; plain code runs it on that loop."""
        ...

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        """Run a handler for at most so long; `OutOfTime` leaves it running, with nothing it can change."""
        ...

    async def in_process(self, limits: Limits, job: Job, on_beat: Callable[[], object]) -> Any:
        """Run a job in a worker process, whose beats are passed on; `OutOfTime` when it had to be killed."""
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

    __slots__ = ("_deliver", "may_vanish", "shield")
    in_loop = False

    def __init__(self, shield: Shield, *, deliver: bool = True) -> None:
        self.shield = shield
        self.may_vanish = shield is not MAIN
        self._deliver = deliver

    async def open(self, savepoint: Savepoint, *, shared: bool, seconds: float | None = None) -> None:
        try:
            savepoint.open(shared, seconds)
        except LockTimeout:
            raise OutOfTime from None

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:
        return _run(awaitable, event_loop())

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        if not is_async:
            return _result(Threaded(lambda: _finished(function(), event_loop)), seconds, deliver=self._deliver)
        # The loop cancels it in time, so that the thread comes back; unless it blocks the loop.
        patience = None if seconds is None else seconds + 2 * _GRACE
        runner = event_loop()
        loop = runner.loop
        threaded = Threaded(lambda: _run(_called_within(seconds, function), runner))
        try:
            return _result(threaded, patience, deliver=self._deliver)
        except BaseException:
            if not threaded.future.done() and isinstance(runner, KeptLoop):
                runner.give_up(loop)
            raise

    async def in_process(self, limits: Limits, job: Job, on_beat: Callable[[], object]) -> Any:
        packed = job.packed()
        worker = POOL.take()
        try:
            _result(Threaded(worker.ready), limits.start())
            answer: Answer = _result(Threaded(lambda: worker.run(packed, on_beat)), limits.seconds())
        except BaseException:
            worker.kill()
            raise
        POOL.give_back(worker)
        return answer.get()

    async def turn(self, before: Future[None]) -> None:
        wait_until_done(before)

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    async def pause(self, seconds: float) -> None:
        wait_until_done(Future(), seconds)  # unlike `sleep` it ends when an interrupt is to be delivered


@final
class Awaiting:
    """For tasks of an event loop."""

    __slots__ = ("shield",)
    may_vanish = in_loop = True

    def __init__(self, shield: Shield) -> None:
        self.shield = shield

    async def open(self, savepoint: Savepoint, *, shared: bool, seconds: float | None = None) -> None:
        try:
            await savepoint.aopen(shared, seconds)
        except LockTimeout:
            raise OutOfTime from None

    async def finish(self, awaitable: Awaitable[Any], event_loop: GetLoop) -> Any:  # noqa: ARG002 - it runs here
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        result = await unshielded(awaitable)
        if task is not None and task.cancelling() > before:  # the handler swallowed it
            raise asyncio.CancelledError
        return result

    async def within(
        self, seconds: float | None, function: Callable[[], Any], event_loop: GetLoop = thread_loop, *, is_async: bool
    ) -> Any:
        if is_async:
            return await _task_within(seconds, function())
        home = asyncio.get_running_loop()
        work = Threaded(lambda: with_home(home, lambda: _finished(function(), event_loop)))
        return await _thread_within(seconds, work)

    async def in_process(self, limits: Limits, job: Job, on_beat: Callable[[], object]) -> Any:
        packed = job.packed()
        worker = POOL.take()
        try:
            await _thread_within(limits.start(), Threaded(worker.ready))
            answer: Answer = await _thread_within(limits.seconds(), Threaded(lambda: worker.run(packed, on_beat)))
        except BaseException:
            worker.kill()
            raise
        POOL.give_back(worker)
        return answer.get()

    async def turn(self, before: Future[None]) -> None:
        # Shielded: cancelling the wait must not cancel what the call before will set.
        await unshielded(asyncio.shield(asyncio.wrap_future(before)))

    async def call(self, function: Callable[[], T]) -> T:
        future = asyncio.wrap_future(Threaded(function).future)
        try:
            return await unshielded(asyncio.shield(future))
        except asyncio.CancelledError:
            await unshielded(asyncio.wait({future}))
            raise

    async def pause(self, seconds: float) -> None:
        await unshielded(asyncio.sleep(seconds))


# In the main thread, and in any other one: looked up once per call.
BLOCKING: Waiting = Blocking(MAIN)
BLOCKING_ELSEWHERE: Waiting = Blocking(OTHER)
UNINTERRUPTED: Waiting = Blocking(MAIN, deliver=False)
"""For steps that end a call: an interrupt is delivered once the call is answered."""
AWAITING: Waiting = Awaiting(MAIN)
AWAITING_ELSEWHERE: Waiting = Awaiting(OTHER)


def _result(threaded: Threaded, seconds: float | None, *, deliver: bool = True) -> Any:
    try:
        done = wait_until_done(threaded.future, seconds, deliver=deliver)
    except BaseException:
        threaded.abandon()  # Ctrl-C while waiting
        raise
    if not done and threaded.abandon():  # else it ended in the last moment
        raise OutOfTime
    return threaded.future.result()


async def _thread_within(seconds: float | None, threaded: Threaded) -> Any:
    future = asyncio.wrap_future(threaded.future)
    try:
        await unshielded(asyncio.wait({future}, timeout=seconds))
    except BaseException:
        threaded.abandon()
        future.cancel()
        raise
    if future.done() or not threaded.abandon():
        return await unshielded(future)
    future.cancel()
    raise OutOfTime


async def _called_within(seconds: float | None, function: Callable[[], Any]) -> Any:
    return await _task_within(seconds, function())


async def _task_within(seconds: float | None, awaitable: Awaitable[Any]) -> Any:
    task = asyncio.ensure_future(outcome_of(awaitable))
    try:
        await unshielded(asyncio.wait({task}, timeout=seconds))
        if task.done():
            return task.result()()
        await _stopped(task)
    except BaseException:
        await _stopped(task)
        raise
    finally:
        _close_unbegun(awaitable)
    raise OutOfTime


async def _stopped(task: asyncio.Future[Any]) -> None:
    """Cancel a handler and let it unwind for a moment; one that will not end is left alone, fenced."""
    if not task.done():
        task.cancel()
        await unshielded(asyncio.wait({task}, timeout=_GRACE))
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that nobody is told it was not


def _finished(result: Any, event_loop: GetLoop) -> Any:
    """What a handler returned; one that was called without its being known to be async is run to its end."""
    return _run(result, event_loop()) if inspect.isawaitable(result) else result


def _run(awaitable: Awaitable[Any], event_loop: EventLoop) -> Any:
    """Run an awaitable to its end from plain code, also inside a thread whose event loop is busy with us."""
    here = running_loop()
    if here is not None and here is event_loop.loop:  # it cannot do both
        return _result(Threaded(lambda: asyncio.run(_awaited(awaitable))), None)
    try:
        return event_loop.run(awaitable)
    finally:
        _close_unbegun(awaitable)


def _close_unbegun(awaitable: Awaitable[Any]) -> None:
    """What was cancelled before it began would be complained about."""
    if isinstance(awaitable, CoroutineType) and inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED:  # pyright: ignore[reportUnknownArgumentType]
        awaitable.close()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


# Running a coroutine that never suspends, so that what is written once as `async` serves plain code too.


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, without an event loop; RuntimeError when it waits for something after all."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("A blocking call tried to suspend.")


__all__ = [
    "AWAITING",
    "AWAITING_ELSEWHERE",
    "BLOCKING",
    "BLOCKING_ELSEWHERE",
    "GetLoop",
    "Limits",
    "OutOfTime",
    "UNINTERRUPTED",
    "Waiting",
    "drive",
]
