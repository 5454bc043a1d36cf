"""Interrupts: Ctrl-C reaches a tool's handler at once, and waits until our own code around it is done.

Python runs signal handlers in the main thread, between two bytecodes of whatever runs there. An exception raised in the
middle of our own code would leave a lock taken, an event unrecorded or half a file written. While our code runs, the
main thread's `Shield` has a depth above zero, and `SignalHandler`, which stands in front of each handler found
when a run is entered, notes the signal instead. It is delivered when the call is settled, or where the call waits.

Everything here rests on single attribute stores. CPython looks for signals when a function is entered, after a call
and at a jump backwards, never between an assignment and its neighbours. So `shield.depth = depth` as the first
statement after a user's function has returned, and as the first of its `except`, leaves no gap. A call there would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, get_ident
from time import monotonic
from typing import Any, TypeVar, final

T = TypeVar("T")

Handler = Callable[[int, Any], object]
"""A Python-level signal handler."""

_INSIST = 1.0
"""Seconds after which a second signal is not kept waiting: our code, or a user's function in it, hangs."""


@final
class Shield:
    """Whether an interrupt may be raised now. One for the main thread; other threads share one that does nothing.

    `depth` is above zero while our own code runs, and zero in users' handlers and outside of runs. `noted` holds the
    signals that came meanwhile. `wake` is the queue that the main thread waits on, if it waits. `runs` counts those
    that have installed our signal handlers; other threads need none.
    """

    __slots__ = ("depth", "ident", "noted", "runs", "since", "wake")

    def __init__(self, ident: int | None) -> None:
        self.ident = ident
        self.depth = 0
        self.runs = 0 if ident else 1
        self.noted: list[tuple[int, Handler]] = []
        self.since = 0.0
        self.wake: SimpleQueue[Any] | None = None

    def deliver(self) -> None:
        """Run the handlers of the signals that were noted; the first exception is raised after the last of them.

        To be called before `depth` is lowered: a signal that comes meanwhile is noted too.
        """
        depth, raised, frame = self.depth, None, sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while self.noted:
            signum, handler = self.noted.pop(0)
            try:
                self.depth = 0
                handler(signum, frame)
            except BaseException as error:  # noqa: BLE001 - raised below
                self.depth = depth
                raised = error if raised is None else raised
            self.depth = depth
        if raised is not None:
            raise raised


MAIN = Shield(threading.main_thread().ident)
OTHER = Shield(None)


def current_shield() -> Shield:
    """The shield of this thread.

    Users write the stores out, as `shielded` does::

        shield = current_shield()
        depth = shield.depth
        shield.depth = depth + 1
        try:
            ...
        finally:
            try:
                while shield.noted and not depth:
                    shield.deliver()
            finally:
                shield.depth = depth
    """
    return MAIN if get_ident() == MAIN.ident else OTHER


@final
class shielded:  # noqa: N801 - used like a function, as `contextlib.suppress` is
    """`with shielded(): ...`: interrupts wait until the block is left. Blocks may be nested.

    Outside of a run no signal handler of ours is installed, so there it does nothing.
    """

    __slots__ = ("_shield",)

    def __enter__(self) -> None:
        shield = self._shield = current_shield()
        shield.depth += 1  # the last effect

    def __exit__(self, *exc: object) -> None:
        shield = self._shield
        try:
            while shield.noted and shield.depth == 1:
                shield.deliver()
        finally:
            shield.depth -= 1  # the last effect


@final
class SignalHandler:
    """Stands in front of a signal's handler while runs are open: passes signals on, or notes them.

    It keeps working after it was replaced or removed: users' handlers may call it as the one before them.
    """

    __slots__ = ("previous",)

    def __init__(self, previous: Handler) -> None:
        self.previous = previous

    def __call__(self, signum: int, frame: Any) -> None:
        """What the interpreter calls, in the main thread."""
        shield = MAIN
        if not shield.depth:
            self.previous(signum, frame)
        elif shield.wake is None and _insists(signum, shield):
            shield.noted = [item for item in shield.noted if item[0] != signum]
            self.previous(signum, frame)
        else:
            if not shield.noted:
                shield.since = monotonic()
            shield.noted.append((signum, self.previous))
            if shield.wake is not None:
                shield.wake.put(None)


def _insists(signum: int, shield: Shield) -> bool:
    """Whether the same signal has been waiting for a while."""
    return monotonic() - shield.since > _INSIST and any(item[0] == signum for item in shield.noted)


def wait_until_done(
    future: Future[Any],
    seconds: float | None = None,
    *,
    meanwhile: Callable[[], object] | None = None,
    period: float = TIMEOUT_MAX,
) -> bool:
    """Block until the future is done; False when that takes longer than `seconds`. What it holds is not looked at.

    In the main thread a signal ends the wait, and what its handler raises is raised here. Nothing is ever raised inside
    a condition variable, as it may be in `Future.result()`, which leaves locks taken and waiters behind. `meanwhile` is
    called every `period` seconds.
    """
    shield = current_shield()
    depth, woken = shield.depth, shield.wake
    shield.depth = depth + 1
    try:
        wake: SimpleQueue[Any] = SimpleQueue()
        until = None if seconds is None else monotonic() + seconds
        if shield is MAIN:
            shield.wake = wake  # a signal that comes from here on puts an item
        future.add_done_callback(wake.put)
        while not future.done():
            if shield.noted:
                shield.deliver()
            left = period if until is None else min(until - monotonic(), period)
            if left <= 0:
                return False
            try:
                wake.get(timeout=left)
            except Empty:
                if meanwhile is not None:
                    meanwhile()
        return True
    finally:
        shield.wake = woken
        try:
            while shield.noted and not depth:
                shield.deliver()
        finally:
            shield.depth = depth


async def unshielded(awaitable: Awaitable[T]) -> T:
    """Await something in our own code: while the task is suspended, the event loop and other tasks are interruptible.

    Each await of ours that may suspend goes through this, so that a step of an event loop begins and ends at depth
    zero. What was noted before is delivered here.
    """
    shield = current_shield()
    depth = shield.depth
    try:
        while shield.noted:
            shield.deliver()
    except BaseException:
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise
    try:
        shield.depth = 0
        return await awaitable
    finally:
        shield.depth += depth  # added, not set: an abandoned coroutine may be closed while other code of ours runs


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for an async handler in synchronous code, with interrupts as there: Ctrl-C cancels the task.

    `asyncio.run` would install its SIGINT handler only in place of Python's own, and ours is there. What it does before
    and after the coroutine is our own code here.
    """
    shield = current_shield()
    depth, front = shield.depth, _get(_SIGINT)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)
        cancel = _CancelTask(task)
        cancels = shield is MAIN and type(front) is SignalHandler and front.previous is signal.default_int_handler
        try:
            if cancels:
                front.previous = cancel
            while shield.noted:
                shield.deliver()
            shield.depth = 0
            result = loop.run_until_complete(task)
        except asyncio.CancelledError:
            shield.depth = depth
            if not cancel.count:
                raise
            raise KeyboardInterrupt from None
        finally:
            shield.depth = depth
            if cancels:
                front.previous = signal.default_int_handler
        return result


@final
class _CancelTask:
    """A signal handler as that of `asyncio.run`: the first signal cancels the task, the next is raised."""

    __slots__ = ("_task", "count")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.count = 0

    def __call__(self, _signum: int, _frame: Any) -> None:
        self.count += 1
        if self.count > 1 or self._task.done():
            raise KeyboardInterrupt
        self._task.cancel()
        self._task.get_loop().call_soon_threadsafe(int)  # to end its waiting


# Installing. Counted, since runs may be nested; only the main thread may change signal handlers.

_signal: Any = import_module("_signal")  # `signal.signal` converts to enumerations, which takes ten times as long
_get: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal
_SIGINT = int(signal.SIGINT)
_in_front = SignalHandler(signal.default_int_handler)
"""The one that stands, or stood last, in front of SIGINT's handler."""
_others: tuple[int, ...] = ()
"""The other signals that had a handler when somebody last looked at all of them."""
_left_elsewhere: list[None] = []
"""One item for each run that was closed in another thread than the main one."""


def find_handlers() -> None:
    """Look which signals have a handler in Python; `install` cares for these, and always for SIGINT."""
    global _others  # noqa: PLW0603 - signal handlers belong to the process
    _others = tuple(number for number in range(1, signal.NSIG) if number != _SIGINT and callable(_get(number)))


def install() -> bool:
    """Stand in front of the signal handlers until `remove`; whether that is to be called.

    To be called inside a shield. Outside the main thread nothing is done: no signal handler ever runs there.
    """
    if get_ident() != MAIN.ident:
        return False
    while _left_elsewhere:
        _left_elsewhere.pop()
        MAIN.runs -= 1
    if not MAIN.runs:
        stand_in_front()
    MAIN.runs += 1
    return True


def remove() -> None:
    """Undo one `install`. In another thread than the main one, the next run does it."""
    if get_ident() != MAIN.ident:
        _left_elsewhere.append(None)
        return
    MAIN.runs -= 1
    if not MAIN.runs:
        stand_aside()


def stand_in_front() -> None:
    """Put our handler in front of each one that is not ours yet. In the main thread, inside a shield."""
    current = _get(_SIGINT)
    if current is _in_front.previous:  # nearly always; this runs for every call outside of a `with`
        _set(_SIGINT, _in_front)
    elif type(current) is not SignalHandler and callable(current):
        _set(_SIGINT, _new_in_front(current))
    if _others:
        for number in _others:
            current = _get(number)
            if type(current) is not SignalHandler and callable(current):
                _set(number, SignalHandler(current))


def _new_in_front(current: Handler) -> SignalHandler:
    """Never the last one with another handler behind it: that handler may call the last one."""
    global _in_front  # noqa: PLW0603 - as above
    _in_front = SignalHandler(current)
    return _in_front


def stand_aside() -> None:
    """Put the handlers back; where somebody else's is the current one, it stays."""
    try:
        if _others:
            _put_back_others()
    finally:
        if _get(_SIGINT) is _in_front:
            _set(_SIGINT, _in_front.previous)


def _put_back_others() -> None:
    raised = None
    for number in _others:
        try:
            current = _get(number)
            if type(current) is SignalHandler:
                _set(number, current.previous)
        except BaseException as error:  # noqa: BLE001 - a handler that is back in its place; raised below
            raised = error
    if raised is not None:
        raise raised


@final
class shielded_run:  # noqa: N801 - as `shielded`
    """`with shielded_run(installed): ...`: as `shielded`, and with our signal handlers installed.

    `installed` says that the run around it has installed them; then only those are replaced that somebody else has
    changed since.
    """

    __slots__ = ("_install", "_shield")

    def __init__(self, installed: bool = False) -> None:
        self._install = not installed

    def __enter__(self) -> None:
        shield = self._shield = current_shield()
        shield.depth += 1
        try:
            if self._install:
                self._install = install()
            elif shield is MAIN:
                stand_in_front()  # a user may have replaced one since the last turn
        except BaseException:
            shield.depth -= 1
            raise

    def __exit__(self, *exc: object) -> None:
        shield = self._shield
        try:
            if self._install:
                remove()
            while shield.noted and shield.depth == 1:
                shield.deliver()
        finally:
            shield.depth -= 1


def _after_fork() -> None:
    """The thread that forked is the child's main thread; the frames of the others do not exist there."""
    if MAIN.ident != get_ident():
        MAIN.__init__(get_ident())
    OTHER.__init__(None)


os.register_at_fork(after_in_child=_after_fork)

__all__ = [
    "MAIN", "OTHER", "Handler", "Shield", "SignalHandler", "current_shield", "find_handlers", "install", "remove",
    "run_loop", "shielded", "shielded_run", "stand_aside", "stand_in_front", "unshielded", "wait_until_done",
]  # fmt: skip
