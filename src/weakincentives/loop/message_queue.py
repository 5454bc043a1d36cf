"""Messages of a conversation are answered one at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import final

from ..interrupts import Lock
from ..lazy_modules import asyncio

Place = Future[None]
"""One message's place; it is done when it is that one's turn."""


@final
class MessageQueue:
    """Lets one message through at a time, in the order in which they came; from threads and tasks alike.

    Whoever enters a place leaves it afterwards, also when entering was interrupted.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._lock = Lock()
        self._inside: Place | None = None
        self._is_brief = False
        self._others: deque[Place] = deque()

    def try_enter(self, place: Place, *, brief: bool = False) -> bool:
        """Enter if there is no message in. Others wait for what is `brief` in any case: it is not a message."""
        with self._lock:
            if self._inside is None:
                self._inside, self._is_brief = place, brief
            return self._inside is place

    def enter(self, place: Place) -> None:
        """Wait for one's turn."""
        if not self.try_enter(place):
            self._stand_in_line(place)
            place.result()

    async def aenter(self, place: Place) -> None:
        """Await it."""
        if not self.try_enter(place):
            self._stand_in_line(place)
            await asyncio.wrap_future(place)

    def _stand_in_line(self, place: Place) -> None:
        with self._lock:
            if self._inside is None:
                self._inside, self._is_brief = place, False
                place.set_result(None)
            elif self._waits or self._is_brief:
                self._others.append(place)
            else:
                raise RuntimeError("Another message is being answered. Wait for its answer, or open with busy='wait'.")

    def is_inside(self, place: Place) -> bool:
        """Whether it is that one's turn."""
        return self._inside is place

    def leave(self, place: Place) -> None:
        """Let the next one in, or do not wait any longer."""
        with self._lock:
            if self._inside is not place:
                if place in self._others:
                    self._others.remove(place)
                return
            self._inside = None
            while self._others and self._inside is None:
                following = self._others.popleft()
                if following.set_running_or_notify_cancel():
                    self._inside, self._is_brief = following, False
                    following.set_result(None)


__all__ = ["MessageQueue", "Place"]
