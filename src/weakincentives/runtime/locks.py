"""Locks that belong to a call, not to a thread.

A writing call holds the lock of each of its participants alone; read-only calls share it. A call made from inside
another call runs under the locks its caller holds, in whatever thread or task it runs. Waiters are served in order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextvars import Token, copy_context
from functools import cache, partial
from threading import TIMEOUT_MAX
from time import monotonic
from typing import Any, NamedTuple, Protocol, final
from weakref import ref

from ..errors import SessionBusyError
from ..fence import Fence, Guard, Owner, current_owner, enter_owner, leave_owner
from ..filesystem import Filesystem
from ..filesystem.ownership import holder_name
from ..filesystem.views import HeldFilesystem
from ..interrupts import Lock
from ..resources import ResourceContext
from ..session import Session
from ..session.session import root_of
from ..waiting import Waiting
from .places import Placed

logger: logging.Logger = logging.getLogger(__name__)

_LOOK = 5.0
"""Seconds after which a waiter looks whether the holder still exists, and again after as many more."""


class _Waiter(NamedTuple):
    shared: bool
    granted: Future[None]
    holder: LockSet | None


@final
class CallLock:
    """One writer or any number of readers; waiters are served in order.

    A caller that takes the one item out of `_free` has the lock. That is a single step, so a lock without waiters needs
    no mutex. It knows its holders: see `look_after`.
    """

    __slots__ = ("__weakref__", "_free", "_mutex", "_readers", "_waiting", "number", "readers", "writer")

    _count = 0

    def __init__(self) -> None:
        CallLock._count += 1
        self.number: int = CallLock._count
        self.writer: LockSet | None = None
        self.readers: list[LockSet] = []
        self._mutex = Lock()
        self._free = [True]
        self._readers = 0
        self._waiting: deque[_Waiter] = deque()

    def take_now(self, shared: bool, holder: LockSet | None = None) -> bool:
        """Take the lock if that needs no waiting."""
        if self._waiting:
            return False
        if shared:
            with self._mutex:
                return self._grant(shared, holder)
        try:
            self._free.pop()
        except IndexError:
            return False
        self.writer = holder
        return True

    def take(self, shared: bool, holder: LockSet | None = None) -> Future[None] | None:
        """Take the lock, or queue up: the future is done once it is the caller's."""
        with self._mutex:
            if not self._waiting and self._grant(shared, holder):
                return None
            waiter = _Waiter(shared, Future(), holder)
            self._waiting.append(waiter)
            self._serve()
            return waiter.granted

    def give_up(self, shared: bool, granted: Future[None], holder: LockSet | None = None) -> None:
        """Stop waiting; a lock that was granted in the meantime is released."""
        with self._mutex:
            if not granted.done():
                self._waiting = deque(waiter for waiter in self._waiting if waiter.granted is not granted)
                self._serve()  # readers behind a writer may have waited for nothing else
                return
        self.release_own(shared, holder)

    def release(self, shared: bool, holder: LockSet | None = None) -> None:
        """Hand it to the next in line."""
        if not shared:
            # In this order: the item is returned before the queue is looked at, and a waiter queues up before it looks
            # for the item. So one of the two sees the other; the other way round, a waiter could sleep beside a free
            # lock for ever.
            self.writer = None
            self._free.append(True)
        elif self._was_last_reader(holder):
            self._free.append(True)
        if self._waiting:
            with self._mutex:
                self._serve()

    def release_own(self, shared: bool, holder: LockSet | None) -> None:
        """Release it, unless it was taken over meanwhile."""
        if holder is None or self.writer is holder or holder in self.readers:
            self.release(shared, holder)

    def look_after(self, *, blocking: bool) -> None:
        """Close the calls that hold it and cannot end any more: their thread, task or event loop is gone.

        They are undone, as if they had been interrupted, and the lock goes to the next in line. Called by a waiter,
        `blocking` a thread or awaiting; `SessionBusyError` when a holder is stalled but may still continue.
        """
        with self._mutex:
            holders = [*self.readers, *(() if self.writer is None else (self.writer,))]
            self._serve()  # past waiters that cannot take it any more
        for holder in holders:
            if holder.is_orphaned():
                holder.close_orphaned()
            elif (why := holder.standstill(blocking=blocking)) is not None:
                who = holder_name(holder)
                raise SessionBusyError(f"The session or the files are held by {who} that cannot end, because {why}.")

    def _was_last_reader(self, holder: LockSet | None) -> bool:
        with self._mutex:
            self._readers -= 1
            if holder is not None:
                self.readers.remove(holder)
            return not self._readers

    def _serve(self) -> None:
        while self._waiting:
            shared, granted, holder = self._waiting[0]
            if holder is not None and holder.is_orphaned():
                self._waiting.popleft()  # granted to a closed event loop it would be held for ever
            elif self._grant(shared, holder):
                self._waiting.popleft()
                granted.set_result(None)
            else:
                return

    def _grant(self, shared: bool, holder: LockSet | None) -> bool:
        if not (shared and self._readers):  # the first of several readers has it for all of them
            try:
                self._free.pop()
            except IndexError:
                return False
        if not shared:
            self.writer = holder
            return True
        self._readers += 1
        if holder is not None:
            self.readers.append(holder)
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


def locks_of(session: Session, resources: ResourceContext | None) -> tuple[CallLock, ...]:
    """The locks of everything that takes part, in the order in which they are taken."""
    parts = () if resources is None else resources.snapshotables()
    return in_order([lock_of(root_of(session)), *map(lock_of, map(files_behind, parts))])


def files_behind(part: Any) -> Any:
    """The filesystem that a view shows, or the participant itself: all views of one root share its lock."""
    while is_filesystem(part.__class__) and not isinstance(part, HeldFilesystem):
        behind = getattr(part, "_fs", None)
        if behind is None or not is_filesystem(behind.__class__):
            break
        part = behind
    return part


def in_order(locks: Iterable[CallLock]) -> tuple[CallLock, ...]:
    """The locks in the fixed order in which calls take them, so that two calls cannot wait for each other."""
    return tuple(sorted(set(locks), key=_number))


_OPERATIONS = tuple(name for name in vars(Filesystem) if not name.startswith("_"))


@cache
def is_filesystem(kind: type[Any]) -> bool:
    """Whether objects of a class are filesystems, by what they can do and not by their name."""
    return all(hasattr(kind, name) for name in _OPERATIONS)


class Guarded(Protocol):
    """What locks are held for."""

    def guard(self) -> Guard:
        """What its writes happen in."""
        ...


class LockSet(Placed):
    """The locks a call holds; found through a context variable by the calls made inside it.

    `locks` are `in_order`; those that a call around this one holds are left to it. Released, it can be taken again.
    """

    __slots__ = ("_held", "_inner", "_locks", "_outer", "_shared", "_token", "call", "owner")

    call: Guarded
    """The call that holds them; set by `dispatch`."""

    owner: Owner
    """Stands for it in the log of writes; current in its context while the locks are held."""

    _inner: CallLock
    _token: Token[Owner | None] | None

    def __init__(self, locks: tuple[CallLock, ...]) -> None:
        around = current_owner()
        self.owner = Owner()
        self.owner.around = around
        self._outer: LockSet | None = None if around is None else around.holder
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
        return others if len(others) == len(locks) else (*others, self._sibling_lock())

    def _sibling_lock(self) -> CallLock:
        with _locks_mutex:
            try:
                return self._inner
            except AttributeError:
                self._inner = CallLock()
                return self._inner

    def enclosing_fence(self) -> Guard | None:
        """The guard of the call whose locks this one uses, or None when all of its locks are its own."""
        outer = self._outer
        if outer is None or not self._locks or self._locks[-1] is not getattr(outer, "_inner", None):
            return None
        return outer.guard()

    def guard(self) -> Guard | None:
        """The guard of the call that holds this, or of the nearest call around it; None outside of calls."""
        holder: LockSet | None = self
        while holder is not None and not hasattr(holder, "call"):
            holder = holder._outer
        return None if holder is None else holder.call.guard()

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

    async def take(self, waiting: Waiting, shared: bool, seconds: float | None = None) -> None:
        """Wait for all locks; an interrupted or cancelled wait leaves none taken, nor does `OutOfTime`."""
        self._shared = shared
        self.place_here()
        until = None if seconds is None else monotonic() + seconds
        taken = 0
        try:
            for lock in self._locks:
                granted = lock.take(shared, self)
                if granted is not None:
                    look = partial(lock.look_after, blocking=not waiting.in_loop)
                    try:
                        await waiting.until(granted, _left(until), meanwhile=look, period=_LOOK)
                    except BaseException:
                        # The lock may have been handed to us in the very moment in which the wait ended: what was
                        # granted must be given on, or it is held for ever.
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

    def release(self) -> None:
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
                # In a context of its own: leaving its owner must not change what is current for the waiter.
                copy_context().run(self._close)
            except Exception:  # what it left could not be restored; its participants say so to the next call
                logger.exception("An abandoned call could not be undone")

    def _close(self) -> None:
        self.release()


_closing_orphans = Lock()


def _left(until: float | None) -> float | None:
    return None if until is None else min(max(until - monotonic(), 0.0), TIMEOUT_MAX)


def _number(lock: CallLock) -> int:
    return lock.number


__all__ = ["CallLock", "Guarded", "LockSet", "in_order", "is_filesystem", "lock_of", "locks_of"]
