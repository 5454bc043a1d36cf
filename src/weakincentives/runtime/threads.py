"""Worker threads for handlers that may have to be given up on.

A Python thread cannot be stopped. At its deadline a handler is abandoned: the caller goes on, the thread is counted
until the handler returns, and its handles are fenced, so that it can change nothing. Too many of them and new work is
refused: something is wrong that waiting will not mend.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar, final

T = TypeVar("T")

MAX_ABANDONED = 8
"""How many handlers may be stuck at once before threaded calls are refused."""


@final
class _Worker:
    """A daemon thread that runs one piece of work after another."""

    __slots__ = ("abandoned", "work")

    def __init__(self) -> None:
        self.work: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self.abandoned = False
        threading.Thread(target=self._run, name="wink-handler", daemon=True).start()

    def _run(self) -> None:
        while True:
            function, future = self.work.get()
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - it travels to the caller, Ctrl-C included
                future.set_exception(error)
                del error
            else:
                future.set_result(result)
                del result
            del function, future  # an idle worker keeps nothing alive
            if not _pool.give_back(self):
                return


@final
class _Pool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self.abandoned = 0

    def take(self) -> _Worker:
        with self._lock:
            return self._idle.pop() if self._idle else _Worker()

    def give_back(self, worker: _Worker) -> bool:
        """Ready for more; an abandoned worker, or one too many, ends instead."""
        with self._lock:
            if worker.abandoned:
                self.abandoned -= 1
                return False
            if len(self._idle) >= 16:
                return False
            self._idle.append(worker)
            return True

    def abandon(self, worker: _Worker, future: Future[Any]) -> bool:
        """Stop waiting for a worker; False when it has finished after all."""
        with self._lock:
            if future.done():
                return False
            worker.abandoned = True
            self.abandoned += 1
            return True


_pool = _Pool()


os.register_at_fork(after_in_child=_pool.__init__)  # a forked child has none of the threads


def abandoned_count() -> int:
    """How many handlers were given up on and have not returned yet."""
    return _pool.abandoned


@final
class Threaded:
    """Work running in a thread of its own, with the caller's context variables."""

    __slots__ = ("_worker", "future")

    def __init__(self, function: Callable[[], T]) -> None:
        self._worker = _pool.take()
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel what the worker will set
        context = copy_context()
        self._worker.work.put((lambda: context.run(function), self.future))

    def abandon(self) -> bool:
        """Give up on it; False when it has finished after all, so that its result counts."""
        return _pool.abandon(self._worker, self.future)


__all__ = ["MAX_ABANDONED", "Threaded", "abandoned_count"]
