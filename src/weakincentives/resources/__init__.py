"""Dependency injection for tools: what is bound, how it is built, how long it lives."""

from ..errors import (
    DuplicateBindingError,
    ProviderError,
    ResourceCycleError,
    ResourceError,
    ResourcesClosedError,
    ResourceScopeError,
    UnboundResourceError,
)
from ..types import Closeable, PostConstruct, Snapshotable
from .binding import Binding, Provider, Resolver, Scope
from .context import ResourceContext
from .registry import ResourceRegistry
from .tool_scope import ToolScope

__all__ = [
    "Binding",
    "Closeable",
    "DuplicateBindingError",
    "PostConstruct",
    "Provider",
    "ProviderError",
    "Resolver",
    "ResourceContext",
    "ResourceCycleError",
    "ResourceError",
    "ResourceRegistry",
    "ResourceScopeError",
    "ResourcesClosedError",
    "Scope",
    "Snapshotable",
    "ToolScope",
    "UnboundResourceError",
]
