"""Messages of a conversation are answered one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import final

from ..interrupts import Lock
from ..lazy_modules import asyncio


@final
class MessageQueue:
    """Lets one message through at a time, in the order in which they came; from threads and tasks alike."""

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._lock = Lock()
        self._is_taken = False
        self._others: deque[Future[None]] = deque()

    def try_enter(self) -> bool:
        """Enter if there is no message in."""
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken

    def _place(self) -> Future[None] | None:
        """None when it is this one's turn already."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return None
            if not self._waits:
                raise RuntimeError("Another message is being answered. Wait for its answer, or open with busy='wait'.")
            place: Future[None] = Future()
            self._others.append(place)
            return place

    def enter(self) -> None:
        """Wait for one's turn."""
        place = self._place()
        if place is not None:
            self._wait(place, place.result)

    async def aenter(self) -> None:
        """Await it."""
        place = self._place()
        if place is not None:
            try:
                await asyncio.wrap_future(place)
            except BaseException:
                self._give_up(place)
                raise

    def _wait(self, place: Future[None], wait: Callable[[], None]) -> None:
        try:
            wait()
        except BaseException:
            self._give_up(place)
            raise

    def _give_up(self, place: Future[None]) -> None:
        with self._lock:
            is_waiting = place in self._others
            if is_waiting:
                self._others.remove(place)
        if not is_waiting and not place.cancelled():
            self.leave()  # it was given the turn meanwhile

    def leave(self) -> None:
        """Let the next one in."""
        with self._lock:
            while self._others:
                place = self._others.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._is_taken = False


__all__ = ["MessageQueue"]
