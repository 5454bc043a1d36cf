"""What can be asked of types and objects without running foreign code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NewType

CLOSERS = frozenset({"close", "aclose"})
SNAPSHOT_METHODS = frozenset({"snapshot", "restore"})
_LIFECYCLE = CLOSERS | SNAPSHOT_METHODS | {"post_construct"}


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
    """Refuse an instance that is none of its key's type, saying what to pass instead."""
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


def own_methods(value: object) -> frozenset[str]:
    """Which of the lifecycle and snapshot methods the object has, on its class or among its own attributes.

    `__getattr__` is not asked: a remote proxy would answer to every name, and "close" is not ours to send.
    """
    if isinstance(value, type):
        return frozenset()
    kind = type(value)
    own = getattr(value, "__dict__", ())
    found = [name for name in _LIFECYCLE if hasattr(kind, name) or name in own]
    return frozenset([name for name in found if callable(getattr(value, name, None))]) if found else frozenset()


def is_snapshotable(value: object) -> bool:
    """Whether the object has `snapshot` and `restore`; `release` is optional."""
    return own_methods(value) >= SNAPSHOT_METHODS


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
    near = [*get_close_matches(name, names, n=3), *names]
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
