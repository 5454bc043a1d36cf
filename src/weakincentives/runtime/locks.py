"""Locks that belong to a call, not to a thread.

A writing call holds the lock of each of its participants alone; read-only calls share it. A call made from inside
another call runs under the locks its caller holds, in whatever thread or task it runs. Waiters are served in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextvars import Token, copy_context
from functools import partial
from threading import TIMEOUT_MAX, Lock
from time import monotonic
from typing import Any, NamedTuple, Protocol, final
from weakref import ref

from ..errors import SessionBusyError
from ..fence import Fence, Guard, Owner, current_owner, enter_owner, leave_owner
from ..filesystem.ownership import holder_name
from ..interrupts import unshielded, wait_until_done
from .places import Placed

logger = logging.getLogger(__name__)

_LOOK = 5.0
"""Seconds after which a waiter looks whether the holder still exists, and again after as many more."""


class LockTimeout(Exception):  # noqa: N818 - an event, not a fault
    """The locks could not be had in time; none is taken."""


class _Waiter(NamedTuple):
    shared: bool
    granted: Future[None]
    holding: Holding | None


@final
class CallLock:
    """One writer or any number of readers; whoever waits longest is next.

    Whoever takes the one item out of `_free` has the lock; that is a single step, so a lock nobody waits for needs no
    mutex. A release puts it back first and looks for waiters then, and who waits queues up first and looks for the item
    then: one of the two sees the other.

    It knows who holds it: see `look_after`.
    """

    __slots__ = ("__weakref__", "_free", "_mutex", "_readers", "_waiting", "number", "readers", "writer")

    _count = 0

    def __init__(self) -> None:
        CallLock._count += 1
        self.number = CallLock._count
        self.writer: Holding | None = None
        self.readers: list[Holding] = []
        self._mutex = Lock()
        self._free = [True]
        self._readers = 0
        self._waiting: deque[_Waiter] = deque()

    def take_now(self, shared: bool, holding: Holding | None = None) -> bool:
        """Take the lock if that needs no waiting."""
        if self._waiting:
            return False
        if shared:
            with self._mutex:
                return self._grant(shared, holding)
        try:
            self._free.pop()
        except IndexError:
            return False
        self.writer = holding
        return True

    def take(self, shared: bool, holding: Holding | None = None) -> Future[None] | None:
        """Take the lock, or queue up: the future is done once it is the caller's."""
        with self._mutex:
            if not self._waiting and self._grant(shared, holding):
                return None
            waiter = _Waiter(shared, Future(), holding)
            self._waiting.append(waiter)
            self._serve()
            return waiter.granted

    def give_up(self, shared: bool, granted: Future[None], holding: Holding | None = None) -> None:
        """Stop waiting; a lock that was granted in the meantime is released."""
        with self._mutex:
            if not granted.done():
                self._waiting = deque(waiter for waiter in self._waiting if waiter.granted is not granted)
                self._serve()  # readers behind a writer may have waited for nothing else
                return
        self.release_own(shared, holding)

    def release(self, shared: bool, holding: Holding | None = None) -> None:
        """Hand it to the next in line."""
        if not shared:
            self.writer = None
            self._free.append(True)
        elif self._was_last_reader(holding):
            self._free.append(True)
        if self._waiting:
            with self._mutex:
                self._serve()

    def release_own(self, shared: bool, holding: Holding | None) -> None:
        """Release it, unless it was taken over meanwhile."""
        if holding is None or self.writer is holding or holding in self.readers:
            self.release(shared, holding)

    def look_after(self, *, blocking: bool) -> None:
        """Close the calls that hold it and cannot end any more: their thread, task or event loop is gone.

        They are undone, as if they had been interrupted, and the lock goes to the next in line. Asked by who waits,
        `blocking` a thread or awaiting; `SessionBusyError` when a holder stands still but may still go on.
        """
        with self._mutex:
            holders = [*self.readers, *(() if self.writer is None else (self.writer,))]
            self._serve()  # past waiters that cannot take it any more
        for holding in holders:
            if holding.is_orphaned():
                holding.close_orphaned()
            elif (why := holding.standstill(blocking=blocking)) is not None:
                who = holder_name(holding)
                raise SessionBusyError(f"The session or the files are held by {who} that cannot end, because {why}.")

    def _was_last_reader(self, holding: Holding | None) -> bool:
        with self._mutex:
            self._readers -= 1
            if holding is not None:
                self.readers.remove(holding)
            return not self._readers

    def _serve(self) -> None:
        while self._waiting:
            shared, granted, holding = self._waiting[0]
            if holding is not None and holding.is_orphaned():
                self._waiting.popleft()  # granted to a closed event loop it would be nobody's, and held for ever
            elif self._grant(shared, holding):
                self._waiting.popleft()
                granted.set_result(None)
            else:
                return

    def _grant(self, shared: bool, holding: Holding | None) -> bool:
        if not (shared and self._readers):  # the first of several readers has it for all of them
            try:
                self._free.pop()
            except IndexError:
                return False
        if not shared:
            self.writer = holding
            return True
        self._readers += 1
        if holding is not None:
            self.readers.append(holding)
        return True


_locks: dict[int, tuple[ref[Any], CallLock]] = {}
_locks_mutex = Lock()
_shared_lock = CallLock()


def lock_of(participant: Any) -> CallLock:
    """The lock of a participant; it lives as long as the participant does.

    Equal participants have two locks. Objects that cannot be weakly referred to share one lock.
    """
    key = id(participant)
    with _locks_mutex:
        known = _locks.get(key)
        if known is None or known[0]() is not participant:
            try:
                # The callback is C code throughout: an interrupt in a Python function would be swallowed there.
                known = ref(participant, partial(_locks.pop, key)), CallLock()
            except TypeError:
                return _shared_lock
            _locks[key] = known
        return known[1]


def in_order(locks: Iterable[CallLock]) -> tuple[CallLock, ...]:
    """The locks in the fixed order in which calls take them, so that two calls cannot wait for each other."""
    return tuple(sorted(set(locks), key=_number))


class Guarded(Protocol):
    """What locks are held for."""

    def guard(self) -> Guard:
        """What its writes happen in."""
        ...


class Holding(Placed):
    """The locks a call holds; found through a context variable by the calls made inside it.

    `locks` are `in_order`; those that a call around this one holds are left to it. Released, it can be taken again.
    """

    __slots__ = ("_held", "_inner", "_locks", "_outer", "_shared", "_token", "call", "owner")

    call: Guarded
    """The call that holds them; set by who runs it."""

    owner: Owner
    """Stands for it in the log of writes; current in its context while the locks are held."""

    _inner: CallLock
    _token: Token[Owner | None] | None

    def __init__(self, locks: tuple[CallLock, ...]) -> None:
        around = current_owner()
        self.owner = Owner()
        self.owner.around = around
        self._outer: Holding | None = None if around is None else around.holder
        self._locks = locks if self._outer is None else self._outer.inside(locks)
        self._held = self._shared = False
        self._loop = self._task = self._thread = self._token = None

    def holds(self, lock: CallLock) -> bool:
        """Whether this call, or one around it, has the lock and is still running."""
        if self._held and lock in self._locks:
            return True
        return self._outer is not None and self._outer.holds(lock)

    def inside(self, locks: tuple[CallLock, ...]) -> tuple[CallLock, ...]:
        """What a call made inside this one must take.

        The locks that neither this call nor one around it holds. For those that are held, one that the calls made
        inside this one have among themselves: they may be made by several threads or tasks at once.
        """
        others = tuple(lock for lock in locks if not self.holds(lock))
        return others if len(others) == len(locks) else (*others, self._among_themselves())

    def _among_themselves(self) -> CallLock:
        with _locks_mutex:
            try:
                return self._inner
            except AttributeError:
                self._inner = CallLock()
                return self._inner

    def around(self) -> Guard | None:
        """The guard of the call whose locks this one uses, or None when all of its locks are its own."""
        outer = self._outer
        if outer is None or not self._locks or self._locks[-1] is not getattr(outer, "_inner", None):
            return None
        return outer.guard()

    def guard(self) -> Guard | None:
        """The guard of the call that holds this, or of the nearest call around it; None outside of calls."""
        holding: Holding | None = self
        while holding is not None and not hasattr(holding, "call"):
            holding = holding._outer
        return None if holding is None else holding.call.guard()

    def take_now(self, shared: bool) -> bool:
        """Take all locks if that needs no waiting; else none."""
        self._shared = shared
        taken = 0
        try:
            for lock in self._locks:
                if not lock.take_now(shared, self):
                    self._drop(taken)
                    return False
                taken += 1
            self._token = enter_owner(self.owner)
            self._held = True
            self.owner.holder = self
        except BaseException:  # Ctrl-C
            self._held = False
            self.owner.holder = None
            self._drop(taken)
            raise
        return True

    def take(self, shared: bool, seconds: float | None = None) -> None:
        """Take all locks, blocking the thread; an interrupted wait leaves none taken, nor does a `LockTimeout`."""
        self._shared = shared
        self.place_here()
        until = None if seconds is None else monotonic() + seconds
        taken = 0
        try:
            for lock in self._locks:
                granted = lock.take(shared, self)
                if granted is not None:
                    try:
                        _wait_until_granted(lock, granted, until)
                    except BaseException:
                        lock.give_up(shared, granted, self)
                        raise
                taken += 1
        except BaseException:
            self._drop(taken)
            raise
        self._hold()

    async def atake(self, shared: bool, seconds: float | None = None) -> None:
        """Like `take`, without blocking the event loop; a cancelled wait leaves none taken."""
        self._shared = shared
        self.place_here()
        until = None if seconds is None else monotonic() + seconds
        taken = 0
        try:
            for lock in self._locks:
                granted = lock.take(shared, self)
                if granted is not None:
                    try:
                        await _await_until_granted(lock, granted, until)
                    except BaseException:
                        lock.give_up(shared, granted, self)
                        raise
                taken += 1
        except BaseException:
            self._drop(taken)
            raise
        self._hold()

    def _hold(self) -> None:
        self._held = True
        self.owner.holder = self
        self._token = enter_owner(self.owner)

    def let_go(self) -> None:
        """Release everything; doing it twice does nothing."""
        if not self._held:
            return
        self._held = False
        self.owner.holder = None
        try:
            if self._token is not None:
                leave_owner(self._token)
        except ValueError:  # taken in another context, as harnesses with hooks do
            enter_owner(self.owner.around)
        finally:
            for lock in self._locks:
                lock.release(self._shared, self)

    def _drop(self, taken: int) -> None:
        for lock in self._locks[:taken]:
            lock.release_own(self._shared, self)

    def close_orphaned(self) -> None:
        """Release it for those who wait; what is left of its call can change nothing any more."""
        with _closing_orphans:
            if not self._held:  # granted to a task that has not run since: nothing was begun
                self._drop(len(self._locks))
                return
            name = "unknown" if self._thread is None else self._thread.name
            logger.error("A call in thread %s ended without releasing its locks; they were taken over", name)
            if hasattr(self, "call") and isinstance(guard := self.call.guard(), Fence):
                guard.close("it was abandoned")
            try:
                # In a context of its own: leaving its owner must not change what is current for who waits.
                copy_context().run(self._close)
            except Exception:  # what it left could not be restored; its participants say so to the next call
                logger.exception("An abandoned call could not be undone")

    def _close(self) -> None:
        self.let_go()


_closing_orphans = Lock()


def _wait_until_granted(lock: CallLock, granted: Future[None], until: float | None) -> None:
    look = partial(lock.look_after, blocking=True)
    if not wait_until_done(granted, _left(until), meanwhile=look, period=_LOOK) and not granted.done():
        raise LockTimeout("Other calls took too long.")


async def _await_until_granted(lock: CallLock, granted: Future[None], until: float | None) -> None:
    waiting = asyncio.wrap_future(granted)
    while not granted.done():
        left = _left(until)
        await unshielded(asyncio.wait({waiting}, timeout=_LOOK if left is None else min(left, _LOOK)))
        if granted.done():
            return
        if left is not None and left <= _LOOK:
            raise LockTimeout("Other calls took too long.")
        lock.look_after(blocking=False)


def _left(until: float | None) -> float | None:
    return None if until is None else min(max(until - monotonic(), 0.0), TIMEOUT_MAX)


def _number(lock: CallLock) -> int:
    return lock.number


__all__ = ["CallLock", "Guarded", "Holding", "LockTimeout", "in_order", "lock_of"]
