"""Reading a LOG slice as it grows: the events since the last time, without scanning the rest.

Events are recorded by appending them to one list for all types; a slice takes its own out of it when it is read. A
reader looks at the end of that list instead, so reading after each event costs as much as that event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, final

from .session import Session
from .slices import SessionProtocol
from .snapshots import LogBuffer
from .state import SessionState
from .vector import EMPTY, Vector

T = TypeVar("T")


def core_of(session: SessionProtocol) -> SessionState:
    """What all handles of a session share, and no other session does."""
    return session._core if type(session) is Session else session[object]._core  # pyright: ignore[reportPrivateUsage] # a friend of both


@final
class LogReader(Generic[T]):
    """How far the LOG slice of one type was read. One thread at a time may use it.

    It holds what was logged, and not the session: what is kept for as long as a session lives may hold one.
    """

    __slots__ = ("_count", "_logged", "_seen", "_type")

    def __init__(self, event_type: type[T]) -> None:
        self._type = event_type
        self.start_over()

    def start_over(self) -> None:
        """Make the next `more` begin at the first event."""
        self._logged: LogBuffer | None = None
        self._seen = 0  # of what is fresh in it
        self._count = 0  # of the slice

    def more(self, core: SessionState) -> Sequence[T] | None:
        """The events since the last time; None when the log was emptied, and then all of them the next time."""
        logged = core.logged
        if logged is not self._logged:
            return self._more_of_slice(core)
        fresh: list[Any] = logged.fresh[self._seen :]  # what another thread adds after this is left for the next time
        count = len(fresh)
        self._seen += count
        if count == 1 and type(fresh[0]) is self._type:  # as a rule
            self._count += 1
            return fresh
        events: list[T] = [event for event in fresh if type(event) is self._type]
        self._count += len(events)
        return events

    def _more_of_slice(self, core: SessionState) -> Sequence[T] | None:
        before, count = self._logged, self._count
        with core.lock:  # so that nothing is fresh in what is remembered here
            items: Vector[T] = core.logs.get(self._type, EMPTY)
            logged = core.logged
        if before is not None and before.epoch != logged.epoch:
            self.start_over()
            return None
        self._logged, self._seen, self._count = logged, 0, len(items)
        return items[count:] if count else items
