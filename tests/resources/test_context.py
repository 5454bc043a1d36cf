"""The life of a context: built on first use, closed newest first."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.resources.parts import Builder, Client, Config, Part, Quiet, Report, Span, Tracer, boom

from weakincentives.errors import (
    ProviderError,
    ResourceCycleError,
    ResourcesClosedError,
    ResourceScopeError,
    UnboundResourceError,
)
from weakincentives.resources import Binding, Resolver, ResourceRegistry, Scope

Log = list[str]


def chain(log: Log, **scopes: Scope) -> ResourceRegistry:
    """Report needs Client needs Config."""

    def client(r: Resolver) -> Client:
        r.get(Config)
        return Client(log)

    def report(r: Resolver) -> Report:
        r.get(Client)
        return Report(log)

    return ResourceRegistry.of(
        Binding(Report, report, scope=scopes.get("report", Scope.SINGLETON)),
        Binding(Client, client, scope=scopes.get("client", Scope.SINGLETON)),
        Binding(Config, lambda r: Config(log), scope=scopes.get("config", Scope.SINGLETON)),
    )


def test_singletons_are_built_on_first_use_and_closed_newest_first() -> None:
    """A SINGLETON is built by the first `get`, after what it needs, shared, and closed before what it needs."""
    log: Log = []
    with chain(log).open() as ctx:
        assert log == []
        report = ctx.get(Report)
        assert ctx.get(Report) is report
        assert ctx.get(Client) is ctx.get(Client)
        assert log == ["make Config", "make Client", "make Report"]
    assert log[3:] == ["close Report", "close Client", "close Config"]


def test_instances_handed_in_are_left_alone() -> None:
    """Neither `post_construct` nor `close` is called on an instance that was handed in, or on its aliases."""
    log: Log = []

    class Handed(Part):
        def post_construct(self) -> None:
            self.log.append("post_construct")

    handed = Handed(log)
    registry = ResourceRegistry.of(
        Binding.instance(Handed, handed),
        Binding(Part, lambda r: r.get(Handed)),
        Binding(object, lambda r: r.get(Handed), scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx, ctx.tool_scope() as scope:
        assert ctx.get(Part) is scope.get(object) is handed
    assert log == ["make Handed"]


def test_an_alias_is_closed_once() -> None:
    """A resource that is bound under two types through `r.get` is set up and closed once, with its own binding."""
    log: Log = []
    registry = ResourceRegistry.of(
        Binding(Part, lambda r: r.get(Config)),
        Binding(Config, lambda r: Config(log)),
        Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL),
        Binding(object, lambda r: r.get(Tracer), scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx:
        assert ctx.get(Part) is ctx.get(Config)
        with ctx.tool_scope() as scope:
            assert scope.get(object) is scope.get(Tracer)
        assert log == ["make Config", "make Tracer", "close Tracer"]
    assert log[3:] == ["close Config"]


def test_blocks_nest_and_the_outermost_closes() -> None:
    """Entering a context that is entered already is fine; only the outermost block closes it."""
    log: Log = []
    ctx = chain(log).open()
    with ctx:
        with ctx as inner:
            assert inner is ctx
            config = ctx.get(Config)
        assert ctx.get(Config) is config
        assert log == ["make Config"]
    assert log == ["make Config", "close Config"]


def test_a_context_opens_again_with_fresh_singletons() -> None:
    """After it closed, `get` raises; entering it again builds anew."""
    log: Log = []
    ctx = chain(log).open()
    with ctx:
        first = ctx.get(Config)
    assert not ctx.is_open
    with pytest.raises(ResourcesClosedError, match="enter the context again"):
        ctx.get(Config)
    with pytest.raises(ResourcesClosedError):
        ctx.get(Quiet, None)
    with pytest.raises(ResourcesClosedError):
        ctx.tool_scope()
    with ctx:
        assert ctx.is_open
        assert ctx.get(Config) is not first
    assert log == ["make Config", "close Config"] * 2


def test_a_context_opens_on_first_use_and_closes_on_demand() -> None:
    """Without a `with` block the first `get` opens it, and `close()` closes it, any number of times."""
    log: Log = []
    ctx = chain(log).open()
    assert not ctx.is_open
    ctx.get(Config)
    assert ctx.is_open
    ctx.open()
    ctx.close()
    ctx.close()
    assert log == ["make Config", "close Config"]


def test_close_inside_a_block_closes_at_once() -> None:
    """`close()` does not wait for blocks to be left, and leaving them then does nothing more."""
    log: Log = []
    with chain(log).open() as ctx:
        ctx.get(Config)
        ctx.close()
        assert log == ["make Config", "close Config"]
    assert log == ["make Config", "close Config"]


def test_eager_resources_are_built_on_opening() -> None:
    """An eager SINGLETON is built when the context opens, an eager TOOL_CALL resource when the tool scope does."""
    log: Log = []
    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log), eager=True),
        Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL, eager=True),
        Binding(Client, lambda r: Client(log)),
    )
    with registry.open() as ctx:
        assert log == ["make Config"]
        with ctx:
            assert log == ["make Config"]
        with ctx.tool_scope():
            assert log == ["make Config", "make Tracer"]
    assert log[2:] == ["close Tracer", "close Config"]


def test_a_failing_eager_resource_closes_what_was_opened() -> None:
    """When an eager resource cannot be built, entering raises and everything built before is closed."""
    log: Log = []
    ctx = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log), eager=True), Binding(Client, boom, eager=True)
    ).open()
    for _ in range(2):
        with pytest.raises(ProviderError), ctx:
            pytest.fail("must not be entered")
        assert not ctx.is_open
    assert log == ["make Config", "close Config"] * 2
    scoped = ResourceRegistry.of(
        Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL, eager=True),
        Binding(Client, boom, scope=Scope.TOOL_CALL, eager=True),
    )
    with scoped.open() as ctx, pytest.raises(ProviderError), ctx.tool_scope():
        pytest.fail("must not be entered")
    assert log[4:] == ["make Tracer", "close Tracer"]


def test_tool_call_resources_are_fresh_in_each_scope() -> None:
    """A TOOL_CALL resource is one object within a scope, another in the next, and closed at the scope's end."""
    log: Log = []

    def span(r: Resolver) -> Span:
        r.get(Tracer)
        r.get(Config)
        return Span(log)

    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)),
        Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL),
        Binding(Span, span, scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx:
        with ctx.tool_scope() as one, ctx.tool_scope() as two:
            assert one.get(Span) is one.get(Span)
            assert one.get(Tracer) is not two.get(Tracer)
            assert one.get(Config) is two.get(Config) is ctx.get(Config)
        assert log == [
            *("make Tracer", "make Config", "make Span", "make Tracer"),
            *("close Tracer", "close Span", "close Tracer"),
        ]
    assert log[-1] == "close Config"


def test_a_scope_that_is_over_is_refused() -> None:
    """After its end a tool scope finds nothing, SINGLETONs included, and cannot be entered again."""
    with chain([]).open() as ctx:
        ctx.get(Config)
        with ctx.tool_scope(overrides={Quiet: Quiet()}) as scope:
            assert Quiet in scope
        for wanted in (Config, Quiet, Client):
            with pytest.raises(ResourcesClosedError, match="tool scope is over"):
                scope.get(wanted)
        with pytest.raises(ResourcesClosedError), scope:
            pytest.fail("must not be entered")
        scope.close()


def test_a_scope_ends_with_its_context() -> None:
    """A tool scope that outlives its context finds no SINGLETONs, and still closes its own resources."""
    log: Log = []
    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)), Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL)
    )
    with registry.open() as ctx:
        ctx.get(Config)
        scope = ctx.tool_scope()
        scope.get(Tracer)
    with pytest.raises(ResourcesClosedError):
        scope.get(Config)
    with ctx, pytest.raises(ResourcesClosedError):
        scope.get(Config)
    scope.close()
    assert log[-1] == "close Tracer"


def test_prototypes_are_new_each_time_and_closed_where_they_were_asked_for() -> None:
    """Each `get` of a PROTOTYPE builds one; a tool scope closes those asked for in it, the context the others."""
    log: Log = []
    registry = ResourceRegistry.of(Binding(Builder, lambda r: Builder(log), scope=Scope.PROTOTYPE))
    with registry.open() as ctx:
        assert ctx.get(Builder) is not ctx.get(Builder)
        with ctx.tool_scope() as scope:
            assert scope.get(Builder) is not scope.get(Builder)
            assert log == ["make Builder"] * 4
        assert log[4:] == ["close Builder"] * 2
    assert log[6:] == ["close Builder"] * 2


def test_a_prototype_inside_a_singleton_lives_as_long_as_it() -> None:
    """A PROTOTYPE built for a SINGLETON is closed with the context, even if a tool scope caused it."""
    log: Log = []

    def client(r: Resolver) -> Client:
        r.get(Builder)
        return Client(log)

    registry = ResourceRegistry.of(
        Binding(Client, client), Binding(Builder, lambda r: Builder(log), scope=Scope.PROTOTYPE)
    )
    with registry.open() as ctx:
        with ctx.tool_scope() as scope:
            scope.get(Client)
        assert log == ["make Builder", "make Client"]
    assert log[2:] == ["close Client", "close Builder"]


def test_overrides_win_in_their_scope_only() -> None:
    """Overrides are found in their scope and by providers of its own resources, not by SINGLETONs, and not closed."""
    log: Log = []

    class Pair:
        def __init__(self, r: Resolver) -> None:
            self.config = r.get(Config)

    class Short(Pair): ...

    class Shared(Pair): ...

    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)),
        Binding(Short, Short, scope=Scope.TOOL_CALL),
        Binding(Shared, Shared),
        Binding(Part, lambda r: r.get(Config), scope=Scope.PROTOTYPE),
    )
    guarded = Config(log)
    with registry.open() as ctx:
        with ctx.tool_scope(overrides={Config: guarded, Quiet: Quiet()}) as scope:
            assert scope.get(Config) is guarded
            assert scope.get(Short).config is guarded
            assert scope.get(Part) is guarded
            assert scope.get(Shared).config is not guarded
            assert Quiet in scope
            assert isinstance(scope.get(Quiet), Quiet)
        assert log == ["make Config", "make Config"]
        assert Quiet not in ctx
        with ctx.tool_scope() as scope:
            assert scope.get(Config) is ctx.get(Config)
            assert scope.get(Quiet, None) is None
    assert log[2:] == ["close Config"]


def test_in_asks_for_bindings_without_building() -> None:
    """`T in` a context, scope or provider's resolver says whether it is bound, and builds nothing."""
    log: Log = []
    seen: list[bool] = []

    def client(r: Resolver) -> Client:
        seen.extend([Config in r, Quiet in r])
        return Client(log)

    registry = ResourceRegistry.of(Binding(Config, lambda r: Config(log)), Binding(Client, client))
    with registry.open() as ctx, ctx.tool_scope() as scope:
        assert Config in ctx
        assert Config in scope
        assert Quiet not in ctx
        assert Quiet not in scope
        assert log == []
        scope.get(Client)
    assert seen == [True, False]


def test_a_default_does_not_hide_a_missing_dependency() -> None:
    """`get(T, default)` still raises when T is bound but something it needs is not, and the error shows the path."""
    registry = ResourceRegistry.of(Binding(Report, lambda r: r.get(Client)), Binding(Client, lambda r: r.get(Config)))
    with registry.open() as ctx:
        with pytest.raises(UnboundResourceError, match=r"Nothing is bound for Config \(needed by Report -> Client\)"):
            ctx.get(Report, None)
        assert ctx.get(Quiet, None) is None
        assert ctx.get(Quiet, default="none") == "none"


def test_a_provider_may_ask_with_a_default() -> None:
    """`r.get(T, default)` lets a provider do without."""
    with ResourceRegistry.of(Binding(list, lambda r: [r.get(Config, None)])).open() as ctx:
        assert ctx.get(list) == [None]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_circle_shows_its_real_path(scope: Scope) -> None:
    """Providers that need one another raise with the circle's path, without what merely led there."""
    registry = ResourceRegistry.of(
        Binding(Tracer, lambda r: r.get(Report), scope=scope),
        Binding(Report, lambda r: r.get(Client), scope=scope),
        Binding(Client, lambda r: r.get(Config), scope=scope),
        Binding(Config, lambda r: r.get(Report), scope=scope),
        Binding(Span, lambda r: r.get(Span), scope=scope),
    )
    with registry.open() as ctx, ctx.tool_scope() as tools:
        for _ in range(2):
            with pytest.raises(ResourceCycleError, match=r": Report -> Client -> Config -> Report\."):
                tools.get(Tracer)
        with pytest.raises(ResourceCycleError, match=r": Span -> Span\."):
            tools.get(Span)


def test_a_circle_through_the_context_itself_is_seen() -> None:
    """A provider that asks the context instead of its resolver, or in `post_construct`, does not hang either."""

    class Late:
        def post_construct(self) -> None:
            ctx.get(Late)

    registry = ResourceRegistry.of(
        Binding(Report, lambda r: ctx.get(Client)),
        Binding(Client, lambda r: ctx.get(Report)),
        Binding(Late, lambda r: Late()),
    )
    with registry.open() as ctx:
        with pytest.raises(ResourceCycleError, match="Report -> Client -> Report"):
            ctx.get(Report)
        with pytest.raises(ResourceCycleError, match="Late -> Late"):
            ctx.get(Late)


def test_a_singleton_may_not_hold_a_tool_call_resource() -> None:
    """A SINGLETON that asks for a TOOL_CALL resource, itself or through a PROTOTYPE, is refused with the path."""
    log: Log = []
    registry = ResourceRegistry.of(
        Binding(Report, lambda r: r.get(Client)),
        Binding(Client, lambda r: r.get(Tracer), scope=Scope.PROTOTYPE),
        Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL),
    )
    with registry.open() as ctx:
        with ctx.tool_scope() as scope:
            with pytest.raises(ResourceScopeError, match=r"Report asks .* Tracer \(Report -> Client -> Tracer\)"):
                scope.get(Report)
            assert isinstance(scope.get(Tracer), Tracer)
        with pytest.raises(ResourceScopeError, match=r"with ctx\.tool_scope\(\) as scope: scope\.get\(Tracer\)"):
            ctx.get(Tracer)
        with pytest.raises(ResourceScopeError, match=r"Client asks .*Client -> Tracer"):
            ctx.get(Client)


def test_a_provider_that_raises_is_named_with_its_cause_and_tried_again() -> None:
    """A failing provider becomes a `ProviderError` with path and cause, and its failure is not kept."""
    log: Log = []
    attempts: list[int] = []

    def flaky(_: Resolver) -> Config:
        attempts.append(1)
        return boom() if len(attempts) == 1 else Config(log)

    def client(r: Resolver) -> Client:
        r.get(Config)
        return Client(log)

    with ResourceRegistry.of(Binding(Config, flaky), Binding(Client, client)).open() as ctx:
        with pytest.raises(ProviderError) as caught:
            ctx.get(Client)
        assert "The provider of Config (needed by Client) raised ValueError: no route to host" in str(caught.value)
        assert isinstance(caught.value.__cause__, ValueError)
        assert log == []
        assert ctx.get(Client) is ctx.get(Client)
    assert log == ["make Config", "make Client", "close Client", "close Config"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_unchanged(stop: type[BaseException]) -> None:
    """Ctrl-C in a provider or in `post_construct` is no `ProviderError`; the half-built resource is closed."""
    log: Log = []

    class Slow(Part):
        def post_construct(self) -> None:
            raise stop

    def interrupted(_: Resolver) -> Config:
        raise stop

    with ResourceRegistry.of(Binding(Slow, lambda r: Slow(log)), Binding(Config, interrupted)).open() as ctx:
        for wanted in (Slow, Config):
            with pytest.raises(stop):
                ctx.get(wanted)
    assert log == ["make Slow", "close Slow"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "returned None, which is not a Config"), (3, "returned an instance of int")]
)
def test_a_provider_must_return_what_it_is_bound_to(value: Any, text: str) -> None:
    """None or another type from a provider is a `ProviderError` that names it."""
    registry = ResourceRegistry.of(Binding(Config, lambda r: value))
    with registry.open() as ctx, pytest.raises(ProviderError, match=f"The provider of Config {text}"):
        ctx.get(Config)


def test_a_wrong_result_is_closed_unless_it_is_somebody_elses() -> None:
    """What a provider built of the wrong type is closed; a wrong instance that was handed in is not."""
    log: Log = []
    given = Tracer(log)
    registry = ResourceRegistry.of(
        Binding.instance(Tracer, given),
        Binding(Client, lambda r: r.get(Tracer)),  # type: ignore[arg-type,return-value]
        Binding(Config, lambda r: Report(log)),  # type: ignore[arg-type,return-value]
    )
    with registry.open() as ctx:
        for wanted in (Client, Config):
            with pytest.raises(ProviderError):
                ctx.get(wanted)
    assert log == ["make Tracer", "make Report", "close Report"]


def test_post_construct_runs_before_the_resource_is_shared() -> None:
    """`post_construct()` is called once, after the provider and before anybody gets the resource."""
    log: Log = []

    class Db(Part):
        def post_construct(self) -> None:
            self.log.append("connect")

    with ResourceRegistry.of(Binding(Db, lambda r: Db(log))).open() as ctx:
        ctx.get(Db)
        ctx.get(Db)
    assert log == ["make Db", "connect", "close Db"]


def test_a_failing_post_construct_closes_the_half_built_resource() -> None:
    """When `post_construct()` raises, the resource is closed, not kept, and the error has the cause."""
    log: Log = []

    class Db(Part):
        def post_construct(self) -> None:
            boom()

    with ResourceRegistry.of(Binding(Db, lambda r: Db(log))).open() as ctx:
        for _ in range(2):
            with pytest.raises(ProviderError, match=r"post_construct\(\) of Db raised ValueError") as caught:
                ctx.get(Db)
            assert isinstance(caught.value.__cause__, ValueError)
    assert log == ["make Db", "close Db"] * 2


class Bad(Part):
    def close(self) -> None:
        super().close()
        boom()


def test_closing_errors_are_logged_and_kept_and_every_resource_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """A resource that fails to close stops no other; the error is logged with its traceback and kept."""
    log: Log = []
    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config(log)), Binding(Bad, lambda r: Bad(log)), Binding(Client, lambda r: Client(log))
    )
    ctx = registry.open()
    with caplog.at_level(logging.ERROR, logger="weakincentives.resources"), ctx:
        for wanted in registry:
            ctx.get(wanted)
    assert log[3:] == ["close Client", "close Bad", "close Config"]
    assert [str(error) for error in ctx.close_errors] == ["no route to host"]
    (record,) = caplog.records
    assert record.getMessage() == "Closing the resource Bad failed."
    assert record.exc_info
    with ctx:
        assert ctx.close_errors == ()


def test_a_closing_error_never_replaces_the_error_of_the_block() -> None:
    """The exception that ended a block comes out, whatever closing does."""
    registry = ResourceRegistry.of(Binding(Bad, lambda r: Bad([]), scope=Scope.TOOL_CALL))
    with registry.open() as ctx:
        scope = ctx.tool_scope()
        with pytest.raises(KeyError, match="body"), scope:  # noqa: PT012 - the block is the point
            scope.get(Bad)
            raise KeyError("body")
        assert len(scope.close_errors) == 1
        assert ctx.close_errors == ()


def test_an_interrupt_while_closing_is_raised_after_all_are_closed() -> None:
    """Ctrl-C in one `close()` comes out, after the others were closed."""
    log: Log = []

    class Stuck(Part):
        def close(self) -> None:
            raise KeyboardInterrupt

    registry = ResourceRegistry.of(Binding(Config, lambda r: Config(log)), Binding(Stuck, lambda r: Stuck(log)))
    ctx = registry.open()
    with pytest.raises(KeyboardInterrupt), ctx:  # noqa: PT012 - the block is the point
        ctx.get(Config)
        ctx.get(Stuck)
    assert log[-1] == "close Config"


def test_lifecycle_methods_are_found_on_the_object_itself() -> None:
    """`close` counts on the class or as an own attribute, not when `__getattr__` makes it up or it is no method."""
    log: Log = []

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return lambda: log.append(f"sent {name}")

    class Quote:
        close = 12.5

    registry = ResourceRegistry.of(
        Binding(SimpleNamespace, lambda r: SimpleNamespace(close=lambda: log.append("closed"))),
        Binding(Proxy, lambda r: Proxy()),
        Binding(Quote, lambda r: Quote()),
        Binding(type, lambda r: Config),
    )
    with registry.open() as ctx:
        for wanted in registry:
            ctx.get(wanted)
    assert log == ["closed"]
    assert ctx.close_errors == ()


def test_a_resolver_may_be_kept() -> None:
    """A provider's resolver works after construction, as a plain one, and is over when its scope is."""
    log: Log = []

    class Factory:
        def __init__(self, r: Resolver) -> None:
            self.r = r

    def config(r: Resolver) -> Config:
        r.get(Factory)
        return Config(log)

    registry = ResourceRegistry.of(Binding(Factory, Factory), Binding(Config, config))
    with registry.open() as ctx:
        factory = ctx.get(Factory)
        assert factory.r.get(Config) is ctx.get(Config)
    with pytest.raises(ResourcesClosedError):
        factory.r.get(Config)


def test_a_kept_resolver_sees_no_circle_that_is_over() -> None:
    """What a kept resolver asks for later may need a new one of the resource that keeps it."""

    class Factory:
        def __init__(self, r: Resolver) -> None:
            self.r = r

    def config(r: Resolver) -> Config:
        r.get(Factory)
        return Config([])

    registry = ResourceRegistry.of(Binding(Factory, Factory, scope=Scope.PROTOTYPE), Binding(Config, config))
    with registry.open() as ctx:
        factory = ctx.get(Factory)
        assert factory.r.get(Config) is ctx.get(Config)


def test_a_prototype_passed_on_is_set_up_once() -> None:
    """A PROTOTYPE that another provider passes on has its `post_construct()` called once, though it is not kept."""
    log: Log = []

    class Plan:
        def post_construct(self) -> None:
            log.append("plan")

    registry = ResourceRegistry.of(
        Binding(Plan, lambda r: Plan(), scope=Scope.PROTOTYPE),
        Binding(object, lambda r: r.get(Plan), scope=Scope.PROTOTYPE),
    )
    with registry.open() as ctx, ctx.tool_scope() as scope:
        ctx.get(object)
        scope.get(object)
    assert log == ["plan", "plan"]


def test_a_provider_may_open_a_tool_scope() -> None:
    """A SINGLETON's provider may use TOOL_CALL resources in a scope that it opens and ends itself."""
    log: Log = []

    def config(_: Resolver) -> Config:
        with ctx.tool_scope() as scope:
            scope.get(Tracer)
        return Config(log)

    registry = ResourceRegistry.of(
        Binding(Config, config), Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL)
    )
    with registry.open() as ctx:
        ctx.get(Config)
    assert log == ["make Tracer", "close Tracer", "make Config", "close Config"]


def test_a_resource_finished_after_the_end_is_closed_and_refused() -> None:
    """A provider that outlasts its context has its result closed, and its caller is told."""
    log: Log = []

    def config(_: Resolver) -> Config:
        ctx.close()
        return Config(log)

    with ResourceRegistry.of(Binding(Config, config)).open() as ctx, pytest.raises(ResourcesClosedError):
        ctx.get(Config)
    assert log == ["make Config", "close Config"]
