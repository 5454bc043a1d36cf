"""The resources of a run: built on first use, closed when the run is over."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar, final, overload

from ..interrupts import RLock
from ..waiting import blocking_here, current_waiting, drive
from .binding import name_of
from .lifetime import Declared, Lifetime, Owned, ResourceRoot, end
from .resolution import MISSING, get_awaiting, get_blocking

# The resources of one tool call.


T = TypeVar("T")
D = TypeVar("D")

_NOTHING: dict[Any, Any] = {}
"""What a scope finds once it is over; never written to."""


@final
class ToolScope:
    """A resolver whose TOOL_CALL resources are its own; made by `ResourceContext.tool_scope()`.

    SINGLETONs are the context's and stay. When the scope ends, what was built for it is closed, newest first;
    errors are logged and kept in `close_errors`, and never replace the error that ended the `with` block.
    Afterwards every `get` raises `ResourcesClosedError`. Used once. Safe to use from any thread.
    """

    __slots__ = ("_errors", "_life", "_own", "_root", "_shared")

    def __init__(self, root: ResourceRoot, overrides: Mapping[Any, object] | None) -> None:
        self._root = root
        self._shared = root.ready
        self._own: dict[Any, Any] = dict(overrides) if overrides else {}
        self._life: Lifetime | None = None

    @overload
    def get(self, resource_type: type[T], /) -> T: ...
    @overload
    def get(self, resource_type: type[T], /, default: D) -> T | D: ...
    def get(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """The override, or the resource, built on first use; see `Resolver.get`."""
        found = self._own.get(resource_type, MISSING)
        if found is not MISSING:
            return found
        found = self._shared.get(resource_type, MISSING)
        return found if found is not MISSING else get_blocking(self._lifetime(), resource_type, default)

    @overload
    async def aget(self, resource_type: type[T], /) -> T: ...
    @overload
    async def aget(self, resource_type: type[T], /, default: D) -> T | D: ...
    async def aget(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """Like `get`, for async code."""
        found = self._own.get(resource_type, MISSING)
        if found is not MISSING:
            return found
        found = self._shared.get(resource_type, MISSING)
        return found if found is not MISSING else await get_awaiting(self._lifetime(), resource_type, default)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._own or resource_type in self._root.bindings

    def snapshotables(self) -> tuple[Any, ...]:
        """What is alive and can be restored: the context's and this scope's own. Overrides are not among them."""
        life = self._life
        if life is None:
            return self._root.snapshotables
        with self._root.lock:
            return (*self._root.snapshotables, *(item.value for item in life.owned if item.snapshotable))

    @property
    def close_errors(self) -> tuple[BaseException, ...]:
        """What went wrong when the scope ended; empty when nothing did."""
        return getattr(self, "_errors", ())

    def close(self) -> None:
        """End the scope, as leaving its `with` block does; closing twice does nothing."""
        owned = self._seal()
        if owned:
            self._errors = drive(end(self._root, owned, blocking_here()))

    async def aclose(self) -> None:
        """Like `close`, preferring each resource's `aclose()`."""
        owned = self._seal()
        if owned:
            self._errors = await end(self._root, owned, current_waiting())

    def _lifetime(self) -> Lifetime:
        """Where this scope's own resources are kept; made only when something may be built."""
        with self._root.lock:
            life = self._life
            if life is None:
                life = self._life = Lifetime(self._root, self._own)
                # The end of a scope takes no lock, for it comes with every call: it marks the scope over, then
                # looks for a life. Here it is the other way round, so one of the two sees the other.
                if self._own is _NOTHING:
                    life.closed = True
            return life

    def _seal(self) -> Sequence[Owned]:
        self._own = self._shared = _NOTHING
        if self._life is None:  # a thread that is making one sees what was just set, see above
            return ()
        with self._root.lock:
            life = self._life
            return () if life.closed else life.seal()

    def __enter__(self) -> Self:
        if self._own is _NOTHING:
            self._lifetime().check_open()
        for key in self._root.eager_tools:
            try:
                self.get(key)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._own = self._shared = _NOTHING
        if self._life is not None:
            self.close()

    async def __aenter__(self) -> Self:
        if self._own is _NOTHING:
            self._lifetime().check_open()
        for key in self._root.eager_tools:
            try:
                await self.aget(key)
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._own = self._shared = _NOTHING
        if self._life is not None:
            await self.aclose()


@final
class ResourceContext:
    """Live resources; made by `ResourceRegistry.open()`.

    It opens when it is entered or first used. `with` blocks nest; the outermost one closes it on leaving: what was
    built is closed, newest first, and instances handed in are left alone. Entering it again opens it anew, with
    fresh singletons. Used while closed it raises `ResourcesClosedError`.

    A resource that fails to close is logged, the others are closed all the same, and the errors are kept in
    `close_errors`; they never replace the error that ended the block. Safe to use from any thread.
    """

    __slots__ = ("_declared", "_depth", "_errors", "_lock", "_ready", "_used", "root")

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._lock = RLock()
        self._depth = 0
        self._used = False
        self._errors: tuple[BaseException, ...] = ()
        # A closed stand-in until it is opened, so that every method finds a root.
        self.root: ResourceRoot = ResourceRoot(declared, 0, self._lock)
        self.root.seal()
        self._ready = self.root.ready

    @overload
    def get(self, resource_type: type[T], /) -> T: ...
    @overload
    def get(self, resource_type: type[T], /, default: D) -> T | D: ...
    def get(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """The resource, built on first use.

        Raises `UnboundResourceError` when nothing is bound and there is no default, `ProviderError` when it could
        not be built (the next `get` tries again), `ResourceCycleError`, and `ResourceScopeError` for a TOOL_CALL
        resource, which lives in a `tool_scope()`.
        """
        try:
            return self._ready[resource_type]
        except KeyError:
            return get_blocking(self._opened(), resource_type, default)

    @overload
    async def aget(self, resource_type: type[T], /) -> T: ...
    @overload
    async def aget(self, resource_type: type[T], /, default: D) -> T | D: ...
    async def aget(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """Like `get`, for async code: async providers, and builds under way elsewhere, are awaited."""
        try:
            return self._ready[resource_type]
        except KeyError:
            pass
        if not self._used:
            await self.aopen()
        return await get_awaiting(self._opened(), resource_type, default)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._declared.bindings

    def __repr__(self) -> str:
        return f"ResourceContext({', '.join(map(name_of, self._declared.bindings))})"

    def tool_scope(self, *, overrides: Mapping[Any, object] | None = None) -> ToolScope:
        """A resolver for one tool call: TOOL_CALL resources are fresh in it and closed at its end.

        `overrides` win over bindings in what is asked of the scope and of the providers of its own resources, but
        not in SINGLETONs, which outlive the call. They are never closed. Use it as `with ctx.tool_scope() as r:`.
        """
        root = self.root
        return ToolScope(self._opened() if root.closed else root, overrides)

    @property
    def is_open(self) -> bool:
        """Whether resources can be had without opening it again."""
        return not self.root.closed

    @property
    def close_errors(self) -> tuple[BaseException, ...]:
        """What went wrong in closing and discarding since it was last opened; empty when nothing did."""
        return self._errors

    def snapshotables(self) -> tuple[Any, ...]:
        """What is alive and can be restored: instances handed in, then built ones, oldest first; each once."""
        return self.root.snapshotables

    @property
    def has_eager_tools(self) -> bool:
        """Whether a tool scope builds something as soon as it is entered."""
        return bool(self.root.eager_tools)

    def mark(self) -> int:
        """A point in time for `built_since` and `discard`; nothing was built between two marks that are equal."""
        return self.root.build_count

    def built_since(self, mark: int) -> tuple[object, ...]:
        """What was built for the context after the mark, oldest first; resources of tool scopes are not counted."""
        return tuple(item.value for item in self.root.built_since(mark))

    def born_since(self, mark: int) -> tuple[object, ...]:
        """The old name of `built_since`, until 1.0."""
        warnings.warn("born_since goes away in 1.0. Use built_since.", DeprecationWarning, stacklevel=2)
        return self.built_since(mark)

    def discard(self, mark: int) -> None:
        """Close what was built for the context after the mark, newest first, and forget it: `get` builds it anew."""
        root = self.root
        if root.build_count != mark:
            self._errors += drive(end(root, root.take_since(mark), blocking_here()))

    async def adiscard(self, mark: int) -> None:
        """Like `discard`, for async code."""
        root = self.root
        if root.build_count != mark:
            self._errors += await end(root, root.take_since(mark), current_waiting())

    def open(self) -> Self:
        """Open it, unless it is open, and build what is eager; when that fails it is closed again."""
        self._build_eager(self._begin(entered=0), entered=0)
        return self

    async def aopen(self) -> Self:
        """Like `open`, for async code."""
        await self._abuild_eager(self._begin(entered=0), entered=0)
        return self

    def close(self) -> None:
        """Close it now, however deeply it was entered; closing twice does nothing."""
        self._end(*self._seal(now=True))

    async def aclose(self) -> None:
        """Like `close`, preferring each resource's `aclose()`."""
        await self._aend(*self._seal(now=True))

    def __enter__(self) -> Self:
        self._build_eager(self._begin(entered=1), entered=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._end(*self._seal(left=1))

    async def __aenter__(self) -> Self:
        await self._abuild_eager(self._begin(entered=1), entered=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._aend(*self._seal(left=1))

    # Counting blocks and beginning or ending a life are one step under the lock: between the two, another thread
    # could enter a context that is about to close.

    def _begin(self, *, entered: int) -> ResourceRoot | None:
        """Count one more block; start a new life and return it, or None when there is one."""
        with self._lock:
            self._depth += entered
            if not self.root.closed:
                return None
            self._used = True
            self._errors = ()
            self.root = ResourceRoot(self._declared, self.root.build_count, self._lock)
            self._ready = self.root.ready
            return self.root

    def _seal(self, *, left: int = 0, now: bool = False) -> tuple[ResourceRoot | None, list[Owned]]:
        """Count a block less; end the life when that was the outermost, or now, and return what is left to close."""
        with self._lock:
            self._depth -= left
            root = self.root
            if root.closed or (self._depth and not now):
                return None, []
            return root, root.seal()

    def _build_eager(self, root: ResourceRoot | None, *, entered: int) -> None:
        if root is None:
            return
        try:
            for key in root.eager:
                get_blocking(root, key, MISSING)
        except BaseException:
            self._end(*self._seal(left=entered, now=True))
            raise

    async def _abuild_eager(self, root: ResourceRoot | None, *, entered: int) -> None:
        if root is None:
            return
        try:
            for key in root.eager:
                await get_awaiting(root, key, MISSING)
        except BaseException:
            await self._aend(*self._seal(left=entered, now=True))
            raise

    def _end(self, root: ResourceRoot | None, owned: list[Owned]) -> None:
        if root is not None:
            self._errors += drive(end(root, owned, blocking_here()))

    async def _aend(self, root: ResourceRoot | None, owned: list[Owned]) -> None:
        if root is not None:
            self._errors += await end(root, owned, current_waiting())

    def _opened(self) -> ResourceRoot:
        """The open life; opens a context that was never used, and refuses one that was closed."""
        if not self._used:
            self.open()
        self.root.check_open()
        return self.root
