"""A span during which resources live: what is ready in it, what it owns, and how it ends.

`ResourceRoot` is one opening of a context, a plain `Lifetime` one tool scope. Everything is changed under the root's
lock, and no users' code ever runs while it is held.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, NamedTuple, final
from weakref import ref

from ..errors import ResourceCycleError, ResourcesClosedError
from ..event_loop import EventLoop, KeptLoop, home_loop, thread_loop
from ..interrupts import RLock
from ..lazy_modules import asyncio
from ..waiting import Waiting
from .binding import Binding, InstanceBinding, Scope, name_of

# One construction under way: who asked for it, what it asks for itself, who waits for it.


@final
class Build:
    """From the moment a provider is about to run until its result is shared or failed.

    `asks` holds the builds that this one needs and that are not done yet, by whichever thread or task they are
    built; `received` what it was given; `methods` those of the result that matter to us; `loop` the event loop it
    runs on, if any. What others look at is read and changed under the context's lock.
    """

    __slots__ = ("_done", "asks", "binding", "finished", "for_singleton", "loop", "methods", "parent", "received")

    def __init__(self, binding: Binding[Any], parent: Build | None, loop: asyncio.AbstractEventLoop | None) -> None:
        self.binding: Binding[Any] = binding
        self.parent = parent
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.asks: list[Build] = []
        self.received: list[object] = []
        self.methods: frozenset[str] = frozenset()
        self.finished: bool = False
        self.for_singleton: bool = parent is not None and (
            parent.for_singleton or parent.binding.scope is Scope.SINGLETON
        )
        self._done: Future[None] | None = None
        if parent is not None:
            parent.asks.append(self)

    def done(self) -> Future[None]:
        """What to wait for; made only when a thread or task waits."""
        if self._done is None:
            self._done = Future()
            # A cancelled waiter must not cancel what the others wait for.
            self._done.set_running_or_notify_cancel()
        return self._done

    def finish(self) -> Future[None] | None:
        """Mark it over, successful or not; the future to resolve is returned, for after the lock is released."""
        self.finished = True
        if self.parent is not None:
            self.parent.asks.remove(self)
            self.received.clear()
            self.parent = None  # a provider may keep its resolver; it must not keep the whole chain
        return self._done

    def chain(self) -> list[Build]:
        """This build and those that asked for it, outermost first."""
        found: list[Build] = []
        build: Build | None = self
        while build is not None:
            found.append(build)
            build = build.parent
        return found[::-1]

    def path(self) -> str:
        """The chain as text: `A -> B`."""
        return path_text(self.chain())


def path_text(builds: list[Build]) -> str:
    """The builds' type names with arrows between."""
    return " -> ".join(name_of(build.binding.resource_type) for build in builds)


_current: ContextVar[Build | None] = ContextVar("weakincentives_resources_build", default=None)


def current_build() -> Build | None:
    """The build whose provider runs in this thread or task, so that a `get` on the context itself is seen as its."""
    build = _current.get()
    return None if build is None or build.finished else build


def set_current(build: Build | None) -> Build | None:
    """Make it the current one; returns the one before."""
    before = _current.get()
    _current.set(build)
    return before


def refuse_repeat(asker: Build, binding: Binding[Any]) -> None:
    """Raise when the binding is being built further up in the same chain."""
    chain = asker.chain()
    for index, build in enumerate(chain):
        if build.binding is binding:
            raise _cycle([*chain[index:], build])


def refuse_deadlock(asker: Build | None, other: Build) -> None:
    """Raise when `other`, built elsewhere, needs something of the asker's own chain: both would wait for ever."""
    if asker is None:
        return
    chain = asker.chain()
    for path in _paths(other):
        if path[-1] in chain:
            raise _cycle([*chain[chain.index(path[-1]) :], *path])


def runs_on(build: Build, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the build, or one it needs, can only go on when that loop does."""
    return any(path[-1].loop is loop for path in _paths(build))


def _paths(start: Build) -> Iterator[list[Build]]:
    seen: set[int] = set()
    stack = [[start]]
    while stack:
        path = stack.pop()
        if id(path[-1]) in seen:
            continue
        seen.add(id(path[-1]))
        yield path
        stack.extend([*path, needed] for needed in path[-1].asks)


def _cycle(builds: list[Build]) -> ResourceCycleError:
    return ResourceCycleError(
        f"Providers need one another: {path_text(builds)}. "
        "Break the circle: let one of them take what it needs later, or split off what both share.",
        cycle=[build.binding.resource_type for build in builds],
    )


_log = logging.getLogger("weakincentives.resources")

_CLOSERS = frozenset({"close", "aclose"})
_SNAPSHOT_METHODS = frozenset({"snapshot", "restore"})
_LIFECYCLE = _CLOSERS | _SNAPSHOT_METHODS | {"post_construct"}


def own_methods(value: object) -> frozenset[str]:
    """Which of the lifecycle and snapshot methods the object has, on its class or among its own attributes.

    `__getattr__` is not asked: a remote proxy would answer to every name, and "close" is not ours to send.
    """
    if isinstance(value, type):
        return frozenset()
    kind = type(value)
    own = getattr(value, "__dict__", ())
    found = [name for name in _LIFECYCLE if hasattr(kind, name) or name in own]
    return frozenset([name for name in found if callable(getattr(value, name, None))]) if found else frozenset()


@final
@dataclass(slots=True, eq=False)
class Owned:
    """One resource that was built here, the `serial`th of all. An `alias` belongs to another binding."""

    value: object
    resource_type: type[Any]
    serial: int
    loop: asyncio.AbstractEventLoop | None
    closing: bool
    snapshotable: bool
    alias: bool = False


class Lifetime:
    """What one tool scope has built. `ready` is found by type; `owned` is in the order of construction."""

    __slots__ = ("building", "closed", "owned", "ready", "root")

    def __init__(self, root: ResourceRoot, ready: dict[Any, Any]) -> None:
        self.root: ResourceRoot = root
        self.ready: dict[Any, Any] = ready
        self.owned: list[Owned] = []
        self.building: dict[Any, Build] = {}
        self.closed: bool = False

    @property
    def is_root(self) -> bool:
        """Whether this is a context's own lifetime and not a tool scope's."""
        return self.root is self

    def check_open(self) -> None:
        """Raise when it is over."""
        if self.root.closed:
            raise ResourcesClosedError(
                "The resources are closed. Use them inside `with registry.open() as ctx:`, or enter the context again."
            )
        if self.closed:
            raise ResourcesClosedError(
                "This tool scope is over, and its resources are closed. Open a new one with `ctx.tool_scope()`."
            )

    def find(self, wanted: Any, missing: Any) -> Any:
        """What is ready here or in the context around."""
        found = self.ready.get(wanted, missing)
        return found if found is not missing or self.is_root else self.root.ready.get(wanted, missing)

    def admit(self, value: object, build: Build, *, alias: bool) -> None:
        """Share a built resource, and own it unless another binding does."""
        self.check_open()
        root, binding = self.root, build.binding
        prototype = binding.scope is Scope.PROTOTYPE
        if not prototype:
            self.ready[binding.resource_type] = value
        closing = not alias and not _CLOSERS.isdisjoint(build.methods)
        # A prototype that needs no closing is its user's alone, or a million of them would be kept alive. Inside a
        # singleton it lives on, so its state has to be restored with everything else.
        lasting = not alias and (not prototype or build.for_singleton) and build.methods >= _SNAPSHOT_METHODS
        if closing or lasting or not prototype:
            root.build_count += self.is_root
            self.owned.append(
                Owned(value, binding.resource_type, root.build_count, build.loop, closing, lasting, alias)
            )
            if not alias:
                root.ids.add(id(value))
            if lasting and self.is_root:
                root.snapshotables += (value,)

    def seal(self) -> list[Owned]:
        """End it: nothing is found or admitted any more. Returns what is left to close."""
        owned, self.owned = self.owned, []
        self.closed = True
        self.ready.clear()
        self.forget(owned)
        return owned

    def forget(self, owned: Sequence[Owned]) -> None:
        """Make these strangers again, so that the next `get` builds anew."""
        for item in owned:
            if self.ready.get(item.resource_type) is item.value:
                del self.ready[item.resource_type]
            if not item.alias:
                self.root.ids.discard(id(item.value))


class Declared(NamedTuple):
    """What a set of bindings says before anything is built: the same for every opening of it.

    Attributes:
        given: the instances that were handed in, by type.
        snapshotables: those of them whose state can be restored, each once.
        eager: the SINGLETONs that are built when a context is entered.
        eager_tools: the TOOL_CALL resources that are built when a tool scope is.
    """

    bindings: Mapping[Any, Binding[Any]]
    given: Mapping[Any, object]
    snapshotables: tuple[Any, ...]
    eager: tuple[Any, ...]
    eager_tools: tuple[Any, ...]

    @classmethod
    def by(cls, bindings: Mapping[Any, Binding[Any]]) -> Declared:
        """What these bindings say."""
        given = {
            key: item.provider.value for key, item in bindings.items() if isinstance(item.provider, InstanceBinding)
        }
        eager = [(key, item.scope) for key, item in bindings.items() if item.eager]
        return cls(
            bindings,
            given,
            _snapshotables(given.values()),
            tuple(key for key, scope in eager if scope is Scope.SINGLETON),
            tuple(key for key, scope in eager if scope is Scope.TOOL_CALL),
        )


@final
class ResourceRoot(Lifetime):
    """One opening of a context."""

    __slots__ = (
        "__weakref__",
        "_kept",
        "_opener",
        "bindings",
        "build_count",
        "eager",
        "eager_tools",
        "ending",
        "given",
        "ids",
        "lock",
        "snapshotables",
    )

    def __init__(self, declared: Declared, build_count: int, lock: RLock) -> None:
        super().__init__(self, dict(declared.given))
        self.bindings: Mapping[Any, Binding[Any]] = declared.bindings
        self.build_count: int = build_count
        self.ending: int = 0
        self.lock: RLock = lock
        # Strongly only while in use: a root refers to itself, and would keep the loop of a thread that has ended.
        self._opener = ref(thread_loop())
        self._kept: KeptLoop | None = None
        self.ids: set[int] = set(map(id, declared.given.values()))
        self.given: tuple[Any, ...] = declared.snapshotables
        self.snapshotables: tuple[Any, ...] = self.given
        self.eager: tuple[Any, ...] = declared.eager
        self.eager_tools: tuple[Any, ...] = declared.eager_tools

    def seal(self) -> list[Owned]:
        """End it; the instances handed in stay alive, being their owners'."""
        self.snapshotables = self.given
        return super().seal()

    def event_loop(self) -> EventLoop:
        """Where synchronous code runs what is async: the loop that awaits this thread, or the opener's own."""
        home = home_loop()
        if home is not None:
            return home
        with self.lock:
            if self._kept is None:
                self._kept = self._opener() or thread_loop()
                self._kept.enter(self)
            return self._kept

    def leave_loop(self) -> None:
        """Be done with the kept loop: what still runs there ends with its last user."""
        with self.lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.leave(self)

    def built_since(self, mark: int) -> list[Owned]:
        """What was built after the mark, oldest first."""
        with self.lock:
            count = len(self.owned)
            while count and self.owned[count - 1].serial > mark:
                count -= 1
            return self.owned[count:]

    def take_since(self, mark: int) -> list[Owned]:
        """Forget what was built after the mark; returns it for closing."""
        with self.lock:
            taken = self.built_since(mark)
            del self.owned[len(self.owned) - len(taken) :]
            self.forget(taken)
            self.snapshotables = (*self.given, *(item.value for item in self.owned if item.snapshotable))
            return taken


def _snapshotables(values: Iterable[object]) -> tuple[Any, ...]:
    """Those whose state can be restored, each once."""
    return tuple({id(value): value for value in values if own_methods(value) >= _SNAPSHOT_METHODS}.values())


async def end(root: ResourceRoot, owned: Sequence[Owned], waiting: Waiting) -> tuple[BaseException, ...]:
    """Close what is owned no more; the last one to do so after a context's end leaves its event loop too."""
    with root.lock:
        root.ending += 1
    try:
        return await _close_all(root, owned, waiting)
    finally:
        with root.lock:
            root.ending -= 1
            last = root.closed and not root.ending
        if last:
            root.leave_loop()


async def _close_all(root: ResourceRoot, owned: Sequence[Owned], waiting: Waiting) -> tuple[BaseException, ...]:
    """Close newest first, every one, even if others fail; errors are logged and returned.

    An interrupt or cancellation does not stop the round either; it is raised when the round is over.
    """
    errors: list[BaseException] = []
    interrupt: BaseException | None = None
    for item in reversed(owned):
        if not item.closing:
            continue
        try:
            await _close_one(root, item, waiting)
        except Exception as error:  # noqa: BLE001 - a resource's own code
            _log.error("Closing the resource %s failed.", name_of(item.resource_type), exc_info=error)
            errors.append(error)
        except BaseException as error:  # noqa: BLE001 - raised below
            interrupt = interrupt or error
    if interrupt is not None:
        raise interrupt
    return tuple(errors)


async def _close_one(root: ResourceRoot, item: Owned, waiting: Waiting) -> None:
    """Call its `close()` or `aclose()`, whichever suits the way of waiting, and wait for it."""
    value = item.value
    methods = own_methods(value)
    for name in ("aclose", "close") if waiting.in_loop else ("close", "aclose"):
        if name in methods:
            result = getattr(value, name)()
            if isawaitable(result):
                await waiting.finish_on(item.loop, result, root.event_loop, f"{type(value).__name__}.{name}()")
            return
