"""The resources of one call, as its handler sees them."""

from __future__ import annotations

from functools import cache
from typing import Any, final

from ..fence import Guard
from ..filesystem import Filesystem, GuardedFilesystem
from ..resources import ResourceContext, ToolScope

_MISSING: Any = object()


@final
class CallResources:
    """A tool scope whose filesystems are fenced: what a handler gets here writes nothing once its call is over."""

    __slots__ = ("_guard", "_guarded", "_scope", "_shared")

    def __init__(self, scope: ToolScope, guard: Guard, shared: ResourceContext) -> None:
        self._shared = shared
        self._scope = scope
        self._guard = guard
        self._guarded: dict[Any, Any] | None = None

    def get(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; see `ResourceContext.get`."""
        found = self._scope.get(resource_type) if default is _MISSING else self._scope.get(resource_type, default)
        return self._fenced(resource_type, found)

    async def aget(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        if default is _MISSING:
            return self._fenced(resource_type, await self._scope.aget(resource_type))
        return self._fenced(resource_type, await self._scope.aget(resource_type, default))

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._scope

    def __repr__(self) -> str:
        return repr(self._shared)

    def _fenced(self, resource_type: Any, found: Any) -> Any:
        if not is_filesystem(found.__class__):
            return found
        if self._guarded is None:
            self._guarded = {}
        guarded = self._guarded.get(resource_type)
        if guarded is None:
            guarded = self._guarded[resource_type] = GuardedFilesystem(found, self._guard)
        return guarded


def unfenced(resources: CallResources) -> tuple[ResourceContext, Guard]:
    """What outlives the call, and the call's guard: for a transaction inside it, whose undo must pass the guard."""
    return resources._shared, resources._guard  # pyright: ignore[reportPrivateUsage] # a friend of the class


_OPERATIONS = tuple(name for name in vars(Filesystem) if not name.startswith("_"))


@cache
def is_filesystem(kind: type[Any]) -> bool:
    """Whether objects of a class are filesystems, by what they can do and not by their name."""
    return all(hasattr(kind, name) for name in _OPERATIONS)


__all__ = ["CallResources", "is_filesystem", "unfenced"]
