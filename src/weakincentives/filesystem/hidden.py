"""What is said when a view does not have a method of the filesystem behind it."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

_MISSING = object()


def hidden_attribute(view: object, fs: Any, name: str) -> AttributeError:
    """The error for a name that a view does not have; one that its filesystem has is explained."""
    kind = type(view).__name__
    if name.startswith("_") or getattr_static(fs, name, _MISSING) is _MISSING:
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=view)
    own = type(fs).__name__
    return AttributeError(
        f"{own}.{name} cannot be used here: this view ({kind}) has the methods of Filesystem alone, because it could "
        f"not guard what others write. Make {name} a function that takes a Filesystem, or bind an object of its own "
        "for it, which is then neither fenced nor undone.",
        name=name,
        obj=view,
    )


__all__ = ["hidden_attribute"]
