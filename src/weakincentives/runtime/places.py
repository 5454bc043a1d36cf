"""Where something was begun: the thread, the task and the event loop, so that others can see when these are gone."""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio.events import _get_running_loop as running_loop  # pyright: ignore[reportPrivateUsage]
from typing import Any
from weakref import ref


class Placed:
    """Begun in a thread, and in a task of an event loop if one runs there; ended from the same place, as a rule.

    The main thread is as good as no place at all: it ends with the process.
    """

    __slots__ = ("_loop", "_task", "_thread")

    _loop: ref[asyncio.AbstractEventLoop] | None
    _task: ref[asyncio.Task[Any]] | None
    _thread: threading.Thread | None

    def place_here(self) -> None:
        """Remember the place where this is called."""
        self._thread = _here.thread
        if running_loop() is not None:
            task = asyncio.current_task()
            self._task = None if task is None else ref(task)

    def outlive_task(self) -> None:
        """Say that another task than the one that began it may end it, in the same event loop."""
        loop = running_loop()
        self._task, self._loop = None, None if loop is None else ref(loop)

    def is_orphaned(self) -> bool:
        """Whether nothing can end it any more: its task is done, its event loop closed, or its thread over."""
        loop = None
        if self._task is not None:
            task = self._task()
            if task is None or task.done():
                return True
            loop = task.get_loop()
        elif self._loop is not None:
            loop = self._loop()
            if loop is None:
                return True
        if loop is None:
            return self._thread is not None and not _is_alive(self._thread)
        return loop.is_closed() or not (loop.is_running() or self._thread is None or _is_alive(self._thread))


class _ThisThread(threading.local):
    """The thread object, whose end can be seen; a thread's number may be given to the next one."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()


_here = _ThisThread()


def _is_alive(thread: threading.Thread) -> bool:
    if isinstance(thread, threading._DummyThread):  # pyright: ignore[reportPrivateUsage] # not started by Python
        return thread.ident in sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    return thread.is_alive()


__all__ = ["Placed"]
