"""Fences: how handles are made worthless once their call is over.

Every write through a handle of a call happens inside its fence (`with fence: ...`). Closing the fence waits for
the write under way, so that a rollback that follows can miss nothing, and makes every later write raise.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import RLock
from typing import final

from .errors import ReadOnlyError, StaleCallError

Guard = AbstractContextManager[object, None]
"""What a handle enters around each write; entering raises when the write is not allowed."""


@final
class Fence:
    """Open while its call runs; closed for ever afterwards. Safe to use from any thread.

    Args:
        around: the guard of a call that this one was made in; what that refuses, this one does too.
    """

    __slots__ = ("_around", "_lock", "_reason")

    def __init__(self, around: Guard | None = None) -> None:
        self._around = around
        self._lock = RLock()
        self._reason: str | None = None

    def __enter__(self) -> None:
        if self._around is not None:
            self._around.__enter__()
        self._lock.acquire()
        if self._reason is not None:
            self.__exit__()
            raise StaleCallError(
                f"This call is over ({self._reason}), so its handle changes nothing any more. "
                "Do all work before the handler returns."
            )

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        if self._around is not None:
            self._around.__exit__(None, None, None)

    @property
    def closed(self) -> bool:
        """Whether the call is over."""
        return self._reason is not None

    def close(self, reason: str = "it returned") -> None:
        """Refuse all further writes; a write under way is waited for. Closing twice keeps the first reason."""
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


__all__ = ["Fence", "Guard", "ReadOnlyGuard"]
