"""How a resource comes to be: a type, a provider, and how long the result lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, final, overload

from .type_checks import name_of, require_instance, require_type

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S")


class Scope(Enum):
    """How long a resource lives.

    `SINGLETON`: from the first `get` until the context closes, shared by all. `TOOL_CALL`: from the first `get`
    in a tool scope until that scope ends. `PROTOTYPE`: a new one for every `get`; it is closed with the tool scope
    or context it was asked from.
    """

    SINGLETON = "singleton"
    TOOL_CALL = "tool_call"
    PROTOTYPE = "prototype"


class Resolver(Protocol):
    """What providers and handlers get their resources from."""

    @overload
    def get(self, resource_type: type[T], /) -> T: ...
    @overload
    def get(self, resource_type: type[T], /, default: D) -> T | D: ...
    def get(self, resource_type: type[T], /, default: Any = ...) -> Any:
        """The resource, built on first use.

        When nothing is bound, the default (also None), or `UnboundResourceError` without one. A resource with an
        async provider is waited for; inside a running event loop that is refused: use `aget`.
        """
        ...

    @overload
    async def aget(self, resource_type: type[T], /) -> T: ...
    @overload
    async def aget(self, resource_type: type[T], /, default: D) -> T | D: ...
    async def aget(self, resource_type: type[T], /, default: Any = ...) -> Any:
        """Like `get`, for async code: providers and others' builds are awaited."""
        ...

    def __contains__(self, resource_type: object, /) -> bool:
        """Whether `get` would find a binding."""
        ...


Provider = Callable[[Resolver], T | Awaitable[T]]
"""Builds one resource; asks the resolver for what it needs. May be `async`."""


@final
@dataclass(frozen=True, slots=True)
class Given:
    """The provider of an instance that was handed in."""

    value: object

    def __call__(self, _: Resolver) -> Any:
        """The instance."""
        return self.value


@final
@dataclass(frozen=True, eq=False, repr=False)  # no slots: `Binding[T](...)` could not be written on 3.11
class Binding(Generic[T]):
    """One resource: `Binding(HTTPClient, lambda r: HTTPClient(r.get(Config).url))`.

    What the provider returns belongs to WINK: `post_construct()` is called on it, and `close()` or `aclose()` when
    its scope ends. An instance handed in with `Binding.instance` stays its owner's: neither is ever called.
    `eager=True` builds a SINGLETON when the context opens, a TOOL_CALL resource when the tool scope does.

    Raises TypeError for a key that is no type, a provider that cannot be called or an instance of another type,
    and ValueError for an eager PROTOTYPE.

    >>> Binding(dict, lambda r: {"url": "https://example.com"}, scope=Scope.PROTOTYPE)
    Binding(dict, scope=PROTOTYPE)
    """

    resource_type: type[T]
    provider: Provider[T]
    scope: Scope = Scope.SINGLETON
    eager: bool = False

    def __post_init__(self) -> None:
        require_type(self.resource_type)
        name = name_of(self.resource_type)
        if not callable(self.provider):
            raise TypeError(
                f"The provider of {name} must be callable, got {type(self.provider).__name__}. "
                f"For an instance use Binding.instance({name}, value)."
            )
        if not isinstance(self.scope, Scope):
            raise TypeError(f"The scope of {name} must be a Scope such as Scope.SINGLETON, got {self.scope!r}.")
        if self.eager and self.scope is Scope.PROTOTYPE:
            raise ValueError(f"{name} is a PROTOTYPE, built at every get, so it cannot be eager.")

    @staticmethod
    def instance(resource_type: type[S], value: S) -> Binding[S]:
        """Bind an instance that stays its owner's: WINK never closes it."""
        require_type(resource_type)
        require_instance(value, resource_type)
        return Binding(resource_type, Given(value))

    @property
    def given(self) -> bool:
        """Whether this is an instance that was handed in."""
        return isinstance(self.provider, Given)

    def __repr__(self) -> str:
        # Never the value: it may hold credentials, and reprs end up in logs.
        name = name_of(self.resource_type)
        if self.given:
            return f"Binding.instance({name}, ...)"
        return f"Binding({name}, scope={self.scope.name}{', eager=True' if self.eager else ''})"


__all__ = ["Binding", "Given", "Provider", "Resolver", "Scope"]
