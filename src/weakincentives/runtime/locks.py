"""Locks that belong to a call, not to a thread.

A writing call holds the lock of each of its participants alone; read-only calls share it. A call made from inside
another call runs under the locks its caller holds, in whatever thread or task it runs. Waiters are served in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextvars import ContextVar, Token
from threading import Lock
from typing import Any, final
from weakref import WeakKeyDictionary


@final
class CallLock:
    """One writer or any number of readers; whoever waits longest is next."""

    __slots__ = ("__weakref__", "_mutex", "_readers", "_waiting", "_writing", "number")

    _count = 0

    def __init__(self) -> None:
        CallLock._count += 1
        self.number = CallLock._count
        self._mutex = Lock()
        self._readers = 0
        self._writing = False
        self._waiting: deque[tuple[bool, Future[None]]] = deque()

    def take(self, shared: bool) -> Future[None] | None:
        """Take the lock, or queue up: the future is done once it is the caller's."""
        with self._mutex:
            if not self._writing and not self._waiting and (shared or not self._readers):
                self._grant(shared)
                return None
            waiter: Future[None] = Future()
            self._waiting.append((shared, waiter))
            return waiter

    def give_up(self, shared: bool, waiter: Future[None]) -> None:
        """Stop waiting; a lock that was granted in the meantime is released."""
        with self._mutex:
            if not waiter.done():
                self._waiting.remove((shared, waiter))
                return
        self.release(shared)

    def release(self, shared: bool) -> None:
        """Hand it to the next in line."""
        with self._mutex:
            if shared:
                self._readers -= 1
            else:
                self._writing = False
            while self._waiting and not self._writing and (self._waiting[0][0] or not self._readers):
                next_shared, waiter = self._waiting.popleft()
                self._grant(next_shared)
                waiter.set_result(None)

    def _grant(self, shared: bool) -> None:
        if shared:
            self._readers += 1
        else:
            self._writing = True


_locks: WeakKeyDictionary[Any, CallLock] = WeakKeyDictionary()
_locks_mutex = Lock()


def lock_of(participant: Any) -> CallLock:
    """The lock of a participant; it lives as long as the participant does."""
    try:
        return _locks[participant]
    except KeyError:
        with _locks_mutex:
            return _locks.setdefault(participant, CallLock())


@final
class Holding:
    """The locks a call holds; found through a context variable by the calls made inside it."""

    __slots__ = ("_locks", "_outer", "_released", "_shared", "_token")

    def __init__(self, locks: Iterable[CallLock], *, shared: bool) -> None:
        self._outer = _current.get()
        self._shared = shared
        self._locks = [lock for lock in locks if self._outer is None or not self._outer.holds(lock)]
        if len(self._locks) > 1:
            self._locks.sort(key=_number)  # a fixed order, so that two calls cannot wait for each other
        self._released = False
        self._token: Token[Holding | None] | None = None

    def holds(self, lock: CallLock) -> bool:
        """Whether this call, or one around it, has the lock and is still running."""
        if not self._released and lock in self._locks:
            return True
        return self._outer is not None and self._outer.holds(lock)

    def acquire(self) -> None:
        """Take all locks, blocking the thread; an interrupted wait leaves none taken."""
        taken: list[CallLock] = []
        try:
            for lock in self._locks:
                waiter = lock.take(self._shared)
                if waiter is not None:
                    try:
                        waiter.result()
                    except BaseException:
                        lock.give_up(self._shared, waiter)
                        raise
                taken.append(lock)
        except BaseException:
            self._drop(taken)
            raise
        self._token = _current.set(self)

    async def aacquire(self) -> None:
        """Take all locks without blocking the event loop; a cancelled wait leaves none taken."""
        taken: list[CallLock] = []
        try:
            for lock in self._locks:
                waiter = lock.take(self._shared)
                if waiter is not None:
                    try:
                        await asyncio.wrap_future(waiter)
                    except BaseException:
                        lock.give_up(self._shared, waiter)
                        raise
                taken.append(lock)
        except BaseException:
            self._drop(taken)
            raise
        self._token = _current.set(self)

    def release(self) -> None:
        """Let go of everything; releasing twice does nothing."""
        if self._released:
            return
        self._released = True
        if self._token is not None:
            try:
                _current.reset(self._token)
            except ValueError:  # begun in another context, as harnesses with hooks do
                _current.set(self._outer)
        self._drop(self._locks)

    def _drop(self, locks: list[CallLock]) -> None:
        for lock in reversed(locks):
            lock.release(self._shared)


def _number(lock: CallLock) -> int:
    return lock.number


_current: ContextVar[Holding | None] = ContextVar("weakincentives_holding", default=None)

__all__ = ["CallLock", "Holding", "lock_of"]
