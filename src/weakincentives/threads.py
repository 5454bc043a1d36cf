"""Worker threads for handlers that may have to be abandoned.

A Python thread cannot be stopped. At its deadline a handler is abandoned: the caller goes on, the thread is counted
until the handler returns, and its handles are fenced, so that it can change nothing. When too many are stuck, new work
is refused: waiting longer would not help.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, final

from .interrupts import Lock

T = TypeVar("T")

MAX_ABANDONED = 8
"""How many handlers may be stuck at once before threaded calls are refused."""

_MAX_IDLE = 16
"""How many idle threads are kept for good."""

_KEEP = 1.0
"""Seconds that an idle thread beyond these is kept: calls that run at once again and again need it again."""


@final
class _Worker:
    """A daemon thread that runs one piece of work after another."""

    __slots__ = ("abandoned", "work")

    def __init__(self) -> None:
        self.work: SimpleQueue[ThreadCall] = SimpleQueue()
        self.abandoned = False
        threading.Thread(target=self._run, name="wink-handler", daemon=True).start()

    def _run(self) -> None:
        patience: float | None = None
        while True:
            try:
                call = self.work.get(timeout=patience)
            except Empty:
                if _pool.retire(self):
                    return
                continue
            call.run()
            is_kept, patience = _pool.release(self, call)
            call.tell()
            del call  # an idle worker keeps nothing alive
            if not is_kept:
                return


@final
class _ThreadPool:
    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self.abandoned = 0

    def acquire(self) -> _Worker:
        with self._lock:
            return self._idle.pop() if self._idle else _Worker()

    def release(self, worker: _Worker, call: ThreadCall) -> tuple[bool, float | None]:
        """The work is done. Whether the worker is kept, which it is unless it was abandoned, and for how long."""
        with self._lock:
            call.set_done()
            if worker.abandoned:
                self.abandoned -= 1
                return False, None
            self._idle.append(worker)  # before the caller knows: its next call then finds this thread
            return True, None if len(self._idle) <= _MAX_IDLE else _KEEP

    def retire(self, worker: _Worker) -> bool:
        """End a worker that was idle for long; False when work is on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def abandon(self, worker: _Worker, call: ThreadCall) -> bool:
        """Stop waiting for a worker; False when it has finished after all."""
        with self._lock:
            if call.done():
                return False
            worker.abandoned = True
            self.abandoned += 1
            return True


_pool = _ThreadPool()


os.register_at_fork(after_in_child=_pool.__init__)  # a forked child has none of the threads


def abandoned_count() -> int:
    """How many abandoned handlers have not returned yet."""
    return _pool.abandoned


@final
class ThreadCall:
    """Work running in a thread of its own, with the caller's context variables.

    As much of a `Future` as one waiter needs. A `Future` has a condition variable, which takes longer than many a
    handler.
    """

    __slots__ = ("_callback", "_context", "_done", "_error", "_function", "_result", "_worker")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], Any] | None = function
        self._context = copy_context()
        self._callback: Callable[[ThreadCall], object] | None = None
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._worker = _pool.acquire()
        self._worker.work.put(self)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._done

    def add_done_callback(self, callback: Callable[[ThreadCall], object], /) -> None:
        """Call it, in either thread, when the work has ended, perhaps twice; it may not raise. Only for one waiter."""
        self._callback = callback
        if self._done:  # perhaps before the worker could see the callback
            callback(self)

    def result(self) -> Any:
        """What it returned, or raise what it raised; only when it is done, and once."""
        error, self._error = self._error, None  # an exception is not kept alive by its own frames
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            del error

    def abandon(self) -> bool:
        """Stop waiting for it; False when it has finished after all, so that its result counts."""
        return _pool.abandon(self._worker, self)

    # In the worker.

    def run(self) -> None:
        """Call the function."""
        function, self._function = self._function, None
        assert function is not None
        try:
            self._result = self._context.run(function)
        except BaseException as error:  # noqa: BLE001 - it travels to the caller, Ctrl-C included
            self._error = error

    def set_done(self) -> None:
        """It has ended."""
        self._done = True

    def tell(self) -> None:
        """Wake the waiter; a callback that is added from now on sees that the work is done."""
        if self._callback is not None:
            self._callback(self)
