"""Fences revoke the handles of a call once it is over; owners say which call a write belongs to.

Every write through a handle of a call happens inside its fence (`with fence: ...`). Closing the fence waits for
the write under way, so that a rollback that follows can miss nothing, and makes every later write raise.

A rollback undoes the writes of its own savepoint and no others. Which savepoint a write belongs to is found through a
context variable; a fence sets it for writes from threads that a handler started without its context.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from errno import EINTR
from typing import Any, final

from .errors import ReadOnlyError, StaleCallError
from .interrupts import RLock, Shield, current_shield

Guard = AbstractContextManager[object, None]
"""What a handle enters around each write; entering raises when the write is not allowed."""


@final
class Owner:
    """Stands for one savepoint: the writes made inside it are its own. Compared by identity.

    It has no constructor: one is made for every call.

    Attributes:
        around: the owner it is nested in.
        holder: the savepoint while that is open, and None before and after: dropping it at the end leaves no reference
            cycle behind.
        ended: set when a tool call ended before its handler did: to the locks of what took part in it.
        only_through_api: whether its writes to files all go through a `Filesystem`, so that no other changes need be
            looked for; False while that is not known.
        recorder: what puts the call on record that it stands for, or the one around that.
    """

    around: Owner | None = None
    holder: Any = None
    ended: tuple[Any, ...] = ()
    only_through_api: bool = False
    recorder: Any = None

    def inside(self, other: Owner) -> bool:
        """Whether this is `other`, or nested in it."""
        owner: Owner | None = self
        while owner is not None:
            if owner is other:
                return True
            owner = owner.around
        return False


def recorder_around(owner: Owner | None) -> Any:
    """What puts the nearest call that is on record there, from this owner outwards; None when none is."""
    while owner is not None and owner.recorder is None:
        owner = owner.around
    return None if owner is None else owner.recorder


_current: ContextVar[Owner | None] = ContextVar("weakincentives_owner", default=None)
nearest_owner: Callable[[], Owner | None] = _current.get
"""The owner that this code was started in, even if that has ended; None outside of savepoints."""
enter_owner: Callable[[Owner | None], Token[Owner | None]] = _current.set
leave_owner: Callable[[Token[Owner | None]], None] = _current.reset


def current_owner() -> Owner | None:
    """The innermost open savepoint around this code, or None.

    Ended ones are passed over: a context may outlive the call that it was copied in.
    """
    owner = _current.get()
    while owner is not None and owner.holder is None:
        owner = owner.around
    return owner


def check_wanted() -> None:
    """`StaleCallError` once the call around this code was abandoned: it timed out, or its deadline passed.

    For loops whose length a file or a model decides. They would continue in a thread that no call waits for; and a call
    ends only after the write under way in it, see `Fence.close`. In the main thread a noted interrupt ends the loop
    as well, with `InterruptedError`; the interrupt itself follows when our code is done.
    """
    owner = _current.get()
    while owner is not None:
        if owner.ended:
            raise StaleCallError("This call is over, so its work was stopped. Do all work before the handler returns.")
        owner = owner.around
    if current_shield().noted:
        raise InterruptedError(EINTR, "Interrupted, so the work was stopped")


@final
class Fence:
    """Open while its call runs, closed afterwards and never opened again. Safe to use from any thread.

    Args:
        around: the guard of a call that this one was made in; what that refuses, this one does too.
        owner: what writes inside the fence belong to, unless they are made in a savepoint nested in it.
    """

    __slots__ = ("_around", "_entered", "_lock", "_owner", "_reason", "_shield")

    _shield: Shield

    def __init__(self, around: Guard | None = None, owner: Owner | None = None) -> None:
        self._around = around
        self._owner = owner
        self._lock = RLock()
        self._entered: list[Token[Owner | None] | None] = []
        self._reason: str | None = None

    def __enter__(self) -> None:
        shield = current_shield()
        shield.depth += 1  # a write is our own code: an interrupt waits until the fence is left
        try:
            if self._around is not None:
                self._around.__enter__()
            self._lock.acquire()
            if self._reason is not None:
                self._lock.release()
                if self._around is not None:
                    self._around.__exit__(None, None, None)
                raise StaleCallError(  # noqa: TRY301 - one more function call would slow down every write
                    f"This call is over ({self._reason}), so its handle changes nothing any more. "
                    "Do all work before the handler returns."
                )
            self._shield = shield  # of the thread that holds the lock, through all of its entries
            owner = self._owner
            if owner is not None:
                is_own = _current.get() is owner  # nearly always
                if not is_own:
                    current = current_owner()
                    is_own = current is not None and current.inside(owner)
                self._entered.append(None if is_own else _current.set(owner))
        except BaseException:
            shield.depth -= 1
            raise

    def __exit__(self, *exc: object) -> None:
        shield = self._shield
        try:
            if self._owner is not None:
                before = self._entered.pop()
                if before is not None:
                    _current.reset(before)
            self._lock.release()
            if self._around is not None:
                self._around.__exit__(None, None, None)
            while shield.noted and shield.depth == 1:
                shield.deliver()
        finally:
            shield.depth -= 1

    @property
    def closed(self) -> bool:
        """Whether the call is over."""
        return self._reason is not None

    def close(self, reason: str = "it returned") -> None:
        """Refuse all further writes; a write under way is waited for. Closing twice keeps the first reason."""
        # Under the lock that every write holds: without it, a write that has passed the check would change something
        # after the undo that follows.
        with self._lock:
            if self._reason is None:
                self._reason = reason


@final
class ReadOnlyGuard:
    """Refuses every write. `who` names the holder in the error."""

    __slots__ = ("_who",)

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        raise ReadOnlyError(f"{self._who} is read-only, so nothing was changed.")

    def __exit__(self, *exc: object) -> None:  # pragma: no cover - entering always raises
        return None


__all__ = [
    "Fence", "Guard", "Owner", "ReadOnlyGuard", "check_wanted", "current_owner", "enter_owner", "leave_owner",
    "nearest_owner",
]  # fmt: skip
