"""What is bound, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast, final, overload

from ..errors import DuplicateBindingError, ResourcesClosedError, UnboundResourceError
from .binding import Binding, InstanceBinding, name_of, require_type, unbound_text
from .context import ResourceContext
from .lifetime import Declared
from .resolution import MISSING

T = TypeVar("T")
D = TypeVar("D")


@final
class ResourceRegistry:
    """An immutable set of bindings, one per type; `ResourceRegistry()` has none.

    It holds no live resources but the instances handed in. Each `open()` gives a context of its own.

    >>> registry = ResourceRegistry.build({str: "hello"})
    >>> registry.get(str), registry.get(bytes, None), str in registry
    ('hello', None, True)
    """

    __slots__ = ("_bindings", "_declared")

    def __init__(self) -> None:
        self._bindings: dict[Any, Binding[Any]] = {}
        self._declared: Declared | None = None

    @classmethod
    def of(cls, *bindings: Binding[Any]) -> ResourceRegistry:
        """A registry of these bindings; `DuplicateBindingError` when a type is bound twice."""
        registry = cls()
        for binding in bindings:
            if not isinstance(binding, Binding):
                raise TypeError(
                    f"ResourceRegistry.of takes bindings, got {type(binding).__name__}. "
                    "Use Binding.instance(T, value), or ResourceRegistry.build({T: value})."
                )
            if binding.resource_type in registry._bindings:
                raise _duplicate(binding.resource_type, "Remove one of the two bindings.")
            registry._bindings[binding.resource_type] = binding
        return registry

    @classmethod
    def build(cls, mapping: Mapping[Any, object]) -> ResourceRegistry:
        """A registry of a mapping from types to instances or bindings.

        Raises TypeError for an instance that is none of its key's type, and for a binding of another type than its
        key.
        """
        registry = cls()
        for key, value in mapping.items():
            require_type(key)
            registry._bindings[key] = _bound_as(key, value)
        return registry

    def merge(self, other: ResourceRegistry, *, strict: bool = False) -> ResourceRegistry:
        """Both registries' bindings; where both bind a type, the other's wins.

        With `strict=True` a type that both bind raises `DuplicateBindingError`, unless it is the same binding.
        """
        if strict:
            for key, binding in other._bindings.items():
                if self._bindings.get(key, binding) is not binding:
                    raise _duplicate(key, "Remove it from one of the two registries, or merge without strict=True.")
        merged = ResourceRegistry()
        merged._bindings.update(self._bindings)
        merged._bindings.update(other._bindings)
        return merged

    def open(self) -> ResourceContext:
        """A context for these bindings: `with registry.open() as ctx:`. It opens when it is entered or first used."""
        if self._declared is None:
            self._declared = Declared.by(self._bindings)
        return ResourceContext(self._declared)

    @overload
    def get(self, resource_type: type[T], /) -> T: ...
    @overload
    def get(self, resource_type: type[T], /, default: D) -> T | D: ...
    def get(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """An instance that was handed in.

        The default (also None) when nothing is bound, or `UnboundResourceError` without one. What a provider would
        have to build raises `ResourcesClosedError`: that needs `open()`.
        """
        binding = self._bindings.get(resource_type)
        if binding is None:
            if default is MISSING:
                raise UnboundResourceError(unbound_text(resource_type, self._bindings, None))
            return default
        if isinstance(binding.provider, InstanceBinding):
            return binding.provider.value
        name = name_of(resource_type)
        raise ResourcesClosedError(
            f"{name} is built by a provider, and this registry is not open. "
            f"Use `with registry.open() as ctx: ctx.get({name})`."
        )

    def binding(self, resource_type: type[T], /) -> Binding[T] | None:
        """How the type is bound, if it is."""
        return self._bindings.get(resource_type)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._bindings

    def __iter__(self) -> Iterator[type[Any]]:
        """The bound types, in the order in which they were bound."""
        return iter(self._bindings)

    def __len__(self) -> int:
        return len(self._bindings)

    def __repr__(self) -> str:
        return f"ResourceRegistry({', '.join(map(name_of, self._bindings))})"


def _bound_as(key: type[Any], value: Any) -> Binding[Any]:
    if not isinstance(value, Binding):
        return Binding.instance(key, value)
    binding = cast("Binding[Any]", value)
    if binding.resource_type != key:
        name = name_of(key)
        raise TypeError(
            f"The key {name} has a binding of {name_of(binding.resource_type)}. Use the same type in both: "
            f"{{{name}: Binding({name}, ...)}}."
        )
    return binding


def _duplicate(resource_type: object, fix: str) -> DuplicateBindingError:
    return DuplicateBindingError(f"{name_of(resource_type)} is bound twice. {fix}")
