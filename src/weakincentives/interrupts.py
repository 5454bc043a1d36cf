"""Interrupts: Ctrl-C reaches a tool's handler at once, and waits until our own code around it is done.

Python runs signal handlers in the main thread, between two bytecodes of whatever runs there. An exception raised in the
middle of our own code would leave a lock taken, an event unrecorded or half a file written. While our code runs, the
main thread's `Shield` has a depth above zero, and our signal handler (signals.py) notes the signal instead. It is
delivered when the call is settled, or where the call waits.

Everything here rests on single attribute stores. CPython looks for signals when a function is entered, after a call
and at a jump backwards, never between an assignment and its neighbours. So `shield.depth = depth` as the first
statement after a user's function has returned, and as the first of its `except`, leaves no gap. A call there would.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import currentframe
from queue import Empty, SimpleQueue
from threading import get_ident
from time import monotonic
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final
from weakref import ref

T = TypeVar("T")

Handler = Callable[[int, Any], object]
"""A Python-level signal handler."""


@final
class Shield:
    """Whether an interrupt may be raised now. One for the main thread; other threads share one that does nothing.

    `depth` is above zero while our own code runs, and zero in users' handlers and outside of runs. `noted` holds the
    signals that came meanwhile. `wake` is the queue that the main thread waits on, if it waits. `runs` counts those
    that have installed our signal handlers; other threads need none.
    """

    __slots__ = ("depth", "ident", "noted", "runs", "since", "wake")

    def __init__(self, ident: int | None) -> None:
        self.ident: int | None = ident
        self.depth: int = 0
        self.runs = 0 if ident else 1
        self.noted: list[tuple[int, Handler]] = []
        self.since: float = 0.0
        self.wake: SimpleQueue[Any] | None = None

    def deliver(self) -> None:
        """Run the handlers of the signals that were noted; the first exception is raised after the last of them.

        To be called before `depth` is lowered: a signal that comes meanwhile is noted too.
        """
        depth, raised, frame = self.depth, None, currentframe()
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


if TYPE_CHECKING or sys.version_info[:2] != (3, 14):
    from threading import Lock as Lock  # noqa: PLC0414 - other modules import both from here
    from threading import RLock as RLock  # noqa: PLC0414
else:
    # In Python 3.14 `with lock:` is not one step: a signal is looked for after the lock was taken and before the block
    # is entered, so an exception of the handler leaves it taken for ever. Python 3.13 and 3.15 do not look there.

    class RLock(type(threading.RLock())):
        """A re-entrant lock that an interrupt does not leave taken; to be used by `with`."""

        def __enter__(self) -> bool:
            taken: list[bool] = []
            try:
                # One step in C: whether the lock was taken is in the list before a signal can be seen.
                taken.extend(map(self.acquire, (True,)))
            except BaseException:
                if taken:
                    self.release()
                raise
            return True

    Lock = RLock
    """Taking it twice in one thread is not noticed on this version; on the others it is a deadlock."""


finalizers: set[CodeType] = set()
"""The code of each `__del__` in which our signal handler notes signals, from its very first instruction on."""


def finalizer(close: Callable[[T], object]) -> Callable[[T], None]:
    """For a `__del__` that is Python code: what is raised in it is lost, so interrupts are noted there.

    They are delivered by the next code of ours that does so: at the end of the call or run, at the latest. As with
    `shielded`, this takes a run; outside of one Python swallows an interrupt that falls into a `__del__`.
    """

    def finalize(self: T) -> None:
        shield = MAIN if get_ident() == MAIN.ident else OTHER  # `current_shield` would be a place of its own
        shield.depth += 1
        try:
            close(self)
        finally:
            shield.depth -= 1  # the last effect, and nothing is delivered

    finalizers.add(finalize.__code__)
    return finalize


LOOK = 1.0
"""So many seconds at most pass until a signal is seen that came just when a wait began: CPython misses those."""


class Ending(Protocol):
    """What can be waited for: a `Future`, or a `ThreadCall`."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call it when it has ended, or now if it has."""
        ...


def wait_until_done(
    ending: Ending,
    seconds: float | None = None,
    *,
    meanwhile: Callable[[], object] | None = None,
    period: float = LOOK,
    deliver: bool = True,
) -> bool:
    """Block until it has ended; False when that takes longer than `seconds`. What it holds is not looked at.

    In the main thread a signal ends the wait, and what its handler raises is raised here. Nothing is ever raised inside
    a condition variable, as it may be in `Future.result()`, which leaves locks taken and waiters behind. `meanwhile` is
    called every `period` seconds. Without `deliver` signals stay noted, for what must be done first; as in any code of
    ours, one that insists is raised.
    """
    shield = current_shield()
    depth, woken = shield.depth, shield.wake
    shield.depth = depth + 1
    try:
        wake: SimpleQueue[Any] = SimpleQueue()
        until = None if seconds is None else monotonic() + seconds
        if shield is MAIN:
            shield.wake = wake if deliver else None  # a signal that comes from here on puts an item
        ending.add_done_callback(wake.put)
        while not ending.done():
            if shield.noted and deliver:
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


def _after_fork() -> None:
    """The thread that forked is the child's main thread; the frames of the others do not exist there."""
    if MAIN.ident != get_ident():
        MAIN.__init__(get_ident())
    OTHER.__init__(None)


os.register_at_fork(after_in_child=_after_fork)


# Values that are kept for as long as an object lives, and forgotten without running Python code.
#
# The callbacks of `weakref.WeakKeyDictionary`, `WeakSet` and `finalize` are Python functions. They run at whatever
# moment an object goes, and an interrupt that is raised in one of them is lost: Python prints it and goes on.


K = TypeVar("K")
V = TypeVar("V")


@final
class WeakTable(Generic[K, V]):
    """Values by the identity of their keys. Single operations are safe in any thread."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, tuple[ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """The value of this very object, or None."""
        found = self._items.get(id(key))
        return None if found is None or found[0]() is not key else found[1]

    def put(self, key: K, value: V) -> None:
        """Keep a value until the key goes; the table does not keep the key."""
        number = id(key)
        self._items[number] = ref(key, partial(self._items.pop, number)), value  # C code throughout

    def living(self) -> list[K]:
        """The keys that are alive."""
        living = [key() for key, _ in list(self._items.values())]
        return [key for key in living if key is not None]
