"""The resources of a context that was made by hand, as a test makes one."""

from __future__ import annotations

from threading import Lock
from typing import Any, final

from ..resources import ResourceContext, ResourceRegistry, ToolScope

_MISSING: Any = object()


@final
class ContextResources:
    """A registry, opened when something is first asked for, as one call would see it.

    Nobody knows when the context is no longer needed: what was built stays open until `close`.
    """

    __slots__ = ("_lock", "_registry", "_scope", "context")

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._scope: ToolScope | None = None
        self.context: ResourceContext = registry.open()

    def get(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; see `ResourceContext.get`."""
        scope = self._opened()
        return scope.get(resource_type) if default is _MISSING else scope.get(resource_type, default)

    async def aget(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        scope = self._opened()
        if default is _MISSING:
            return await scope.aget(resource_type)
        return await scope.aget(resource_type, default)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._registry

    def _opened(self) -> ToolScope:
        with self._lock:
            if self._scope is None:
                self.context.__enter__()  # an evaluation on the same resources enters and leaves them once more
                self._scope = self.context.tool_scope()
            return self._scope

    def close(self) -> None:
        """Close what was built, newest first; it opens anew when something is asked for again."""
        with self._lock:
            scope, self._scope = self._scope, None
        if scope is not None:
            scope.close()
            self.context.__exit__(None, None, None)

    def __repr__(self) -> str:
        return repr(self._registry)


def usable(registry: ResourceRegistry) -> ResourceRegistry | ContextResources:
    """What a handler can get everything from: the registry itself when nothing has to be built."""
    bindings = (registry.binding(key) for key in registry)
    return registry if all(binding is None or binding.given for binding in bindings) else ContextResources(registry)


__all__ = ["ContextResources", "usable"]
