"""Noticing when a handler really ends, even one that its call has abandoned."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, final

from ..interrupts import Lock
from ..prompt.handlers import Call


class HandlerEnd(NamedTuple):
    """What a handler returned or raised."""

    result: Any
    error: BaseException | None


@final
class HandlerWatch:
    """Sees one handler begin and end, in whichever thread or task that happens.

    Made for each claimed call; without `around` or `awaited` it watches nothing, as for a handler in a worker process,
    which is killed and never outlives its call.
    """

    __slots__ = ("_end", "_lock", "_on_end", "_running")

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = False
        self._end: HandlerEnd | None = None
        self._on_end: Callable[[], None] | None = None

    def around(self, call: Call) -> Call:
        """The handler, watched. It counts as running from now on: a thread may start it after the call is over."""
        self._running = True

        def watched(params: Any, context: Any) -> Any:
            try:
                result = call(params, context)
            except BaseException as error:
                self._ended(HandlerEnd(None, error))
                raise
            if inspect.isawaitable(result):
                self._running = False  # a coroutine that is never awaited never begins
                return self.awaited(result)
            self._ended(HandlerEnd(result, None))
            return result

        return watched

    async def awaited(self, awaitable: Awaitable[Any]) -> Any:
        """What an async handler returned, watched from its first step on."""
        self._running = True
        try:
            result = await awaitable
        except BaseException as error:  # GeneratorExit too: its event loop was closed around it
            self._ended(HandlerEnd(None, error))
            raise
        self._ended(HandlerEnd(result, None))
        return result

    def _ended(self, end: HandlerEnd) -> None:
        with self._lock:
            self._end, self._running = end, False
            tell = self._on_end
        if tell is not None:
            tell()

    def when_ended(self, tell: Callable[[], None]) -> bool:
        """Have `tell` called once it ends, in its own thread; False, and no call, when it is not running."""
        with self._lock:
            if not self._running:
                return False
            self._on_end = tell
            return True

    def take_end(self) -> HandlerEnd | None:
        """How it ended, once; None while it runs. Taken, so that an exception is not kept alive by its own frames."""
        with self._lock:
            end, self._end = self._end, None
            return end


__all__ = ["HandlerEnd", "HandlerWatch"]
