"""Changes of subscribers that are made inside calls, so that an undo takes them back."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from ..fence import Owner, current_owner
from .events import Dispatcher, EventHandler


class Subscribing(NamedTuple):
    """One handler that a call subscribed or unsubscribed."""

    owner: Owner
    event_type: type[Any]
    handler: EventHandler[Any]
    added: bool
    changed: bool
    """False when the handler had been subscribed before: nothing to undo, but wanted."""

    def wants_the_same(self, other: Subscribing) -> bool:
        """Whether another call did the same to the same handler."""
        return self[1:4] == other[1:4]


@final
class SubscriptionLog:
    """What calls did to the subscribers of one dispatcher. `entries` are the session's, until no savepoint is open."""

    __slots__ = ("_dispatcher", "entries")

    def __init__(self, dispatcher: Dispatcher, entries: list[Subscribing]) -> None:
        self._dispatcher = dispatcher
        self.entries = entries

    def subscribe(self, event_type: type[Any], handler: EventHandler[Any]) -> None:
        """Subscribe a handler; inside a call it is undone with the call."""
        is_new = self._dispatcher.subscribe(event_type, handler) is not False
        self._note(event_type, handler, True, is_new)

    def unsubscribe(self, event_type: type[Any], handler: EventHandler[Any]) -> bool:
        """The other way round; says whether it was subscribed."""
        removed = self._dispatcher.unsubscribe(event_type, handler)
        self._note(event_type, handler, False, removed)
        return removed

    def undo(self, owner: Owner) -> None:
        """Undo what a savepoint owns, newest first, unless others asked for the same; raises what the dispatcher does.

        A handler that is subscribed again is the last one to be called.
        """
        for entry in reversed(self.entries.copy()):
            if not entry.owner.inside(owner):
                continue
            others = (other for other in self.entries if not other.owner.inside(owner))
            if entry.changed and not any(map(entry.wants_the_same, others)):
                if entry.added:
                    self._dispatcher.unsubscribe(entry.event_type, entry.handler)
                else:
                    self._dispatcher.subscribe(entry.event_type, entry.handler)
            self.entries.remove(entry)

    def _note(self, event_type: type[Any], handler: EventHandler[Any], added: bool, changed: bool) -> None:
        owner = current_owner()
        if owner is not None:
            self.entries.append(Subscribing(owner, event_type, handler, added, changed))


__all__ = ["Subscribing", "SubscriptionLog"]
