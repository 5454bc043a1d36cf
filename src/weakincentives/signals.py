"""Our signal handlers, installed in front of the program's while a run is open; see interrupts.py.

They pass a signal on while a user's code runs, and note it while ours does. Every signal that has a Python-level
handler is covered. Only the main thread may change signal handlers, and only there they run.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import compress
from threading import get_ident
from time import monotonic
from typing import Any, TypeVar, final

from .interrupts import MAIN, OTHER, Handler, Shield, current_shield, finalizers
from .lazy_modules import asyncio

T = TypeVar("T")

_INSIST = 1.0
"""Seconds after which a second signal is not kept waiting: our code, or a user's function in it, hangs."""


@final
class SignalHandler:
    """Stands in front of a signal's handler while runs are open: passes signals on, or notes them.

    It keeps working after it was replaced or removed: users' handlers may call it as the one before them.
    """

    __slots__ = ("previous",)

    def __init__(self, previous: Handler) -> None:
        self.previous: Handler = previous

    def __call__(self, signum: int, frame: Any) -> None:
        """What the interpreter calls, in the main thread."""
        shield = MAIN
        if not shield.depth and (frame is None or frame.f_code not in finalizers):
            self.previous(signum, frame)
        elif shield.wake is None and _insists(signum, shield):
            shield.noted = [item for item in shield.noted if item[0] != signum]
            self.previous(signum, frame)
        else:
            # Deferred: raised here it would leave a lock taken, an event unrecorded or half a file written.
            if not shield.noted:
                shield.since = monotonic()
            shield.noted.append((signum, self.previous))
            if shield.wake is not None:
                shield.wake.put(None)


def _insists(signum: int, shield: Shield) -> bool:
    """Whether the same signal has been waiting for a while."""
    return monotonic() - shield.since > _INSIST and any(item[0] == signum for item in shield.noted)


_signal: Any = signal
with suppress(ImportError):  # `signal.signal` converts to enumerations, which takes ten times as long
    _signal = import_module("_signal")
_get: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal
_SIGINT = int(signal.SIGINT)
_NUMBERS = tuple(number for number in range(1, signal.NSIG) if number != _SIGINT)
_in_front = SignalHandler(signal.default_int_handler)
"""The one that stands, or stood last, in front of SIGINT's handler."""
_others: tuple[int, ...] = ()
"""The other signals that had a handler when they were last looked for."""
_left_elsewhere: list[None] = []
"""One item for each run that was closed in another thread than the main one, or dropped without being closed."""

leave_elsewhere: partial[None] = partial(_left_elsewhere.append, None)
"""Count a run as closed; the next one removes our handlers if it was the last. C code: safe in a weakref callback."""


def find_handlers() -> None:
    """Look which signals have a handler in Python; `install` cares for these, and always for SIGINT."""
    global _others  # noqa: PLW0603 - signal handlers belong to the process
    _others = tuple(compress(_NUMBERS, map(callable, map(_get, _NUMBERS))))


def install() -> bool:
    """Stand in front of the signal handlers until `remove`; whether that is to be called.

    To be called inside a shield. Outside the main thread nothing is done: no signal handler ever runs there.
    """
    if get_ident() != MAIN.ident:
        return False
    while _left_elsewhere:
        _left_elsewhere.pop()
        MAIN.runs -= 1
    stand_in_front()  # also inside another run: a handler may be newer than that
    MAIN.runs += 1
    return True


def remove() -> None:
    """Undo one `install`. In another thread than the main one, the next run does it."""
    if get_ident() != MAIN.ident:
        leave_elsewhere()
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
    """Restore the users' handlers; one that a user has installed since stays."""
    try:
        if _others:
            _restore_others()
    finally:
        if _get(_SIGINT) is _in_front:
            _set(_SIGINT, _in_front.previous)


def _restore_others() -> None:
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

    `installed` says that the run around it has installed them; then only those are replaced that a user has
    changed since.
    """

    __slots__ = ("_install", "_shield")

    def __init__(self, installed: bool = False) -> None:
        self._install = not installed

    def __enter__(self) -> None:
        shield = self._shield = MAIN if get_ident() == MAIN.ident else OTHER
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


def run_loop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> bool:
    """Run the loop in this thread until its task is done; whether Ctrl-C has cancelled it, as in `asyncio.run`.

    `asyncio.run` would install its SIGINT handler only in place of Python's own, and ours is there. An exception came
    out of the middle of the loop, which must not be used any more.
    """
    shield = current_shield()
    depth, front = shield.depth, _get(_SIGINT)
    cancel = _CancelTask(task)
    cancels = shield is MAIN and type(front) is SignalHandler and front.previous is signal.default_int_handler
    task.add_done_callback(_stop_loop)
    try:
        if cancels:
            front.previous = cancel
        while shield.noted:
            shield.deliver()
        shield.depth = 0
        loop.run_forever()
    finally:
        shield.depth = depth
        if cancels:
            front.previous = signal.default_int_handler
    return cancel.count > 0 and task.cancelled()


def _stop_loop(task: asyncio.Task[Any]) -> None:
    task.get_loop().stop()


@final
class _CancelTask:
    """A signal handler as that of `asyncio.run`: the first signal cancels the task, the next is raised."""

    __slots__ = ("_task", "count")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.count = 0

    def __call__(self, _signum: int, _frame: Any) -> None:
        self.count += 1
        if self._task.done():  # the loop is about to end: raised in the middle of that, it would never do so
            MAIN.noted.append((_SIGINT, signal.default_int_handler))
            return
        if self.count > 1:
            raise KeyboardInterrupt
        self._task.cancel()
        self._task.get_loop().call_soon_threadsafe(int)  # to end its waiting


__all__ = [
    "SignalHandler", "find_handlers", "install", "leave_elsewhere", "remove", "run_loop", "shielded_run", "stand_aside",
    "stand_in_front",
]  # fmt: skip
