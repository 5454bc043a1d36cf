"""Document 000, "ToolContext, Resources, and Filesystem": the registry block as printed."""

from __future__ import annotations

import pytest


class MyHttpClient:
    def __init__(self, *args: object) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_instances_are_bound_by_type() -> None:
    """The block that passes an HTTP client of one's own works, and the client stays its owner's."""
    from weakincentives.resources import Binding, ResourceRegistry

    registry = ResourceRegistry.of(
        Binding.instance(MyHttpClient, MyHttpClient(...)),
    )

    client = registry.get(MyHttpClient)
    with registry.open() as ctx:
        assert ctx.get(MyHttpClient) is client
    assert not client.closed


def test_the_three_scopes() -> None:
    """SINGLETON is one instance, TOOL_CALL fresh per tool invocation, PROTOTYPE fresh on every access."""
    from weakincentives.resources import Binding, ResourceRegistry, Scope

    class One: ...

    class PerCall: ...

    class Each: ...

    registry = ResourceRegistry.build(
        {
            One: Binding(One, lambda r: One()),
            PerCall: Binding(PerCall, lambda r: PerCall(), scope=Scope.TOOL_CALL),
            Each: Binding(Each, lambda r: Each(), scope=Scope.PROTOTYPE),
        }
    )
    assert Binding(One, lambda r: One()).scope is Scope.SINGLETON
    with registry.open() as ctx:
        with ctx.tool_scope() as first:
            one, call = first.get(One), first.get(PerCall)
            assert first.get(PerCall) is call
            assert first.get(Each) is not first.get(Each)
        with ctx.tool_scope() as second:
            assert second.get(One) is one
            assert second.get(PerCall) is not call


def test_the_mapping_of_the_advanced_block() -> None:
    """The mapping that 000 binds to a prompt, as printed, builds a registry whose resources are made lazily."""
    from weakincentives.resources import Binding, ResourceRegistry, Scope

    built: list[str] = []

    class Config:
        url = "https://api.example.com"

        @staticmethod
        def from_env() -> Config:
            built.append("config")
            return Config()

    class HTTPClient:
        def __init__(self, base_url: str) -> None:
            built.append("client")
            self.base_url = base_url

    class Tracer: ...

    resources = {
        Config: Binding(Config, lambda r: Config.from_env()),
        HTTPClient: Binding(HTTPClient, lambda r: HTTPClient(r.get(Config).url)),
        Tracer: Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
    }

    with ResourceRegistry.build(resources).open() as ctx:
        assert built == []
        assert ctx.get(HTTPClient).base_url == "https://api.example.com"
        assert built == ["config", "client"]
        with pytest.raises(Exception, match="tool_scope"):
            ctx.get(Tracer)
