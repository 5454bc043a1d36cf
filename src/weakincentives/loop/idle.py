"""Something is done once nothing has happened for a while: in a thread, or in the event loop of async code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, final

from ..lazy_modules import asyncio


@final
class IdleTimer:
    """Runs at most one thing. Not safe to use from several threads at once."""

    def __init__(self, after: timedelta) -> None:
        self._seconds = after.total_seconds()
        self._thread: threading.Timer | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], None]) -> None:
        """Call this later, in a thread that does not keep the process alive."""
        self._thread = threading.Timer(self._seconds, run)
        self._thread.daemon = True
        self._thread.start()

    def start_here(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this later, as a task of the event loop that runs."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._task = loop.create_task(run())

        self._handle = loop.call_later(self._seconds, begin)

    def stop(self) -> None:
        """Do not run it; one that runs in a thread has ended when this returns."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.cancel()
            if thread is not threading.current_thread():
                thread.join()

    async def astop(self) -> None:
        """Like `stop`; one that runs in this event loop has ended, too."""
        task = self._task
        self.stop()
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])


__all__ = ["IdleTimer"]
