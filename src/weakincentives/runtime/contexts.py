"""What handlers and policies hold: handles that end with the call, or never write."""

from __future__ import annotations

from typing import Any, TypeVar, final

from ..fence import Guard, ReadOnlyGuard
from ..filesystem import Filesystem, GuardedFilesystem, InMemoryFilesystem
from ..prompt.tool_context import ToolContext
from ..resources import ToolScope
from .call import Request
from .run import Run

T = TypeVar("T")

_MISSING: Any = object()


@final
class CallResources:
    """A tool scope whose filesystems are fenced: what a handler gets here writes nothing once its call is over."""

    __slots__ = ("_guard", "_guarded", "_scope")

    def __init__(self, scope: ToolScope, guard: Guard) -> None:
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

    def _fenced(self, resource_type: Any, found: Any) -> Any:
        if found is None or not (
            resource_type is Filesystem or isinstance(found, InMemoryFilesystem)
        ):
            return found
        if self._guarded is None:
            self._guarded = {}
        guarded = self._guarded.get(resource_type)
        if guarded is None:
            guarded = self._guarded[resource_type] = GuardedFilesystem(found, self._guard)
        return guarded


def writing_context(request: Request, scope: ToolScope, guard: Guard, run: Run) -> ToolContext:
    """The context of a handler: everything it changes, it changes inside the guard."""
    return ToolContext(
        run.prompt, run.rendered_prompt, run.adapter, run.session.guarded(guard), run.deadline, run.budget_tracker,
        CallResources(scope, guard), run.heartbeat, run.run_context,
        call_id=request.call.id, tool_name=request.call.name,
    )  # fmt: skip


def reading_context(request: Request, scope: ToolScope, guard: Guard, run: Run) -> ToolContext:  # noqa: ARG001 - one form
    """A context that only reads: for policies, and for handlers of read-only tools."""
    return writing_context(request, scope, ReadOnlyGuard(f"The context of '{request.call.name}'"), run)


__all__ = ["CallResources", "reading_context", "writing_context"]
