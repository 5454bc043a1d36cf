"""The resources of one prompt: what its template, its sections and `bind` bound, as one context."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast, final, overload

from ..errors import PromptValidationError
from ..resources import ResourceContext, ResourceRegistry
from ..resources.context import ToolScope
from .type_forms import short_name

T = TypeVar("T")
D = TypeVar("D")

_MISSING: Any = object()


@final
class PromptResources:
    """Entered around an evaluation: `with prompt.resources: adapter.evaluate(prompt, session=session)`.

    Entering again while it is entered is fine; the outermost block closes what WINK built, newest first, and leaves
    alone what was handed in. After that it may be entered anew. While it is not entered, only instances that were
    handed in can be had. Safe to use from any thread.
    """

    __slots__ = ("context", "registry")

    def __init__(self, registry: ResourceRegistry) -> None:
        self.registry: ResourceRegistry = registry
        self.context: ResourceContext = registry.open()

    @overload
    def get(self, resource_type: type[T], /) -> T: ...
    @overload
    def get(self, resource_type: type[T], /, default: D) -> T | D: ...
    def get(self, resource_type: type[Any], /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; while not entered, only an instance that was handed in.

        The default (also None) when nothing is bound, or `UnboundResourceError` without one. What would have to be
        built raises `ResourcesClosedError` while not entered.
        """
        source = self.context if self.context.is_open else self.registry
        return source.get(resource_type) if default is _MISSING else source.get(resource_type, default)

    @overload
    async def aget(self, resource_type: type[T], /) -> T: ...
    @overload
    async def aget(self, resource_type: type[T], /, default: D) -> T | D: ...
    async def aget(self, resource_type: type[Any], /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        if not self.context.is_open:
            return self.get(resource_type) if default is _MISSING else self.get(resource_type, default)
        if default is _MISSING:
            return await self.context.aget(resource_type)
        return await self.context.aget(resource_type, default)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self.registry

    @property
    def is_open(self) -> bool:
        """Whether it is entered."""
        return self.context.is_open

    def tool_scope(self, *, overrides: Mapping[Any, object] | None = None) -> ToolScope:
        """The resources of one tool call; see `ResourceContext.tool_scope`."""
        return self.context.tool_scope(overrides=overrides)

    def __enter__(self) -> Self:
        self.context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.context.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self.context.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.context.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<PromptResources of {self.registry!r}, {'open' if self.is_open else 'not entered'}>"


Bindings = Mapping[Any, object] | ResourceRegistry
"""What `resources=` takes: instances or `Binding`s by type, or a registry."""


def as_bindings(resources: Bindings | None) -> dict[Any, object]:
    """The bindings as a plain dict. TypeError for anything that is none of the allowed forms."""
    if resources is None:
        return {}
    if isinstance(resources, ResourceRegistry):
        return {key: resources.binding(key) for key in resources}
    if not isinstance(resources, Mapping):
        raise TypeError(
            f"resources= takes a mapping such as {{HTTPClient: client}} or a ResourceRegistry, "
            f"got {type(cast(object, resources)).__name__}."
        )
    return dict(resources)


def merged(
    template: Mapping[Any, object], sections: Mapping[type[Any], tuple[object, str]], bound: Mapping[Any, object]
) -> ResourceRegistry:
    """One registry. What is bound wins over the template's; what a section brings must not be bound elsewhere too.

    `PromptValidationError` naming both places when it is; TypeError for an instance that is none of its key's type.
    """
    for origin, bindings in (("the template", template), ("bind(resources=)", bound)):
        for resource_type in bindings:
            if resource_type in sections:
                raise PromptValidationError(
                    f"{short_name(resource_type)} is bound twice: by {origin} and by section "
                    f"{sections[resource_type][1]!r}. A prompt has one of each: leave one of them out."
                )
    values = {key: value for key, (value, _) in sections.items()}
    return ResourceRegistry.build({**template, **values, **bound})
