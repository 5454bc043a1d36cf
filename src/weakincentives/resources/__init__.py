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
from .context import ResourceContext, ToolScope
from .registry import ResourceRegistry

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
