"""Document 001, "ResourceRegistry": a typed container; its signatures, with `get` as decided later."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from weakincentives.errors import UnboundResourceError
from weakincentives.resources import ResourceRegistry


class Filesystem: ...


class KVStore: ...


def test_build_get_and_contains() -> None:
    """`build(mapping)`, `get(T)`, `get(T, default)` and `T in registry` work on a registry that is not open."""
    fs = Filesystem()
    resources = ResourceRegistry.build({Filesystem: fs})
    assert resources.get(Filesystem) is fs
    assert Filesystem in resources
    assert KVStore not in resources
    default = KVStore()
    assert resources.get(KVStore, default) is default


def test_an_unbound_type_raises_or_gives_the_default() -> None:
    """`get(T)` of an unbound type raises; `get(T, None)` is how to write 001's `if fs is None`."""
    resources = ResourceRegistry()
    with pytest.raises(UnboundResourceError):
        resources.get(Filesystem)
    assert resources.get(Filesystem, None) is None


def test_a_registry_is_a_default_factory() -> None:
    """`field(default_factory=ResourceRegistry)`, as in 001's `ToolContext`, gives an empty registry."""

    @dataclass(slots=True, frozen=True)
    class Context:
        resources: ResourceRegistry = field(default_factory=ResourceRegistry)

    assert len(Context().resources) == 0
