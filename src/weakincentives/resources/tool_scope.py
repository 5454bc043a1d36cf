"""The resources of one tool call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar, final, overload

from .lifetime import Lifetime, Owned, Root, end
from .resolution import MISSING, get_awaiting, get_blocking
from .waiting import Blocking, block_on, way_of_waiting

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

    def __init__(self, root: Root, overrides: Mapping[Any, object] | None) -> None:
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
        """What is alive and can be taken back: the context's and this scope's own. Overrides are not among them."""
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
            self._errors = block_on(end(self._root, owned, Blocking(self._root.event_loop)))

    async def aclose(self) -> None:
        """Like `close`, preferring each resource's `aclose()`."""
        owned = self._seal()
        if owned:
            self._errors = await end(self._root, owned, way_of_waiting(self._root.event_loop))

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
        if self._life is None:  # whoever is making one sees what was just set, see above
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


__all__ = ["ToolScope"]
