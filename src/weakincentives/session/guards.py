"""Guarded handles: what makes every write through them happen inside a guard."""

from __future__ import annotations

from typing import TypeVar, final

from ..fence import Guard
from .events import Dispatcher, DispatchResult, EventHandler
from .subscriptions import SubscriptionLog

E = TypeVar("E")


@final
class BothGuards:
    """Two guards as one: a handle made from a guarded handle stays inside the first guard too."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Guard, inner: Guard) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        try:
            self._inner.__enter__()
        except BaseException:
            self._outer.__exit__(None, None, None)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._inner.__exit__(None, None, None)
        finally:
            self._outer.__exit__(None, None, None)


@final
class GuardedDispatcher:
    """A dispatcher that asks a guard first. The guard is not held while subscribers run.

    Who subscribes or unsubscribes here inside a call has that undone when the call is.
    """

    __slots__ = ("_dispatcher", "_guard", "_subscriptions")

    def __init__(self, dispatcher: Dispatcher, subscriptions: SubscriptionLog, guard: Guard) -> None:
        self._dispatcher = dispatcher
        self._subscriptions = subscriptions
        self._guard = guard

    def subscribe(self, event_type: type[E], handler: EventHandler[E], /) -> None:
        """Subscribe, inside the guard."""
        with self._guard:
            self._subscriptions.subscribe(event_type, handler)

    def unsubscribe(self, event_type: type[E], handler: EventHandler[E], /) -> bool:
        """Unsubscribe, inside the guard."""
        with self._guard:
            return self._subscriptions.unsubscribe(event_type, handler)

    def dispatch(self, event: object, /) -> DispatchResult:
        """Tell the subscribers, if the guard allows it."""
        with self._guard:
            pass
        return self._dispatcher.dispatch(event)


__all__ = ["BothGuards", "GuardedDispatcher"]
