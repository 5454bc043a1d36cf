"""One construction under way: who asked for it, what it asks for itself, who waits for it."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, final

from ..errors import ResourceCycleError
from .binding import Binding, Scope
from .forms import name_of


@final
class Build:
    """From the moment a provider is about to run until its result is shared or failed.

    `asks` holds the builds that this one needs and that are not done yet, by whichever thread or task they are
    built; `received` what it was given; `methods` those of the result that matter to us; `loop` the event loop it
    runs on, if any. What others look at is read and changed under the context's lock.
    """

    __slots__ = ("_done", "asks", "binding", "finished", "for_singleton", "loop", "methods", "parent", "received")

    def __init__(self, binding: Binding[Any], parent: Build | None, loop: AbstractEventLoop | None) -> None:
        self.binding = binding
        self.parent = parent
        self.loop = loop
        self.asks: list[Build] = []
        self.received: list[object] = []
        self.methods: frozenset[str] = frozenset()
        self.finished = False
        self.for_singleton = parent is not None and (parent.for_singleton or parent.binding.scope is Scope.SINGLETON)
        self._done: Future[None] | None = None
        if parent is not None:
            parent.asks.append(self)

    def done(self) -> Future[None]:
        """What to wait for; made only when somebody does."""
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


def runs_on(build: Build, loop: AbstractEventLoop) -> bool:
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


__all__ = ["Build", "current_build", "refuse_deadlock", "refuse_repeat", "runs_on", "set_current"]
