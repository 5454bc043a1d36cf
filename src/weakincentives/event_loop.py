"""The event loop of synchronous code: async handlers and resources run on it, and it is kept between calls.

A connection pool belongs to the event loop it was first used on. So synchronous code runs everything async on one
loop per thread; our own worker threads use the loop of the run they work for.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from sys import modules
from threading import Thread, current_thread
from typing import Any, NoReturn, Protocol, TypeVar, final
from weakref import WeakSet, finalize

from .interrupts import Lock, RLock, shielded, wait_until_done
from .lazy_modules import asyncio, asyncio_events
from .signals import run_loop, shielded_run

T = TypeVar("T")

_log = logging.getLogger(__name__)

_GRACE = 3.0
"""Seconds that tasks get to end when the last run on a loop is over; after that the loop is not used again."""

_home: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("weakincentives_home_loop", default=None)
_given_up: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Loops on which something does not end, so that nothing else is run there."""


class EventLoop(Protocol):
    """Where something async can be run by code that waits for it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself."""
        ...

    def run(self, pending: Awaitable[T], /) -> T:
        """Run it to its end and wait; an interrupt cancels it. Not from the loop's own thread while it runs."""
        ...


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    global _get_running_loop  # noqa: PLW0603 - found once, since each call asks several times
    known = _get_running_loop
    if known is None:
        if "asyncio" not in modules:
            return None
        try:
            known = asyncio_events._get_running_loop  # pyright: ignore[reportPrivateUsage]
        except AttributeError:
            known = _quietly
        _get_running_loop = known
    return known()


def _quietly() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_get_running_loop: Callable[[], asyncio.AbstractEventLoop | None] | None = None
"""Several times as quick as the public function, which raises where none runs."""


def run_on(loop: asyncio.AbstractEventLoop, pending: Awaitable[T]) -> T:
    """Run it on a loop that runs in another thread, and wait. An interrupt cancels it and waits for its end."""
    done: Future[None] = Future()
    tasks: list[asyncio.Task[Callable[[], T]]] = []

    def begin() -> None:
        task = loop.create_task(outcome_of(pending))
        task.add_done_callback(lambda _: done.set_result(None))
        tasks.append(task)

    with shielded():
        loop.call_soon_threadsafe(begin)
        try:
            wait_until_done(done)
        except BaseException:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 - there is none yet
            wait_until_done(done)  # a second interrupt does not wait
            raise
        return tasks[0].result()()


def is_gone(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether nothing can be run on it any more."""
    return loop.is_closed() or loop in _given_up


async def await_on(loop: asyncio.AbstractEventLoop, pending: Awaitable[T]) -> T:
    """Run it on a loop that runs in another thread, and await the result on this one."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited(pending), loop))


async def outcome_of(pending: Awaitable[T]) -> Callable[[], T]:
    """Await it; its outcome, as a function that returns the result or raises the exception.

    For tasks that run users' code: asyncio lets KeyboardInterrupt and SystemExit of a task break out of the loop, in
    the middle of all others.
    """
    try:
        result = await pending
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error


async def awaited(pending: Awaitable[T]) -> T:
    """Any awaitable as a coroutine, which some functions of asyncio require."""
    return await pending


@final
class RunningLoop:
    """A loop of the user that runs in another thread, and awaits what runs in this one."""

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop

    def run(self, pending: Awaitable[T], /) -> T:
        """See `EventLoop.run`."""
        return run_on(self.loop, pending)


def with_home(loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> T:
    """Call a function in a worker thread that a task of the loop awaits: what is async in it runs on that loop."""
    _home.set(loop)
    return function()


def home_loop() -> RunningLoop | None:
    """The loop that awaits what this thread does; None where there is none."""
    loop = _home.get()
    return None if loop is None or not loop.is_running() or loop is running_loop() else RunningLoop(loop)


@final
class KeptLoop:
    """An event loop for code that has none. Safe to use from any thread; created when needed, closed when dropped.

    A thread that waits for something runs the loop meanwhile. When work has to continue without such a thread, a
    thread of the loop's own takes over until the last user has left: for a resource that may have work in the
    background (`hold`), for tasks that a handler left, for a second thread that waits. Then the tasks are cancelled.
    """

    __slots__ = ("__weakref__", "_close", "_driven", "_lock", "_users")

    def __init__(self) -> None:
        self._lock = Lock()
        self._users: WeakSet[Any] = WeakSet()
        self._driven: _Driven | None = None
        self._close: finalize[[], KeptLoop] | None = None
        _kept.add(self)

    def leave_to_parent(self) -> None:
        """In a forked process: it gets a loop of its own when it needs one."""
        self._lock = Lock()
        if self._close is not None:
            self._close()
        self._driven = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself."""
        return self._current().loop

    def enter(self, user: object) -> None:
        """Add a user. It is held weakly: a user that is dropped without leaving counts as gone."""
        with self._lock:
            self._users.add(user)

    def leave(self, user: object) -> None:
        """Remove a user; with the last one, what runs on the loop is cancelled. Waits at most `_GRACE` seconds."""
        with self._lock:
            self._users.discard(user)
            driven = None if self._users else self._driven
        if driven is not None and not driven.clear():
            self.give_up(driven.loop)

    def hold(self) -> None:
        """Have the loop run in a thread of its own from now on, until the last user leaves."""
        self._current().hold()

    def run(self, pending: Awaitable[T], /) -> T:
        """See `EventLoop.run`."""
        driven = self._current()
        try:
            return driven.run(pending)
        finally:
            if driven.spoiled:
                self.give_up(driven.loop)

    def give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something on the loop does not end: do not use the loop again, and make another one when it is needed."""
        with self._lock:
            if self._driven is None or self._driven.loop is not loop:
                return
            driven, self._driven = self._driven, None
            _given_up.add(loop)
            if self._close is not None:
                self._close.detach()
        driven.drop()

    def _current(self) -> _Driven:
        with self._lock:
            if self._driven is None:
                self._driven = _Driven()
                self._close = finalize(self, self._driven.drop)
            return self._driven


@final
class _Driven:
    """A loop, and what runs it: nothing, a thread that waits for something on it, or a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._lock = RLock()  # `drop` may be called by the garbage collector, anywhere
        self._busy = self._held = self._stopping = self._stopped = self._dropped = False
        self.spoiled = False
        self._waiting = 0
        self._thread: Thread | None = None

    def run(self, pending: Awaitable[T]) -> T:
        here = self._take()
        try:
            return self._run_here(pending) if here else run_on(self.loop, pending)
        finally:
            with self._lock:
                self._waiting -= 1
                if here:
                    self._release()
                elif self._dropped and not self._waiting and self._thread is not None:
                    self._stop_soon()

    def _take(self) -> bool:
        """Count one more waiting thread; whether this thread is to run the loop."""
        while True:
            with self._lock:
                if not self._stopping:
                    self._waiting += 1
                    here = not self._busy and running_loop() is None
                    if here:
                        self._busy = True
                    elif not self._busy:  # this thread is busy with another loop, so it cannot run this one
                        self._start_thread()
                    return here
                thread = self._thread
            if thread is not None:
                thread.join()  # it cancels whatever there is

    def _run_here(self, pending: Awaitable[T]) -> T:
        task = self.loop.create_task(outcome_of(pending))
        try:
            interrupted = run_loop(self.loop, task)
        except BaseException:
            self.spoiled = True
            if running_loop() is self.loop:  # the exception interrupted the loop's own end
                asyncio._set_running_loop(None)
            task.cancel()
            raise
        if interrupted:
            raise KeyboardInterrupt
        return task.result()()

    def hold(self) -> None:
        """Have it run in a thread of its own."""
        with self._lock:
            self._held = True
            if not self._busy:
                self._start_thread()

    def clear(self) -> bool:
        """Cancel what runs on it and end its thread; whether that took less than `_GRACE` seconds."""
        with self._lock:
            self._held = False
            thread = self._thread
            if thread is None or self._waiting:
                return True
            self._stop_soon()
        if thread is current_thread():
            return True
        with shielded():
            thread.join(_GRACE)
        return not thread.is_alive()

    def drop(self) -> None:
        """Close the loop, now or when what runs on it has ended.

        Not in a forked process: that would take descriptors out of an epoll that both have. There the other threads,
        and with them their loops, go before anything else runs.
        """
        if os.getpid() != self._pid:
            _never_close(self.loop)
            return
        with self._lock:
            self._dropped = True
            if self._thread is not None and not self._waiting:
                self._stop_soon()
            elif not self._busy:
                self._close()

    # With the lock held.

    def _release(self) -> None:
        """The thread that ran the loop is done with it."""
        if self._held or self._waiting or asyncio.all_tasks(self.loop):
            self._start_thread()
            if self._dropped and not self._waiting:
                self._stop_soon()
        elif self._dropped:
            self._close()
        else:
            self._busy = False

    def _start_thread(self) -> None:
        self._busy = True
        self._thread = Thread(target=self._serve, name="weakincentives-loop", daemon=True)
        self._thread.start()

    def _stop_soon(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.loop.call_soon_threadsafe(self._stop)

    def _close(self) -> None:
        self._busy = True  # for good
        if self.loop.is_running():  # it says so after an exception interrupted its own end
            _never_close(self.loop)
            return
        if running_loop() is None:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _cancel_tasks(self) -> None:
        """Cancel all tasks and wait for their end, however long one takes."""
        # Python 3.14 lists the tasks of a running loop by thread, and ours may have run in another one before: asked
        # while the loop does not run, it looks at all threads.
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(_ended(tasks))

    # In the thread of its own.

    def _serve(self) -> None:
        while not self._stopped:
            self._survive(self.loop.run_forever)
        while not self._survive(self._cancel_tasks):
            pass
        with self._lock:
            self._stopping = self._stopped = self._busy = False
            self._thread = None
            if self._dropped:
                self._close()
            elif self._held:  # by a new user
                self._start_thread()

    def _stop(self) -> None:
        self._stopped = True
        self.loop.stop()

    @staticmethod
    def _survive(run: Callable[[], object]) -> bool:
        """Run the loop; False when a task that was left behind has raised SystemExit or the like out of it."""
        try:
            run()
        except (KeyboardInterrupt, SystemExit) as error:
            _log.warning("A task that a handler left behind raised %s", type(error).__name__)
            return False
        return True


def _never_close(loop: Any) -> None:
    """Keep the loop's finalizer from closing it."""
    loop.is_closed = lambda: True


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


_of_thread = threading.local()
_kept: WeakSet[KeptLoop] = WeakSet()


def thread_loop() -> KeptLoop:
    """The loop that is kept for this thread, until it ends."""
    try:
        return _of_thread.loop
    except AttributeError:
        kept = _of_thread.loop = KeptLoop()
        return kept


def run_to_end(pending: Awaitable[T]) -> T:
    """`asyncio.run` for synchronous code, on the loop that is kept for this thread; Ctrl-C cancels it."""
    kept, user = thread_loop(), KeptLoop()
    kept.enter(user)
    try:
        with shielded_run():
            return kept.run(pending)
    finally:
        kept.leave(user)


def _after_fork() -> None:
    for kept in list(_kept):
        kept.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
