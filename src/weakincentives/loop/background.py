"""Work that goes on in the background while the caller does something else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, Self, final

from ..event_loop import running_loop, thread_loop
from ..lazy_modules import asyncio


@final
class BackgroundLoop:
    """Runs coroutines on this thread's kept event loop and hands over what they return, in the order of their ends.

    Used by one thread, in a `with` block. Its end cancels what still runs and waits until that has ended. What a
    coroutine raises is raised by `next_ended`.

    Args:
        wake: seconds after which a waiting caller notices Ctrl-C at the latest: a signal that comes just before a
            thread begins to wait does not end the waiting.
    """

    def __init__(self, wake: float) -> None:
        self._wake = wake
        self._kept = thread_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.running: int = 0

    def start(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Call it there and await what it gives; `running` counts it until its end is handed over."""
        self.running += 1
        self._kept.loop.call_soon_threadsafe(self._begin, work)

    def has_ended(self) -> bool:
        """Whether `next_ended` would not wait."""
        return not self._ended.empty()

    def next_ended(self) -> Any:
        """Wait for the next end."""
        while True:
            try:
                result, error = self._ended.get(timeout=self._wake)
            except Empty:
                continue
            self.running -= 1
            if error is not None:
                raise error
            return result

    def __enter__(self) -> Self:
        self._kept.enter(self)
        self._kept.hold()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._kept.run(self._finish())
        finally:
            self._kept.leave(self)

    # On the loop.

    def _begin(self, work: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.create_task(self._one(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            self._ended.put((await work(), None))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler, too, belongs to the caller's thread
            self._ended.put((None, error))

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def refuse_in_event_loop(what: str, instead: str) -> None:
    """RuntimeError in a thread whose event loop is running: it would stand still."""
    if running_loop() is not None:
        raise RuntimeError(f"{what} would block the event loop it is called in; use `{instead}`.")


__all__ = ["BackgroundLoop", "refuse_in_event_loop"]
