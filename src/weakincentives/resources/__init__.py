"""Dependency injection for tools: what is bound, how it is built, how long it lives."""

from ..deprecation import FormerNames, former_names
from ..errors import (
    DuplicateBindingError,
    ProviderError,
    ResourceCycleError,
    ResourceError,
    ResourcesClosedError,
    ResourceScopeError,
    UnboundResourceError,
)
from ..types import Closeable, PostConstruct, Recordable, Snapshotable
from .binding import Binding, Provider, Resolver, Scope
from .context import ResourceContext
from .registry import ResourceRegistry

__getattr__: FormerNames = former_names(__name__, {"ToolScope": "resources.context"})

__all__ = [
    "Binding",
    "Closeable",
    "DuplicateBindingError",
    "PostConstruct",
    "Provider",
    "Recordable",
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
    "UnboundResourceError",
]
