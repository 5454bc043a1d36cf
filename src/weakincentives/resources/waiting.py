"""Two ways to wait, so that resolution is written once: block the thread, or await on its loop."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, final

from ..errors import ResourceError
from ..event_loop import EventLoop, KeptLoop, await_on, is_gone, run_on, running_loop
from ..interrupts import wait_until_done

T = TypeVar("T")


class Waiting(Protocol):
    """How the code that asked can wait."""

    @property
    def closers(self) -> tuple[str, str]:
        """The names of closing methods, preferred one first."""
        ...

    def loop_for(self, what: str, /) -> AbstractEventLoop:
        """The loop on which an async provider's result will be awaited, or an error that names the way out."""
        ...

    async def finish(self, pending: Awaitable[T]) -> T:
        """Wait for an async provider, on the loop of `loop_for`."""
        ...

    async def finish_on(self, pending: Awaitable[T], loop: AbstractEventLoop | None, what: str, /) -> T:
        """Wait for something async of a resource that was built on that loop."""
        ...

    async def until(self, done: Future[None]) -> None:
        """Wait until somebody else's build is over."""
        ...


def block_on(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits by blocking, which is therefore done after one step."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("A blocking wait was suspended; this is a defect in weakincentives.")


@final
class Blocking:
    """For sync code. Its coroutines never suspend: run them with `block_on`."""

    __slots__ = ("_event_loop",)
    closers = ("close", "aclose")

    def __init__(self, event_loop: Callable[[], EventLoop]) -> None:
        self._event_loop = event_loop

    def loop_for(self, what: str, /) -> AbstractEventLoop:
        """The run's loop; refused where one is running, which would be blocked and is not where the result belongs."""
        if running_loop() is not None:
            raise ResourceError(
                f"{what} is async, and an event loop is running in this thread, so a plain get cannot wait for it. "
                "Use `await resources.aget(...)`; in a provider, make it async and `await r.aget(...)`."
            )
        return self._event_loop().loop

    async def finish(self, pending: Awaitable[T]) -> T:
        """Wait for the run's loop to do it. What it builds may have work in the background, so the loop runs on."""
        event_loop = self._event_loop()
        if isinstance(event_loop, KeptLoop):
            event_loop.hold()
        return event_loop.run(pending)

    async def finish_on(self, pending: Awaitable[T], loop: AbstractEventLoop | None, what: str, /) -> T:
        """Wait for the resource's own loop to do it, or the run's when that is gone."""
        here, event_loop = running_loop(), self._event_loop()
        if loop is None or is_gone(loop) or loop is event_loop.loop is not here:
            return event_loop.run(pending)
        if loop is here:
            drop(pending)
            raise ResourceError(
                f"{what} is async and belongs to the event loop that is running here, so it was not called. Leave "
                "the resources with `async with` or `await resources.aclose()`."
            )
        if loop.is_running():
            return run_on(loop, pending)
        if here is None:
            return loop.run_until_complete(_as_coroutine(pending))
        return event_loop.run(pending)

    async def until(self, done: Future[None]) -> None:
        """Block until it is over."""
        wait_until_done(done)


@final
class Awaiting:
    """For async code, on the loop that runs in this thread."""

    __slots__ = ("_loop",)
    closers = ("aclose", "close")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def loop_for(self, _what: str, /) -> AbstractEventLoop:
        """This thread's loop."""
        return self._loop

    async def finish(self, pending: Awaitable[T]) -> T:
        """Await it here."""
        return await pending

    async def finish_on(self, pending: Awaitable[T], loop: AbstractEventLoop | None, _what: str, /) -> T:
        """Await it here, or on the resource's own loop when that runs elsewhere."""
        if loop is None or loop is self._loop or not loop.is_running():
            return await pending
        return await await_on(loop, pending)

    async def until(self, done: Future[None]) -> None:
        """Await until it is over."""
        await asyncio.wrap_future(done)


def way_of_waiting(event_loop: Callable[[], EventLoop]) -> Waiting:
    """For a coroutine: await where an event loop runs, block where the coroutine is run without one."""
    loop = running_loop()
    return Blocking(event_loop) if loop is None else Awaiting(loop)


async def _as_coroutine(pending: Awaitable[T]) -> T:
    return await pending


def drop(pending: Awaitable[object]) -> None:
    """Give up a coroutine that never started, so that Python does not warn about it."""
    if isinstance(pending, Coroutine):
        pending.close()


__all__ = ["Awaiting", "Blocking", "Waiting", "block_on", "drop", "way_of_waiting"]
