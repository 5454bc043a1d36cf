"""The resources of a run: built on first use, closed when the run is over."""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any, Self, TypeVar, final, overload

from .binding import Binding
from .forms import name_of
from .lifetime import Owned, Root, end
from .resolution import MISSING, get_awaiting, get_blocking
from .tool_scope import ToolScope
from .waiting import Blocking, block_on, way_of_waiting

T = TypeVar("T")
D = TypeVar("D")


@final
class ResourceContext:
    """Live resources; made by `ResourceRegistry.open()`.

    It opens when it is entered or first used. `with` blocks nest; the outermost one closes it on leaving: what was
    built is closed, newest first, and instances handed in are left alone. Entering it again opens it anew, with
    fresh singletons. Used while closed it raises `ResourcesClosedError`.

    A resource that fails to close is logged, the others are closed all the same, and the errors are kept in
    `close_errors`; they never replace the error that ended the block. Safe to use from any thread.
    """

    __slots__ = ("_bindings", "_depth", "_errors", "_lock", "_ready", "_used", "root")

    def __init__(self, bindings: Mapping[Any, Binding[Any]]) -> None:
        self._bindings = bindings
        self._lock = RLock()
        self._depth = 0
        self._used = False
        self._errors: tuple[BaseException, ...] = ()
        # A closed stand-in until it is opened, so that every method finds a root.
        self.root = Root(bindings, 0, self._lock)
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
        return resource_type in self._bindings

    def __repr__(self) -> str:
        return f"ResourceContext({', '.join(map(name_of, self._bindings))})"

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
        """What is alive and can be taken back: instances handed in, and built ones in order of birth, each once."""
        return self.root.snapshotables

    @property
    def has_eager_tools(self) -> bool:
        """Whether a tool scope builds something as soon as it is entered."""
        return bool(self.root.eager_tools)

    def mark(self) -> int:
        """A point in time for `born_since` and `discard`; nothing was built between two marks that are equal."""
        return self.root.births

    def born_since(self, mark: int) -> tuple[object, ...]:
        """What was built for the context after the mark, oldest first; resources of tool scopes are not counted."""
        return tuple(item.value for item in self.root.born_since(mark))

    def discard(self, mark: int) -> None:
        """Close what was built for the context after the mark, newest first, and forget it: `get` builds it anew."""
        root = self.root
        if root.births != mark:
            self._errors += block_on(end(root, root.take_since(mark), Blocking(root.event_loop)))

    async def adiscard(self, mark: int) -> None:
        """Like `discard`, for async code."""
        root = self.root
        if root.births != mark:
            self._errors += await end(root, root.take_since(mark), way_of_waiting(root.event_loop))

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

    def _begin(self, *, entered: int) -> Root | None:
        """Count one more block; start a new life and return it, or None when there is one."""
        with self._lock:
            self._depth += entered
            if not self.root.closed:
                return None
            self._used = True
            self._errors = ()
            self.root = Root(self._bindings, self.root.births, self._lock)
            self._ready = self.root.ready
            return self.root

    def _seal(self, *, left: int = 0, now: bool = False) -> tuple[Root | None, list[Owned]]:
        """Count a block less; end the life when that was the outermost, or now, and return what is left to close."""
        with self._lock:
            self._depth -= left
            root = self.root
            if root.closed or (self._depth and not now):
                return None, []
            return root, root.seal()

    def _build_eager(self, root: Root | None, *, entered: int) -> None:
        if root is None:
            return
        try:
            for key in root.eager:
                get_blocking(root, key, MISSING)
        except BaseException:
            self._end(*self._seal(left=entered, now=True))
            raise

    async def _abuild_eager(self, root: Root | None, *, entered: int) -> None:
        if root is None:
            return
        try:
            for key in root.eager:
                await get_awaiting(root, key, MISSING)
        except BaseException:
            await self._aend(*self._seal(left=entered, now=True))
            raise

    def _end(self, root: Root | None, owned: list[Owned]) -> None:
        if root is not None:
            self._errors += block_on(end(root, owned, Blocking(root.event_loop)))

    async def _aend(self, root: Root | None, owned: list[Owned]) -> None:
        if root is not None:
            self._errors += await end(root, owned, way_of_waiting(root.event_loop))

    def _opened(self) -> Root:
        """The open life; opens a context that was never used, and refuses one that was closed."""
        if not self._used:
            self.open()
        self.root.check_open()
        return self.root


__all__ = ["ResourceContext"]
