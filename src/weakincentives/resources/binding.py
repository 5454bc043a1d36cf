"""How a resource comes to be: a type, a provider, and how long the result lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, NewType, Protocol, TypeVar, final, overload

from ..lazy_modules import difflib

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


class InstanceBinding(NamedTuple):
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

    Raises TypeError for a key that is not a type, a provider that cannot be called or an instance of another type,
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
        return Binding(resource_type, InstanceBinding(value))

    @property
    def given(self) -> bool:
        """Whether this is an instance that was handed in."""
        return isinstance(self.provider, InstanceBinding)

    def __repr__(self) -> str:
        # Never the value: it may hold credentials, and reprs end up in logs.
        name = name_of(self.resource_type)
        if self.given:
            return f"Binding.instance({name}, ...)"
        return f"Binding({name}, scope={self.scope.name}{', eager=True' if self.eager else ''})"


# What can be asked of types without running users' code, and what to say when they do not fit.


def name_of(resource_type: object) -> str:
    """The type's short name, as the error texts and paths show it."""
    return getattr(resource_type, "__name__", None) or repr(resource_type)


def require_type(resource_type: object) -> None:
    """Refuse what cannot be a key: resources are bound to classes, protocols, generic aliases and NewTypes."""
    if isinstance(resource_type, (type, NewType)) or hasattr(resource_type, "__origin__"):
        return
    raise TypeError(
        f"Resources are bound to types, but got {resource_type!r} ({type(resource_type).__name__}). "
        "Use the class or protocol itself as the key."
    )


def fits(value: object, resource_type: Any) -> bool:
    """Whether the value may stand for the type; True where Python cannot tell (a plain Protocol, `list[int]`)."""
    try:
        return isinstance(value, resource_type)
    except TypeError:
        return value is not None


def require_instance(value: object, resource_type: Any) -> None:
    """Refuse an instance that is not of its key's type, saying what to pass instead."""
    if fits(value, resource_type):
        return
    name = name_of(resource_type)
    if isinstance(value, type):
        fix = f"pass an instance, or Binding({name}, lambda r: {name_of(value)}(...)) to have it built"
    elif value is None:
        fix = "leave the key out when there is none"
    else:
        fix = f"pass an instance of {name}{_missing_members(value, resource_type)}"
    what = f"the class {value.__name__}" if isinstance(value, type) else f"an instance of {type(value).__name__}"
    raise TypeError(f"{name} was given {'None' if value is None else what}: {fix}.")


def _missing_members(value: object, resource_type: type[Any]) -> str:
    if not getattr(resource_type, "_is_protocol", False):
        return ""
    bases = [base for base in resource_type.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in vars(base) if not name.startswith("_")}
    missing = sorted(name for name in names if not hasattr(value, name))
    return f"; {type(value).__name__} lacks {', '.join(missing)}" if missing else ""


def unbound_text(resource_type: object, bound: Iterable[object], path: str | None) -> str:
    """What to say when nothing is bound: what asked for it, how to bind it, what is bound that looks like it."""
    name = name_of(resource_type)
    asked = f" (needed by {path})" if path else ""
    return (
        f"Nothing is bound for {name}{asked}. Bind it with Binding({name}, lambda r: ...) or "
        f"Binding.instance({name}, value) in ResourceRegistry.of(...), or as resources={{{name}: value}}."
        f"{_nearest(resource_type, list(bound))}"
    )


def _nearest(resource_type: object, bound: list[object]) -> str:
    if not bound:
        return " No resources are bound at all."
    name = name_of(resource_type)
    for other in bound:
        if name_of(other) == name:
            asked = _full_name(resource_type)
            return f" Another type of that name is bound: {_full_name(other)}, but {asked} was asked for."
    related = [other for other in bound if _related(other, resource_type)]
    if related:
        listed = ", ".join(map(name_of, related))
        return f" Bound and related to it: {listed}. Keys match exactly, so bind one of them as {name} too."
    names = {name_of(other): None for other in bound}
    near = [*difflib.get_close_matches(name, names, n=3), *names]
    shown = list(dict.fromkeys(near))
    return f" Bound: {', '.join(shown[:8])}{', ...' if len(shown) > 8 else ''}."


def _related(one: object, other: object) -> bool:
    try:
        return issubclass(one, other) or issubclass(other, one)  # type: ignore[arg-type]
    except TypeError:  # not classes, or a protocol that cannot be checked
        return False


def _full_name(resource_type: object) -> str:
    module = getattr(resource_type, "__module__", "?")
    return f"{module}.{getattr(resource_type, '__qualname__', name_of(resource_type))}"
