"""Async providers, set-up and closing, in programs with and without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from tests.own_loop import loop_threads, own_loop
from tests.resources.parts import Client, Config, Quiet, Span, Tracer, boom

from weakincentives.errors import ProviderError, ResourceCycleError, ResourceError, ResourcesClosedError
from weakincentives.resources import Binding, Resolver, ResourceContext, ResourceRegistry, Scope
from weakincentives.resources.context import ToolScope

Log = list[str]


class Remote:
    """Made, set up and closed on one loop, or it says so."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.loop = asyncio.get_running_loop()

    async def post_construct(self) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.log.append("connect")

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.log.append("disconnect")


def registry_of(log: Log, scope: Scope = Scope.SINGLETON) -> ResourceRegistry:
    async def remote(r: Resolver) -> Remote:
        await asyncio.sleep(0)
        await r.aget(Config)
        return Remote(log)

    async def client(r: Resolver) -> Client:
        await asyncio.gather(r.aget(Remote), r.aget(Config))
        return Client(log)

    return ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)),
        Binding(Remote, remote, scope=scope),
        Binding(Client, client, scope=scope),
    )


EXPECTED = ["make Config", "connect", "make Client", "close Client", "disconnect", "close Config"]


@pytest.fixture(autouse=True)
def _own_loop() -> Iterator[None]:
    with own_loop():
        yield


def test_sync_code_gets_async_resources() -> None:
    """Without a running loop, `get` waits for async providers; all of a resource's life is on one loop."""
    log: Log = []
    with registry_of(log).open() as ctx:
        assert ctx.get(Client) is ctx.get(Client)
        assert loop_threads()
    assert log == EXPECTED
    assert ctx.close_errors == ()
    assert loop_threads() == []


def test_async_code_gets_async_resources_on_its_own_loop() -> None:
    """In async code `aget` builds on the running loop, once, and `async with` closes there."""
    log: Log = []

    async def main() -> ResourceContext:
        async with registry_of(log).open() as ctx:
            one, two = await asyncio.gather(ctx.aget(Client), ctx.aget(Client))
            assert one is two is ctx.get(Client)
            assert (await ctx.aget(Remote)).loop is asyncio.get_running_loop()
            assert await ctx.aget(Quiet, None) is None
            async with ctx:
                assert await ctx.aget(Client) is one
        assert loop_threads() == []
        return ctx

    assert asyncio.run(main()).close_errors == ()
    assert log == EXPECTED


def test_tool_scopes_in_async_code() -> None:
    """`async with ctx.tool_scope()` builds, eagerly too, and closes TOOL_CALL resources on the running loop."""
    log: Log = []

    async def tracer(_: Resolver) -> Tracer:
        return Tracer(log)

    registry = registry_of(log, Scope.TOOL_CALL).merge(
        ResourceRegistry.of(
            Binding(Tracer, tracer, scope=Scope.TOOL_CALL, eager=True), Binding(Span, lambda r: Span(log))
        )
    )

    async def main() -> None:
        async with registry.open() as ctx:
            async with ctx.tool_scope(overrides={Quiet: Quiet()}) as scope:
                assert await scope.aget(Client) is await scope.aget(Client)
                assert isinstance(await scope.aget(Quiet), Quiet)
                assert await scope.aget(Span) is await scope.aget(Span)
                assert await scope.aget(int, 7) == 7
            assert log[-3:] == ["close Client", "disconnect", "close Tracer"]
            with pytest.raises(ResourcesClosedError):
                await scope.aget(Client)
            with pytest.raises(ResourcesClosedError):
                async with scope:
                    pytest.fail("must not be entered")

    asyncio.run(main())


def test_a_plain_get_inside_a_loop_is_refused_with_the_way_out() -> None:
    """`get` of an async resource in a running loop raises, says `aget`, and leaves nothing behind."""
    log: Log = []

    class Half(Config):
        async def post_construct(self) -> None:
            pytest.fail("must not run")

    async def main() -> None:
        registry = registry_of(log).merge(ResourceRegistry.of(Binding(Half, lambda r: Half(log))))
        async with registry.open() as ctx:
            with pytest.raises(ResourceError, match=r"provider of Remote is async.*await resources\.aget"):
                ctx.get(Remote)
            with pytest.raises(ResourceError, match=r"post_construct\(\) of Half is async"):
                ctx.get(Half)
            assert log == ["make Half", "close Half"]
            assert isinstance(await ctx.aget(Remote), Remote)

    asyncio.run(main())


def test_a_sync_provider_of_an_async_need_is_told_to_be_async() -> None:
    """A sync provider that asks for an async resource inside a loop gets the error that says how to write it."""

    async def remote(_: Resolver) -> Remote:
        return Remote([])

    def client(r: Resolver) -> Client:
        r.get(Remote)
        return Client([])

    registry = ResourceRegistry.of(Binding(Remote, remote), Binding(Client, client))

    async def main() -> None:
        async with registry.open() as ctx:
            with pytest.raises(ResourceError, match=r"make it async and `await r\.aget"):
                await ctx.aget(Client)

    asyncio.run(main())
    with registry.open() as ctx:
        assert isinstance(ctx.get(Client), Client)


def test_a_plain_get_does_not_wait_for_its_own_loop() -> None:
    """`get` of what another task of this loop is building raises instead of hanging for ever."""
    started = asyncio.Event()
    go_on = asyncio.Event()

    async def config(_: Resolver) -> Config:
        started.set()
        await go_on.wait()
        return Config([])

    async def main() -> None:
        async with ResourceRegistry.of(Binding(Config, config)).open() as ctx:
            task = asyncio.create_task(ctx.aget(Config))
            await started.wait()
            with pytest.raises(ResourceError, match="another task of the event loop"):
                ctx.get(Config)
            go_on.set()
            assert await task is ctx.get(Config)

    asyncio.run(main())


def test_failures_in_async_providers() -> None:
    """Async providers fail like sync ones: with name, cause and nothing kept; circles show their path."""

    async def failing(_: Resolver) -> Config:
        await asyncio.sleep(0)
        return boom()

    async def needs_span(r: Resolver) -> Tracer:
        return await r.aget(Span)  # type: ignore[return-value]

    async def needs_tracer(r: Resolver) -> Span:
        return await r.aget(Tracer)  # type: ignore[return-value]

    registry = ResourceRegistry.of(Binding(Config, failing), Binding(Tracer, needs_span), Binding(Span, needs_tracer))

    async def main() -> None:
        async with registry.open() as ctx:
            with pytest.raises(ProviderError, match="provider of Config raised ValueError"):
                await ctx.aget(Config)
            with pytest.raises(ResourceCycleError, match="Tracer -> Span -> Tracer"):
                await ctx.aget(Tracer)
            results = await asyncio.gather(ctx.aget(Tracer), ctx.aget(Span), return_exceptions=True)
            assert [type(result) for result in results] == [ResourceCycleError] * 2

    asyncio.run(asyncio.wait_for(main(), 10))
    with registry.open() as ctx:
        with pytest.raises(ProviderError, match="provider of Config raised ValueError"):
            ctx.get(Config)
        with pytest.raises(ResourceCycleError, match="Tracer -> Span -> Tracer"):
            ctx.get(Tracer)


def test_a_cancelled_builder_leaves_the_work_to_those_who_wait() -> None:
    """When the task that builds is cancelled a waiting one builds anew; a cancelled waiter disturbs no other."""
    builds: Log = []

    async def config(_: Resolver) -> Config:
        builds.append("begin")
        await asyncio.sleep(0.01 if len(builds) > 1 else 30)
        return Config(builds)

    async def main() -> None:
        async with ResourceRegistry.of(Binding(Config, config)).open() as ctx:
            builder, quitter, waiter = (asyncio.create_task(ctx.aget(Config)) for _ in range(3))
            await asyncio.sleep(0)
            quitter.cancel()
            await asyncio.sleep(0)
            builder.cancel()
            assert isinstance(await waiter, Config)
            assert builder.cancelled()
            assert quitter.cancelled()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert builds == ["begin", "begin", "make Config", "close Config"]


def test_a_coroutine_driven_without_a_loop_works() -> None:
    """`aget` and `async with` work where a coroutine is run by hand, without any event loop."""
    log: Log = []

    async def main() -> str:
        async with registry_of(log).open() as ctx:
            await ctx.aget(Client)
            async with ctx.tool_scope() as scope:
                await scope.aget(Client)
            await ctx.adiscard(ctx.mark())
        return "done"

    work = main()
    with pytest.raises(StopIteration) as stopped:
        work.send(None)
    assert stopped.value.value == "done"
    assert log == EXPECTED


def test_both_ways_of_closing() -> None:
    """With both methods, `with` calls `close()` and `async with` calls `aclose()`; a `close` may be async itself."""
    log: Log = []

    class Both:
        def close(self) -> None:
            log.append("close")

        async def aclose(self) -> None:
            log.append("aclose")

    class OnlyClose:
        async def close(self) -> None:
            await asyncio.sleep(0)
            log.append("async close")

    registry = ResourceRegistry.of(Binding(Both, lambda r: Both()), Binding(OnlyClose, lambda r: OnlyClose()))

    async def main() -> None:
        async with registry.open() as ctx:
            ctx.get(Both)
            ctx.get(OnlyClose)

    with registry.open() as ctx:
        ctx.get(Both)
        ctx.get(OnlyClose)
    assert log == ["async close", "close"]
    del log[:]
    asyncio.run(main())
    assert log == ["async close", "aclose"]
    assert loop_threads() == []


def test_a_sync_close_inside_the_resources_own_loop_says_so() -> None:
    """`close()` in a running loop cannot run an `aclose()` that belongs to it: the error is kept and names the fix."""
    log: Log = []

    async def main() -> None:
        ctx = await registry_of(log).open().aopen()
        await ctx.aget(Remote)
        ctx.close()
        (error,) = ctx.close_errors
        assert "async with" in str(error)
        assert log[-1] == "close Config"

    asyncio.run(main())


def test_a_resource_is_closed_on_its_own_loop_from_another_thread() -> None:
    """`close()` in a thread runs `aclose()` on the loop where the resource was built, running or paused."""
    log: Log = []

    async def running() -> None:
        ctx = registry_of(log).open()
        await ctx.aget(Remote)
        await asyncio.to_thread(ctx.close)
        assert ctx.close_errors == ()

    asyncio.run(running())
    with asyncio.Runner() as runner:
        ctx = registry_of(log).open()
        runner.run(ctx.aget(Remote))
        ctx.close()
    assert ctx.close_errors == ()
    assert log.count("disconnect") == 2


def test_a_resource_of_a_closed_loop_is_still_closed() -> None:
    """When the loop a resource was built on is gone, `aclose()` runs on ours."""
    closed: Log = []

    class Loose:
        async def aclose(self) -> None:
            closed.append("closed")

    ctx = ResourceRegistry.of(Binding(Loose, lambda r: Loose())).open()
    asyncio.run(ctx.aget(Loose))
    ctx.close()
    assert closed == ["closed"]
    assert loop_threads() == []


def test_async_code_closes_what_sync_code_built() -> None:
    """`async with` closes a resource that lives on our own loop there."""
    log: Log = []

    async def main() -> None:
        async with registry_of(log).open() as ctx:
            await asyncio.to_thread(ctx.get, Remote)
        assert ctx.close_errors == ()

    asyncio.run(main())
    assert log == ["make Config", "connect", "disconnect", "close Config"]
    assert loop_threads() == []


def test_cancellation_while_closing_comes_after_the_round() -> None:
    """A task cancelled while it closes resources closes the rest, then is cancelled."""
    log: Log = []
    entered = asyncio.Event()

    class Slow:
        async def aclose(self) -> None:
            entered.set()
            await asyncio.sleep(30)

    async def work(ctx: ResourceContext) -> None:
        async with ctx:
            await ctx.aget(Config)
            await ctx.aget(Slow)

    async def main() -> None:
        registry = ResourceRegistry.of(Binding(Config, lambda r: Config(log)), Binding(Slow, lambda r: Slow()))
        task = asyncio.create_task(work(registry.open()))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 10))
    assert log == ["make Config", "close Config"]


def test_async_providers_see_the_callers_context_variables() -> None:
    """A context variable set by sync code is seen by the async provider it causes to run."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    async def config(_: Resolver) -> list[Any]:
        await asyncio.sleep(0)
        return [tenant.get()]

    with ResourceRegistry.of(Binding(list, config)).open() as ctx:
        tenant.set("ada")
        assert ctx.get(list) == ["ada"]


def test_background_tasks_of_async_resources_keep_running() -> None:
    """Between two calls of sync code, the loop of its async resources goes on; closing cancels what is left."""
    beats = threading.Event()
    ended = threading.Event()

    class Beating:
        def __init__(self) -> None:
            self.task = asyncio.get_running_loop().create_task(self.beat())

        async def beat(self) -> None:
            try:
                await asyncio.sleep(0.01)
                beats.set()
                await asyncio.sleep(30)
            finally:
                ended.set()

    async def beating(_: Resolver) -> Beating:
        return Beating()

    with ResourceRegistry.of(Binding(Beating, beating)).open() as ctx:
        ctx.get(Beating)
        assert beats.wait(10)
        assert not ended.is_set()
    assert ended.is_set()


def test_a_failing_async_eager_resource_closes_what_was_opened() -> None:
    """When an eager resource cannot be built in async code, entering raises and closes the others."""
    log: Log = []

    async def failing(_: Resolver) -> Client:
        return boom()

    async def main() -> None:
        registry = ResourceRegistry.of(
            Binding(Config, lambda r: Config(log), eager=True),
            Binding(Client, failing, eager=True),
        )
        with pytest.raises(ProviderError):
            async with registry.open():
                pytest.fail("must not be entered")
        scoped = ResourceRegistry.of(Binding(Client, failing, scope=Scope.TOOL_CALL, eager=True))
        async with scoped.open() as ctx:
            with pytest.raises(ProviderError):
                async with ctx.tool_scope():
                    pytest.fail("must not be entered")

    asyncio.run(main())
    assert log == ["make Config", "close Config"]


def test_scope_closes_async_resources_from_sync_code() -> None:
    """A sync tool scope closes its async resources too, and the context's own loop stays for the next scope."""
    log: Log = []
    with registry_of(log, Scope.TOOL_CALL).open() as ctx:
        for _ in range(2):
            scope: ToolScope
            with ctx.tool_scope() as scope:
                scope.get(Client)
            assert scope.close_errors == ()
        assert len(loop_threads()) == 1
    assert log.count("disconnect") == 2
    assert loop_threads() == []
