"""Where something was started: the thread, the task and the event loop, so that others can see when these end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from time import monotonic
from typing import Any
from weakref import ref

from ..event_loop import running_loop
from ..interrupts import WeakTable
from ..lazy_modules import asyncio

_STANDSTILL = 30.0
"""Seconds that an event loop of another thread may stand still before those that wait for it are told."""


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

    def standstill(self, *, blocking: bool) -> str | None:
        """Why it cannot end although its thread, task and event loop exist; None when it can. Called by a waiter.

        Its event loop is blocked by the very code that asks (`blocking`), or does not run and has not for a while.
        It may be run again at any moment, so no other code can end what was begun there.
        """
        loop = None
        if self._task is not None:
            task = self._task()
            loop = None if task is None else task.get_loop()
        elif self._loop is not None:
            loop = self._loop()
        if loop is None or loop.is_closed():
            return None
        if loop.is_running():
            is_blocked = blocking and loop is running_loop()
            return "this thread blocks its event loop: await here instead of blocking" if is_blocked else None
        patience = 0.0 if blocking and self._thread is _here.thread else _STANDSTILL
        stands_still = _stood_still(loop) >= patience
        return "its event loop is not running: run it on, or close it and the call is undone" if stands_still else None


class _ThisThread(threading.local):
    """The thread object, whose end can be seen; a thread's number may be given to the next one."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()


_here = _ThisThread()


_standing: WeakTable[asyncio.AbstractEventLoop, tuple[float, list[None]]] = WeakTable()
"""Event loops that did not run when a waiter looked: since when, and an item once one of them has run again."""


def _stood_still(loop: asyncio.AbstractEventLoop) -> float:
    """Seconds for which the loop has certainly not run; a look now and then would miss one that runs in steps."""
    since, ran = _standing.get(loop) or (0.0, [None])
    if ran:
        since, ran = monotonic(), list[None]()
        try:
            loop.call_soon_threadsafe(ran.append, None, context=Context())
        except RuntimeError:  # it was closed this moment
            return 0.0
        _standing.put(loop, (since, ran))
    return monotonic() - since


# Nothing public tells whether a thread that Python did not start is over. Without these it is taken to be alive.
_FOREIGN: Any = getattr(threading, "_DummyThread", ())
_current_frames: Callable[[], Mapping[int, Any]] | None = getattr(sys, "_current_frames", None)


def _is_alive(thread: threading.Thread) -> bool:
    if isinstance(thread, _FOREIGN):
        return _current_frames is None or thread.ident in _current_frames()
    return thread.is_alive()


__all__ = ["Placed"]
