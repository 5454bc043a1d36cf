"""What the engine asks of a context: what can be restored, and what was built since."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from tests.resources.parts import Builder, Client, Config, OtherStore, Quiet, Store, Tracer, boom

from weakincentives.errors import ProviderError
from weakincentives.resources import Binding, Resolver, ResourceRegistry, Scope, Snapshotable

Log = list[str]


class Holder:
    def __init__(self, r: Resolver) -> None:
        self.store = r.get(OtherStore)


def test_live_snapshotables_are_listed_once_each() -> None:
    """Handed-in and built snapshotables are listed in order, each once however often bound, as one kept tuple."""
    given = Store()
    registry = ResourceRegistry.of(
        Binding.instance(Store, given),
        Binding(object, lambda r: r.get(Store)),
        Binding(OtherStore, lambda r: OtherStore()),
        Binding(Quiet, lambda r: Quiet()),
    )
    ctx = registry.open()
    assert ctx.snapshotables() == (given,)
    with ctx:
        ctx.get(object)
        ctx.get(Quiet)
        assert ctx.snapshotables() == (given,)
        other = ctx.get(OtherStore)
        assert isinstance(other, Snapshotable)
        assert ctx.snapshotables() == (given, other)
        assert ctx.snapshotables() is ctx.snapshotables()
    assert ctx.snapshotables() == (given,)


def test_a_scope_lists_its_own_snapshotables_too() -> None:
    """A tool scope adds its TOOL_CALL snapshotables to the context's; overrides are not among them."""
    registry = ResourceRegistry.of(
        Binding(Store, lambda r: Store()), Binding(OtherStore, lambda r: OtherStore(), scope=Scope.TOOL_CALL)
    )
    with registry.open() as ctx:
        store = ctx.get(Store)
        with ctx.tool_scope(overrides={Store: Store()}) as scope:
            assert scope.snapshotables() is ctx.snapshotables()
            own = scope.get(OtherStore)
            assert scope.snapshotables() == (store, own)
            assert ctx.snapshotables() == (store,)


def test_a_prototype_inside_a_singleton_can_be_taken_back() -> None:
    """A snapshotable PROTOTYPE counts when a SINGLETON holds it; one asked for directly is its user's own."""
    registry = ResourceRegistry.of(
        Binding(Holder, Holder), Binding(OtherStore, lambda r: OtherStore(), scope=Scope.PROTOTYPE)
    )
    with registry.open() as ctx:
        loose = weakref.ref(ctx.get(OtherStore))
        gc.collect()
        assert loose() is None
        assert ctx.snapshotables() == ()
        holder = ctx.get(Holder)
        assert ctx.snapshotables() == (holder.store,)


def test_marks_tell_births() -> None:
    """A mark is a plain number that changes only when something is built for the context."""
    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config([])),
        Binding(Client, boom),
        Binding(Tracer, lambda r: Tracer([]), scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx:
        start = ctx.mark()
        assert isinstance(start, int)
        with ctx.tool_scope() as scope:
            scope.get(Tracer)
        with pytest.raises(ProviderError):
            ctx.get(Client)
        assert ctx.mark() == start
        assert ctx.built_since(start) == ()
        config = ctx.get(Config)
        assert ctx.mark() != start
        assert ctx.built_since(start) == (config,)
        assert ctx.built_since(ctx.mark()) == ()


def test_discard_closes_and_forgets_what_was_born_since() -> None:
    """`discard` closes what was built since the mark, newest first, and forgets it: `get` builds it anew."""
    log: Log = []

    class Db(Store):
        def close(self) -> None:
            log.append("close Db")

    def client(r: Resolver) -> Client:
        r.get(Db)
        r.get(Builder)
        return Client(log)

    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)),
        Binding(Client, client),
        Binding(Db, lambda r: Db()),
        Binding(object, lambda r: r.get(Config)),
        Binding(Builder, lambda r: Builder(log), scope=Scope.PROTOTYPE),
    )
    with registry.open() as ctx:
        config = ctx.get(Config)
        mark = ctx.mark()
        with ctx.tool_scope() as scope:
            first = scope.get(Client)
            assert scope.get(object) is config
        db = ctx.get(Db)
        assert ctx.snapshotables() == (db,)
        del log[:]
        ctx.discard(mark)
        assert log == ["close Client", "close Builder", "close Db"]
        assert ctx.snapshotables() == ()
        assert ctx.built_since(mark) == ()
        ctx.discard(mark)
        assert ctx.get(Config) is config
        assert ctx.get(object) is config
        assert ctx.get(Client) is not first
        assert ctx.get(Db) is not db
        del log[:]
    assert log == ["close Client", "close Builder", "close Db", "close Config"]


def test_marks_nest() -> None:
    """An inner mark discards only what came after it, an outer one the rest."""
    registry = ResourceRegistry.of(Binding(Config, lambda r: Config([])), Binding(Client, lambda r: Client([])))
    with registry.open() as ctx:
        outer = ctx.mark()
        config = ctx.get(Config)
        inner = ctx.mark()
        ctx.get(Client)
        ctx.discard(inner)
        assert ctx.get(Config) is config
        ctx.discard(outer)
        assert ctx.get(Config) is not config


def test_marks_stay_behind_when_a_context_opens_again() -> None:
    """Everything in a new life is born after a mark of an earlier one."""
    ctx = ResourceRegistry.of(Binding(Config, lambda r: Config([]))).open()
    with ctx:
        ctx.get(Config)
        mark = ctx.mark()
    with ctx:
        assert ctx.built_since(mark) == ()
        assert ctx.built_since(mark) != (ctx.get(Config),)
        assert len(ctx.built_since(mark)) == 1


def test_discard_in_async_code() -> None:
    """`adiscard` awaits `aclose()`, keeps errors in `close_errors`, and forgets all the same."""
    closed: Log = []

    class Remote:
        async def aclose(self) -> None:
            await asyncio.sleep(0)
            closed.append("remote")
            raise ValueError("gone already")

    async def main() -> None:
        async with ResourceRegistry.of(Binding(Remote, lambda r: Remote())).open() as ctx:
            mark = ctx.mark()
            first = await ctx.aget(Remote)
            await ctx.adiscard(mark)
            await ctx.adiscard(ctx.mark())
            assert [str(error) for error in ctx.close_errors] == ["gone already"]
            assert await ctx.aget(Remote) is not first

    asyncio.run(main())
    assert closed == ["remote", "remote"]
