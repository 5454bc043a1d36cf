"""An event loop of our own, for async providers and `aclose()` in programs that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from threading import Thread, current_thread
from typing import TypeVar, final

from ..interrupts import shielded, wait_until_done

T = TypeVar("T")


async def _awaited(pending: Awaitable[T]) -> T:
    return await pending


def run_on(loop: asyncio.AbstractEventLoop, pending: Awaitable[T]) -> T:
    """Run it on a loop that runs in another thread, and wait; an interrupt while waiting cancels it."""
    with shielded():
        future = asyncio.run_coroutine_threadsafe(_awaited(pending), loop)
        try:
            wait_until_done(future)
        except BaseException:
            future.cancel()
            raise
        return future.result()


async def await_on(loop: asyncio.AbstractEventLoop, pending: Awaitable[T]) -> T:
    """Run it on a loop that runs in another thread, and await the result on this one."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(pending), loop))


@final
class Portal:
    """A loop in a daemon thread.

    It runs from construction until `stop()`, not only while somebody waits, so that what async providers built
    keeps working: connections stay alive, their background tasks run, and `aclose()` runs where they were made.
    """

    __slots__ = ("_thread", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="weakincentives-resources", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def run(self, pending: Awaitable[T]) -> T:
        """Run it here and wait for the result, in the caller's context variables."""
        return run_on(self.loop, pending)

    def stop(self) -> None:
        """Cancel what still runs and end the thread."""
        with shielded():
            self.loop.call_soon_threadsafe(self.loop.stop)
            if current_thread() is not self._thread:
                self._thread.join()


__all__ = ["Portal", "await_on", "run_on"]
