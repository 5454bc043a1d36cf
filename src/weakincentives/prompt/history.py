"""What a session's calls amount to, kept up to date instead of counted anew.

The log of calls only grows, so whatever is derived from it can go on from where it stopped. This is a cache, not state:
nothing of it is restored, saved or forked, and it is made again from the log whenever the log is not the one it knew.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar, final

from ..session import SessionProtocol
from .events import CallsUndone, ToolInvoked

S = TypeVar("S")
A = TypeVar("A")

_MAX_SESSIONS = 1024
"""How many sessions are remembered; for one that was forgotten the log is read once more."""


@final
class CallIndex(Generic[S]):
    """An index over the `ToolInvoked` events of sessions. Safe to use from any thread.

    `start` makes an empty index, `add` puts one event into it. Asking costs as much as the calls since the last time.
    """

    __slots__ = ("_add", "_known", "_lock", "_start")

    def __init__(self, start: Callable[[], S], add: Callable[[S, ToolInvoked], object]) -> None:
        self._start = start
        self._add = add
        self._lock = Lock()
        self._known: dict[str, tuple[int, ToolInvoked | None, S]] = {}

    def ask(self, session: SessionProtocol, question: Callable[[S], A]) -> A:
        """The answer of `question` to the index as it is now; it must not keep or change the index."""
        key, calls = session.session_id, session[ToolInvoked]
        with self._lock:
            events = calls.all()  # in here, so that nobody comes with an older view than the last one
            size = len(events)
            count, last, index = self._known.get(key) or (0, None, self._start())
            if count > size or (count and events[count - 1] is not last):
                count, index = 0, self._start()  # the log was emptied, or another session has this id
            if count < size:
                for event in events[count:] if count else events:
                    self._add(index, event)
                self._remember(key, (size, events[-1], index))
            return question(index)

    def _remember(self, key: str, entry: tuple[int, Any, S]) -> None:
        self._known[key] = entry
        if len(self._known) > _MAX_SESSIONS:
            del self._known[next(iter(self._known))]


def recorded_call(session: SessionProtocol, call_id: str) -> ToolInvoked | None:
    """The newest event of a call with this id; None when the log has none. Looks from the end of the log."""
    for event in reversed(session[ToolInvoked].all()):
        if event.call_id == call_id:
            return event
    return None


def was_undone(session: SessionProtocol, call: ToolInvoked) -> bool:
    """Whether a call that succeeded was undone later: by the end of the call around it, a transaction or a snapshot."""
    if not call.success:
        return False
    for event in reversed(session[ToolInvoked].all()):
        if event is call:
            break
        if call.event_id in event.undone_calls:
            return True
    return any(call.event_id in event.undone_calls for event in session[CallsUndone].all())


__all__ = ["CallIndex", "recorded_call", "was_undone"]
