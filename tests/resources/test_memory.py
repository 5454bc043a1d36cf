"""Nothing is kept longer than it lives."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from tests.resources.parts import Builder, Config, Quiet, Store, Tracer, boom

from weakincentives.errors import ProviderError
from weakincentives.resources import Binding, Resolver, ResourceRegistry, Scope


def growth(work: Any) -> int:
    """Bytes that stay after the second run of the work."""
    work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_prototypes_with_nothing_to_close_are_not_kept() -> None:
    """A context that makes many prototypes without `close()` keeps none of them."""
    registry = ResourceRegistry.of(
        Binding(Quiet, lambda r: Quiet(), scope=Scope.PROTOTYPE),
        Binding(Store, lambda r: Store(), scope=Scope.PROTOTYPE),
    )
    with registry.open() as ctx, ctx.tool_scope() as scope:

        def work() -> None:
            for source in (ctx, scope):
                for _ in range(2_000):
                    source.get(Quiet)
                    source.get(Store)

        assert growth(work) < 10_000


@pytest.mark.slow
def test_tool_scopes_leave_nothing() -> None:
    """Ten thousand tool scopes with resources in them, failing ones too, leave memory where it was."""
    registry = ResourceRegistry.of(
        Binding(Tracer, lambda r: Tracer([]), scope=Scope.TOOL_CALL),
        Binding(Builder, lambda r: Builder([]), scope=Scope.PROTOTYPE),
        Binding(Config, boom, scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx:

        def work() -> None:
            for _ in range(5_000):
                with ctx.tool_scope() as scope:
                    scope.get(Tracer)
                    scope.get(Builder)
                    with suppress(ProviderError):
                        scope.get(Config)

        assert growth(work) < 10_000


@pytest.mark.slow
def test_closing_lets_go_of_what_was_built() -> None:
    """After a context closed, or discarded them, its singletons are free, even while context and scope are kept."""
    ctx = ResourceRegistry.of(Binding(Store, lambda r: Store()), Binding(Quiet, lambda r: Quiet())).open()
    with ctx:
        scope = ctx.tool_scope()
        kept = [weakref.ref(scope.get(Store)), weakref.ref(ctx.get(Quiet))]
        gc.collect()
        assert all(ref() is not None for ref in kept)
        dropped = [weakref.ref(ctx.get(Store))]
        ctx.discard(0)
        gc.collect()
        assert [ref() for ref in [*kept, *dropped]] == [None] * 3
        kept = [weakref.ref(ctx.get(Quiet))]
    gc.collect()
    assert kept[0]() is None
    scope.close()


@pytest.mark.slow
def test_a_kept_resolver_keeps_only_its_own_scope() -> None:
    """A resource that keeps its resolver does not keep alive what asked for it."""

    class Keeper:
        def __init__(self, r: Resolver) -> None:
            self.r = r

    class Asker:
        def __init__(self, r: Resolver) -> None:
            r.get(Keeper)

    registry = ResourceRegistry.of(Binding(Keeper, Keeper), Binding(Asker, Asker, scope=Scope.PROTOTYPE))
    with registry.open() as ctx:
        asker = weakref.ref(ctx.get(Asker))
        gc.collect()
        assert asker() is None
