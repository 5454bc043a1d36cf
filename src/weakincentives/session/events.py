"""Events: slice policies, subscribers, dispatchers, and the result of a dispatch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Protocol, TypeVar, final, runtime_checkable

from ..crash_log import log_crash
from ..errors import DispatchError
from ..fence import Owner, current_owner
from ..interrupts import Lock
from ..run_context import RunContext

E = TypeVar("E")

EventHandler = Callable[[E], object]
"""A subscriber: called with the event, in the thread that dispatched it; what it returns is ignored."""

_logger = logging.getLogger(__name__)


class SlicePolicy(Enum):
    """What a restore does to a slice.

    A class names its own policy, which its subclasses inherit:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Audited:
    ...     slice_policy = SlicePolicy.LOG
    ...     what: str
    """

    STATE = "state"
    """Working state: restored to what a snapshot holds. The default."""
    LOG = "log"
    """History: append-only, and never restored."""


def own_policy(slice_type: type[Any]) -> SlicePolicy | None:
    """The policy a class names for itself."""
    named = getattr(slice_type, "slice_policy", None)
    return named if isinstance(named, SlicePolicy) else None


class DispatchResult(NamedTuple):
    """Which subscribers of an event ran, and which failed.

    Attributes:
        event: the event.
        handled: the handlers that returned, in the order in which they ran.
        errors: the handlers that raised, each with its exception; they are logged already.
    """

    event: object
    handled: tuple[EventHandler[Any], ...]
    errors: tuple[tuple[EventHandler[Any], Exception], ...]

    @property
    def ok(self) -> bool:
        """Whether no handler failed."""
        return not self.errors

    def raise_if_errors(self) -> None:
        """Raise `DispatchError` when a handler failed; its `causes` are what they raised. Else do nothing.

        >>> bus = InProcessDispatcher()
        >>> bus.dispatch("no subscriber").raise_if_errors()
        """
        if not self.errors:
            return
        listed = "; ".join(f"{_name(handler)}: {type(error).__name__}: {error}" for handler, error in self.errors)
        causes = tuple(error for _, error in self.errors)
        text = f"{len(causes)} subscribers of {type(self.event).__qualname__} failed ({listed})."
        cause = causes[0] if len(causes) == 1 else ExceptionGroup("what the subscribers raised", causes)
        raise DispatchError(text.encode("ascii", "backslashreplace").decode(), causes=causes) from cause


@runtime_checkable
class Dispatcher(Protocol):
    """Tells subscribers of events. It holds no state of the session: dispatching here changes no slice."""

    def subscribe(self, event_type: type[E], handler: EventHandler[E], /) -> object:
        """Call `handler` with every later event that is an instance of `event_type`; twice is once.

        Returns False if it was subscribed already, so that undoing the call that subscribed it changes nothing.
        """
        ...

    def unsubscribe(self, event_type: type[E], handler: EventHandler[E], /) -> bool:
        """Call it no more; says whether it was subscribed."""
        ...

    def dispatch(self, event: object, /) -> DispatchResult:
        """Call the subscribers of `event`; their exceptions are in the result, never raised."""
        ...


@final
class InProcessDispatcher:
    """Calls subscribers at once, in the dispatching thread, in the order in which they subscribed.

    Subscribers match by `isinstance`: one of `object` hears everything. No lock is held while they run, so they may
    dispatch, subscribe and unsubscribe; who subscribes during a dispatch hears of the next event. One that raises an
    Exception is logged with its traceback and reported in the result, and the others still run; KeyboardInterrupt and
    its like pass through at once. Safe to use from any thread.

    >>> bus = InProcessDispatcher()
    >>> bus.subscribe(int, lambda number: print("got", number))
    True
    >>> bus.dispatch(7).ok, bus.dispatch("seven").handled
    got 7
    (True, ())
    """

    __slots__ = ("_lock", "_routes", "_subscriptions")

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscriptions: tuple[tuple[type[Any], EventHandler[Any]], ...] = ()
        self._routes: dict[type[Any], tuple[EventHandler[Any], ...]] = {}

    def subscribe(self, event_type: type[E], handler: EventHandler[E], /) -> bool:
        """Call `handler` with every later event that is an instance of `event_type`; twice is once, and says False.

        Raises TypeError for an `async def` handler, which would never be awaited.
        """
        if not isinstance(event_type, type):
            raise TypeError(f"Subscribe to a class, not to {event_type!r}.")
        if iscoroutinefunction(handler):
            raise TypeError(
                f"{_name(handler)} is async, but subscribers are called, not awaited; "
                "subscribe a synchronous function that schedules the work."
            )
        with self._lock:
            if (event_type, handler) in self._subscriptions:
                return False
            self._subscriptions = (*self._subscriptions, (event_type, handler))
            self._routes = {}
        return True

    def unsubscribe(self, event_type: type[E], handler: EventHandler[E], /) -> bool:
        """Call it no more; says whether it was subscribed. A dispatch under way may still call it."""
        with self._lock:
            kept = tuple(entry for entry in self._subscriptions if entry != (event_type, handler))
            removed = len(kept) < len(self._subscriptions)
            self._subscriptions = kept
            self._routes = {}
        return removed

    def dispatch(self, event: object, /) -> DispatchResult:
        """Call the subscribers of `event`; their exceptions are in the result, never raised."""
        handlers = self._routes.get(type(event))
        if handlers is None:
            handlers = self._route(type(event))
        if not handlers:
            # Its own constructor takes three times as long.
            return tuple.__new__(DispatchResult, (event, (), ()))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        handled: list[EventHandler[Any]] = []
        errors: list[tuple[EventHandler[Any], Exception]] = []
        for handler in handlers:
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 - subscribers are users' code
                context = getattr(event, "run_context", None)
                extra = context.log_extra() if isinstance(context, RunContext) else None
                what = f"Subscriber {_name(handler)} failed on {type(event).__qualname__}"
                log_crash(_logger, what, error, extra)
                errors.append((handler, error))
            else:
                handled.append(handler)
        return DispatchResult(event, tuple(handled), tuple(errors))

    def dispatch_if_unsubscribed(self, event: object) -> DispatchResult | None:
        """The result of dispatching an event that has no subscriber; None when it has one, which was not called."""
        handlers = self._routes.get(type(event))
        if handlers is None:
            handlers = self._route(type(event))
        return None if handlers else DispatchResult(event, (), ())

    def _route(self, event_type: type[Any]) -> tuple[EventHandler[Any], ...]:
        with self._lock:
            handlers = tuple(handler for wanted, handler in self._subscriptions if issubclass(event_type, wanted))
            self._routes[event_type] = handlers
        return handlers


def _name(handler: object) -> str:
    return ascii(getattr(handler, "__qualname__", type(handler).__qualname__)).strip("'")


# Changes of subscribers that are made inside calls, so that an undo restores them.


class SubscriptionChange(NamedTuple):
    """One handler that a call subscribed or unsubscribed."""

    owner: Owner
    event_type: type[Any]
    handler: EventHandler[Any]
    added: bool
    changed: bool
    """False when the handler had been subscribed before: nothing to undo, but wanted."""

    def wants_the_same(self, other: SubscriptionChange) -> bool:
        """Whether another call did the same to the same handler."""
        return self[1:4] == other[1:4]


@final
class SubscriptionLog:
    """What calls did to the subscribers of one dispatcher. `entries` are the session's, until no savepoint is open."""

    __slots__ = ("_dispatcher", "entries")

    def __init__(self, dispatcher: Dispatcher, entries: list[SubscriptionChange]) -> None:
        self._dispatcher = dispatcher
        self.entries: list[SubscriptionChange] = entries

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
            self.entries.append(SubscriptionChange(owner, event_type, handler, added, changed))
