"""The session: state by type, changed by events, that can be restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast, final
from weakref import WeakValueDictionary

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import SessionError
from ..fence import Guard
from .events import Dispatcher, DispatchResult, EventHandler, InProcessDispatcher, SubscriptionLog
from .reducers import MethodReducer, initial_state, reducer_methods
from .saved import OnOpaque, dump_session, load_session
from .slices import Slice
from .snapshots import SliceChange, Snapshot
from .state import SessionState
from .vector import Vector

# Guarded handles: what makes every write through them happen inside a guard.


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


T = TypeVar("T")

_numbers = count()
_NO_TAGS: Mapping[str, str] = MappingProxyType({})


@final
class Session:
    """State by type, changed by events, that can be restored. Safe to use from any thread.

    A session lives as long as it is referenced; there is nothing to close. A parent does not keep its children
    alive, a child keeps its parent. `bus` gets the events of `dispatch`; it stays its owner's.

    >>> session = Session()
    >>> before = session.snapshot()
    >>> session.dispatch("hello").ok
    True
    >>> session[str].latest()
    'hello'
    >>> session.restore(before)
    >>> session[str].count()
    0
    """

    # A handle: light, because each tool call gets one. All that is shared is in the core.
    __slots__ = ("__weakref__", "_children", "_core", "_dispatcher", "_guard", "_inside", "_owner", "_parent")

    _core: SessionState
    _guard: Guard | None
    _inside: tuple[Session, frozenset[type[Any]]] | None  # of a fork made by `fork_inside`
    _owner: Session | None
    _dispatcher: Dispatcher | None

    def __init__(
        self,
        bus: Dispatcher | None = None,
        *,
        session_id: str | None = None,
        parent: Session | None = None,
        tags: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if clock is None:
            clock = SYSTEM_CLOCK if parent is None else parent.clock
        kept = _NO_TAGS if not tags else MappingProxyType(dict(tags))
        dispatcher = InProcessDispatcher() if bus is None else bus
        self._core = SessionState(dispatcher, clock, kept, session_id)
        self._guard = None
        self._owner = None
        self._dispatcher = dispatcher
        self._children: WeakValueDictionary[int, Session] = WeakValueDictionary()
        self._parent = parent
        self._inside = None
        if parent is not None:
            parent._root._children[next(_numbers)] = self

    # What it is.

    @property
    def session_id(self) -> str:
        """The same for every handle of the session, and after it was saved and loaded."""
        return self._core.session_id

    @property
    def tags(self) -> Mapping[str, str]:
        """What its creator noted about it; read-only."""
        return self._core.tags

    @property
    def clock(self) -> Clock:
        """The clock that stamps this session's events."""
        return self._core.clock

    @property
    def parent(self) -> Session | None:
        """The session this one was made under. A guarded handle gives a handle with the same guard."""
        parent = self._root._parent
        return parent if parent is None or self._guard is None else parent.guarded(self._guard)

    @property
    def children(self) -> tuple[Session, ...]:
        """The sessions made under this one that are still referenced, oldest first."""
        children = tuple(self._root._children.values())
        guard = self._guard
        return children if guard is None else tuple(child.guarded(guard) for child in children)

    @property
    def dispatcher(self) -> Dispatcher:
        """Where subscribers are. Dispatching there tells them and changes no slice."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            assert self._guard is not None
            core = self._core
            subscriptions = SubscriptionLog(core.dispatcher, core.subscribed)
            dispatcher = self._dispatcher = GuardedDispatcher(core.dispatcher, subscriptions, self._guard)
        return dispatcher

    @property
    def event_bus(self) -> Dispatcher:
        """The same object as `dispatcher`."""
        return self.dispatcher

    # Reading and changing.

    def __getitem__(self, slice_type: type[T], /) -> Slice[T]:
        """The slice of a type. Raises TypeError for anything but a class, such as `list[int]`."""
        if not isinstance(slice_type, type):
            raise TypeError(f"A session has one slice for each class; {slice_type!r} is not a class.")
        return Slice(self._core, self._guard, slice_type)

    def dispatch(self, event: object, /) -> DispatchResult:
        """Record the event, then tell the subscribers; the result says which of them ran and which failed.

        Recording runs the reducers registered for the event's exact class; without any it is appended to its own
        slice. A LOG event is always appended to its own slice, reducers or not. When a reducer raises, nothing is
        applied, no subscriber is called and `ReducerError` is raised. A subscriber that fails undoes nothing.
        """
        if self._guard is None:
            self._core.record(event)
        else:
            with self._guard:
                self._core.record(event)
        return self._core.dispatcher.dispatch(event)

    def record(self, event: object, /) -> None:
        """The first half of `dispatch`: change the slices, call no subscriber. Raises `ReducerError` likewise."""
        if self._guard is None:
            self._core.record(event)
        else:
            with self._guard:
                self._core.record(event)

    def note(self, key: object, value: object, /) -> None:
        """Remember a fact beside the slices, under a key of your own; None forgets it.

        It is restored and forked with the STATE slices, and costs a tenth of one: it is not among the changes, is not
        saved with the session, and no subscriber is called.
        """
        if self._guard is None:
            self._core.note(key, value)
        else:
            with self._guard:
                self._core.note(key, value)

    def noted(self, key: object, /) -> Any:
        """What was noted under the key, or None."""
        return self._core.notes.get(key)

    def recorder(self) -> Callable[[object], None]:
        """`record`, to be kept and called again and again: one step less when this handle has no guard."""
        return self._core.record if self._guard is None else self.record

    def dispatch_value(self, value: object, /) -> None:
        """Run the reducers registered for the value's class, if there are any; subscribers are not called.

        Unlike `record` it never appends the value to a slice of its own. Items of a list or tuple are dispatched too.
        Raises `ReducerError` when a reducer does.
        """
        core = self._core
        if not core.reducers:
            return
        values: list[object] = [value]
        if isinstance(value, list | tuple):
            values += cast("Iterable[object]", value)
        for item in values:
            if type(item) in core.reducers:
                self.record(item)

    route = dispatch_value

    def install(self, state_type: type[T], /, *, initial: T | Callable[[], T] | None = None) -> None:
        """Register the `@reducer` methods of a frozen dataclass as reducers of its slice.

        A slice that was never written to holds `initial` (a state, or a function that makes one; without it, the
        class is called with no arguments), also after a reset or a restore. Installing again changes the initial state
        and nothing else. Raises TypeError when the class cannot be installed.
        """
        methods = reducer_methods(state_type)
        content: Vector[Any] = Vector((initial_state(state_type, initial),))
        if self._guard is None:
            self._install(state_type, methods, content)
        else:
            with self._guard:
                self._install(state_type, methods, content)

    def reset(self, *, logs: bool = False) -> None:
        """Give every STATE slice its initial content: empty, or what `install` said. LOG slices and registrations stay.

        `logs=True` empties the LOG slices as well; only the session's owner may, so a guarded handle raises
        SessionError.
        """
        if self._guard is None:
            self._core.reset(logs=logs)
            return
        with self._guard:
            if logs:
                raise SessionError("Only the owner of a session may empty its LOG slices, not a tool call.")
            self._core.reset(logs=False)

    def clear_log(self, event_type: type[T], predicate: Callable[[T], object] | None = None, /) -> None:
        """Remove the items of one LOG slice, or those that satisfy `predicate`; only the session's owner may.

        What is gone is gone for good, also for limits that count calls and for conversations that are continued. What
        the predicate raises passes through, and nothing is removed. Raises SessionError for a guarded handle and for a
        STATE slice.
        """
        if self._guard is not None:
            raise SessionError("Only the owner of a session may clear its LOG slices, not a tool call.")
        self._core.clear_log(event_type, predicate)

    # Taking back.

    def snapshot(self) -> Snapshot:
        """Remember the content as it is now, in constant time. Any number may be alive; dropping one frees it."""
        core = self._core
        with core.lock:  # an undo in another thread replaces them one after another
            return Snapshot(core, core.state, core.logged, core.notes, core.initial, core.policies)

    def restore(self, snapshot: Snapshot, /) -> None:
        """Show again what every STATE slice showed; any snapshot, in any order, any number of times.

        That is so also for one that was taken in the middle of a call that was undone since. It takes constant time
        unless something was registered, or undone, since the snapshot.

        Inside a tool call it is a write of that call to every slice and note that differs, and is undone with it. LOG
        slices and registrations stay as they are, and no subscriber is called. Raises `SnapshotError` for a snapshot of
        another session or one that was released; nothing changes then.
        """
        if self._guard is None:
            self._core.restore(snapshot)
        else:
            with self._guard:
                self._core.restore(snapshot)

    def release(self, snapshot: Snapshot, /) -> None:
        """Forget a snapshot: it cannot be restored any more. Releasing twice does nothing."""
        snapshot.release()

    def changes(self, since: Snapshot, /, *, logs: bool = False) -> tuple[SliceChange, ...]:
        """The STATE slices written to since a snapshot, with content before and after; `logs` adds the LOG slices.

        These are the slices that `restore` would give other content, also because a call was undone since. Linear in
        the number of slice types, not of items. Raises `SnapshotError` as `restore` does.
        """
        core = self._core
        if (
            not logs
            and since.state is core.state
            and since.home is core
            and since.initial is core.initial
            and since.policies is core.policies
        ):
            return ()
        return core.changes(since, logs=logs)

    # Other sessions.

    def guarded(self, guard: Guard, /) -> Session:
        """Another handle on this very session, whose every write happens inside `guard`.

        The guard is entered before the session's lock and is not held while subscribers run. What it raises on
        entering, the write raises. A handle of a guarded handle has both guards.
        """
        handle: Session = object.__new__(Session)
        handle._core = self._core
        handle._guard = guard if self._guard is None else BothGuards(self._guard, guard)
        handle._owner = self._owner or self
        handle._dispatcher = None
        return handle

    def fork(
        self,
        bus: Dispatcher | None = None,
        *,
        session_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Session:
        """A child that starts with all of this session's content and registrations, in constant time.

        Neither sees what the other does afterwards. Subscribers do not come along unless `bus` is given; tags do.
        """
        return self._copy(bus, session_id, tags, parent=self)

    def clone(
        self,
        bus: Dispatcher | None = None,
        *,
        session_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Session:
        """An independent copy beside this session, under the same parent; otherwise like `fork`."""
        return self._copy(bus, session_id, tags, parent=self.parent)

    # Saving.

    def to_json(self, *, on_opaque: OnOpaque = "error") -> str:
        """Everything in the slices, STATE and LOG, with the id and the tags, as text that `from_json` loads.

        Registrations and subscribers are code and are not saved. Raises `SessionFormatError` naming a type that cannot
        be saved. With `on_opaque="mark"` such a value is saved as the name of its class and loaded as an `OpaqueValue`;
        an item whose declared fields have no room for one is left out, and a warning is logged.
        """
        core = self._core
        with core.lock:
            state, logs = core.state, core.logs
        return dump_session(self.session_id, self.tags, state, logs, on_opaque)

    @classmethod
    def from_json(
        cls,
        text: str | bytes,
        *,
        types: Iterable[type[Any]] = (),
        accept_changed: Iterable[type[Any]] = (),
        bus: Dispatcher | None = None,
        parent: Session | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """The session that `to_json` saved. `types` are the classes its slices may hold: nothing is imported by name.

        WINK's own events, and what its tools and sections keep, need not be named. Raises `SessionFormatError` for
        damaged text, a type that is not known, and a type whose fields are not what they were, naming type and field.
        For the types in `accept_changed` it is enough that the saved data fits.
        """
        saved = load_session(text, types, accept_changed)
        session = cls(bus, session_id=saved.session_id, parent=parent, tags=saved.tags, clock=clock)
        for slice_type, policy, items in saved.slices:
            session._core.declare(slice_type, policy)
            session._core.replace(slice_type, items)
        return session

    def __repr__(self) -> str:
        core = self._core
        guarded = "" if self._guard is None else ", guarded"
        return f"<Session {self.session_id}: {len(core.state) + len(core.logs)} slices{guarded}>"

    # Inside.

    @property
    def _root(self) -> Session:
        return self._owner or self

    def _install(self, state_type: type[Any], methods: Iterable[tuple[type[Any], str]], content: Vector[Any]) -> None:
        core = self._core
        with core.lock:
            core.set_initial(state_type, content)
            for event_type, name in methods:
                core.register(state_type, event_type, MethodReducer(state_type, name, content), None)

    def _copy(
        self,
        bus: Dispatcher | None,
        session_id: str | None,
        tags: Mapping[str, str] | None,
        *,
        parent: Session | None,
    ) -> Session:
        tags = self.tags if tags is None else tags
        copy = Session(bus, session_id=session_id, parent=parent, tags=tags, clock=self.clock)
        copy._core.adopt(self._core)
        return copy


def root_of(session: Session) -> Session:
    """The handle the session was made with: the same object for every guarded handle of it."""
    return session._owner or session  # pyright: ignore[reportPrivateUsage] # a friend of the class


def guard_of(session: Session) -> Guard | None:
    """What the writes of a handle happen in, or None for the owner's handle."""
    return session._guard  # pyright: ignore[reportPrivateUsage] # a friend of the class


def use_clock(session: Session, clock: Clock) -> None:
    """Have another clock in the session, for all its handles."""
    session._core.clock = clock  # pyright: ignore[reportPrivateUsage] # a friend of the class
