"""Locks that belong to a call, not to a thread.

A writing call holds the lock of each of its participants alone; read-only calls share it. A call made from inside
another call runs under the locks its caller holds, in whatever thread or task it runs. Waiters are served in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextvars import Token
from threading import TIMEOUT_MAX, Lock
from time import monotonic
from typing import Any, Protocol, final
from weakref import ref

from ..fence import Guard, Owner, current_owner, enter_owner, leave_owner


class LockTimeout(Exception):  # noqa: N818 - an event, not a fault
    """The locks could not be had in time; none is taken."""


@final
class CallLock:
    """One writer or any number of readers; whoever waits longest is next.

    Whoever takes the one item out of `_free` has the lock; that is a single step, so a lock nobody waits for needs no
    mutex. A release puts it back first and looks for waiters then, and who waits queues up first and looks for the item
    then: one of the two sees the other.
    """

    __slots__ = ("__weakref__", "_free", "_mutex", "_readers", "_waiting", "number")

    _count = 0

    def __init__(self) -> None:
        CallLock._count += 1
        self.number = CallLock._count
        self._mutex = Lock()
        self._free = [True]
        self._readers = 0
        self._waiting: deque[tuple[bool, Future[None]]] = deque()

    def take_now(self, shared: bool) -> bool:
        """Take the lock if that needs no waiting."""
        if self._waiting:
            return False
        if shared:
            with self._mutex:
                return self._grant(shared)
        try:
            return self._free.pop()
        except IndexError:
            return False

    def take(self, shared: bool) -> Future[None] | None:
        """Take the lock, or queue up: the future is done once it is the caller's."""
        with self._mutex:
            if not self._waiting and self._grant(shared):
                return None
            waiter: Future[None] = Future()
            self._waiting.append((shared, waiter))
            self._serve()
            return waiter

    def give_up(self, shared: bool, waiter: Future[None]) -> None:
        """Stop waiting; a lock that was granted in the meantime is released."""
        with self._mutex:
            if not waiter.done():
                self._waiting.remove((shared, waiter))
                self._serve()  # readers behind a writer may have waited for nothing else
                return
        self.release(shared)

    def release(self, shared: bool) -> None:
        """Hand it to the next in line."""
        if not shared or self._was_last_reader():
            self._free.append(True)
        if self._waiting:
            with self._mutex:
                self._serve()

    def _was_last_reader(self) -> bool:
        with self._mutex:
            self._readers -= 1
            return not self._readers

    def _serve(self) -> None:
        while self._waiting and self._grant(self._waiting[0][0]):
            _, waiter = self._waiting.popleft()
            waiter.set_result(None)

    def _grant(self, shared: bool) -> bool:
        if not (shared and self._readers):  # the first of several readers has it for all of them
            try:
                self._free.pop()
            except IndexError:
                return False
        self._readers += shared
        return True


@final
class _Identity(ref[Any]):
    """Refers to a participant weakly and stands for that very object: equal ones are still two."""

    __slots__ = ("_id",)

    def __new__(cls, participant: Any) -> _Identity:
        self = super().__new__(cls, participant, _forget)
        self._id = id(participant)
        return self

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self()
        return mine is not None and isinstance(other, _Identity) and other() is mine


_locks: dict[_Identity, CallLock] = {}
_locks_mutex = Lock()
_shared_lock = CallLock()


def _forget(identity: Any) -> None:
    _locks.pop(identity, None)


def lock_of(participant: Any) -> CallLock:
    """The lock of a participant; it lives as long as the participant does.

    Objects that cannot be weakly referred to share one lock.
    """
    try:
        identity = _Identity(participant)
    except TypeError:
        return _shared_lock
    with _locks_mutex:
        lock = _locks.get(identity)
        if lock is None:
            lock = _locks[identity] = CallLock()
        return lock


def in_order(locks: Iterable[CallLock]) -> tuple[CallLock, ...]:
    """The locks in the fixed order in which calls take them, so that two calls cannot wait for each other."""
    return tuple(sorted(set(locks), key=_number))


class Guarded(Protocol):
    """What locks are held for."""

    def guard(self) -> Guard:
        """What its writes happen in."""
        ...


class Holding:
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
        self.owner = Owner(around)
        self._outer: Holding | None = None if around is None else around.holder
        self._locks = locks if self._outer is None else self._outer.inside(locks)
        self._held = self._shared = False
        self._token = None

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
                if not lock.take_now(shared):
                    self._drop(self._locks[:taken])
                    return False
                taken += 1
            self._token = enter_owner(self.owner)
            self._held = True
            self.owner.holder = self
        except BaseException:  # Ctrl-C
            self._held = False
            self.owner.holder = None
            self._drop(self._locks[:taken])
            raise
        return True

    def take(self, shared: bool, seconds: float | None = None) -> None:
        """Take all locks, blocking the thread; an interrupted wait leaves none taken, nor does a `LockTimeout`."""
        self._shared = shared
        until = None if seconds is None else monotonic() + seconds
        taken = 0
        try:
            for lock in self._locks:
                waiter = lock.take(self._shared)
                if waiter is not None:
                    try:
                        waiter.result(_left(until))
                    except TimeoutError:
                        lock.give_up(self._shared, waiter)
                        raise LockTimeout("Other calls took too long.") from None
                    except BaseException:
                        lock.give_up(self._shared, waiter)
                        raise
                taken += 1
        except BaseException:
            self._drop(self._locks[:taken])
            raise
        self._held = True
        self.owner.holder = self
        self._token = enter_owner(self.owner)

    async def atake(self, shared: bool, seconds: float | None = None) -> None:
        """Like `take`, without blocking the event loop; a cancelled wait leaves none taken."""
        self._shared = shared
        until = None if seconds is None else monotonic() + seconds
        taken = 0
        try:
            for lock in self._locks:
                waiter = lock.take(self._shared)
                if waiter is not None:
                    try:
                        # Shielded: cancelling the wait must not cancel a grant that is being made.
                        granted = asyncio.shield(asyncio.wrap_future(waiter))
                        await asyncio.wait_for(granted, _left(until))
                    except TimeoutError:
                        lock.give_up(self._shared, waiter)
                        raise LockTimeout("Other calls took too long.") from None
                    except BaseException:
                        lock.give_up(self._shared, waiter)
                        raise
                taken += 1
        except BaseException:
            self._drop(self._locks[:taken])
            raise
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
                lock.release(self._shared)

    def _drop(self, locks: tuple[CallLock, ...]) -> None:
        for lock in locks:
            lock.release(self._shared)


def _left(until: float | None) -> float | None:
    return None if until is None else min(max(until - monotonic(), 0.0), TIMEOUT_MAX)


def _number(lock: CallLock) -> int:
    return lock.number


__all__ = ["CallLock", "Guarded", "Holding", "LockTimeout", "in_order", "lock_of"]
