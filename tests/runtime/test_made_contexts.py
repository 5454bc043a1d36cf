"""Contexts that tests make: any form of resources, built when asked for, closed when told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from weakincentives.errors import ResourcesClosedError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, ResourceRegistry, Scope
from weakincentives.runtime import EffectLedger
from weakincentives.session import Session
from weakincentives.testing import execute_tool, make_context, make_context_with_files, transactional


@dataclass
class Config:
    url: str


class Client:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Tracer:
    def __init__(self) -> None:
        self.spans: list[str] = []


built: list[str] = []


def _config(_: object) -> Config:
    built.append("config")
    return Config("https://example.org")


def registry() -> ResourceRegistry:
    """As the documents build one: lazily, one from another, and one that is fresh for each call."""
    built.clear()
    return ResourceRegistry.of(
        Binding(Config, _config),
        Binding(Client, lambda r: Client(r.get(Config))),
        Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL),
    )


def fetch(params: None, *, context: ToolContext) -> ToolResult[str]:
    context.resources.get(Tracer).spans.append("fetch")
    return ToolResult.ok(context.resources.get(Client).config.url)


def test_a_context_of_a_registry_builds_what_is_asked_for() -> None:
    """`ToolContext(resources=registry)`: lazily, once, with what each provider needs."""
    context = ToolContext(session=Session(), resources=registry())
    assert built == []
    assert (Client in context.resources, Filesystem in context.resources) == (True, False)
    assert fetch(None, context=context).value == "https://example.org"
    assert built == ["config"]
    assert context.resources.get(Client) is context.resources.get(Client)
    assert context.resources.get(Tracer).spans == ["fetch"]
    assert context.filesystem is None
    assert "password" not in repr(context)
    assert "resources=ResourceRegistry(Config, Client, Tracer)" in repr(context)


def test_make_context_takes_a_registry() -> None:
    """Beside its own filesystem; one in the registry stands instead."""
    context = make_context(resources=registry())
    assert fetch(None, context=context).success
    assert context.filesystem is not None
    files = InMemoryFilesystem({"a.txt": "a"})
    context = make_context(resources=ResourceRegistry.build({Filesystem: files}))
    assert context.filesystem is files


def test_make_context_takes_bindings_by_type() -> None:
    """A mapping may mix instances and bindings."""
    context = make_context_with_files(["a.txt"], resources={Config: Config("x"), Client: Binding(Client, lambda r: Client(r.get(Config)))})  # fmt: skip  # noqa: E501
    assert context.resources.get(Client).config.url == "x"
    assert context.filesystem is not None
    assert context.filesystem.exists("a.txt")


def test_a_made_context_closes_what_it_built() -> None:
    """At the end of `with`, newest first; an instance that was handed in stays its owner's."""
    given = Client(Config("given"))
    with make_context(resources=registry()) as context:
        client = context.resources.get(Client)
    assert client.closed == 1
    assert context.resources.get(Client) is not client  # it opens anew
    with make_context(resources={Client: given}) as context:
        assert context.resources.get(Client) is given
    assert given.closed == 0


def test_async_providers_are_awaited() -> None:
    """`aget`, as in a handler."""

    async def connect(_: object) -> Config:
        return Config("later")

    async def main() -> str:
        with make_context(resources=ResourceRegistry.of(Binding(Config, connect))) as context:
            return (await context.resources.aget(Config)).url

    assert asyncio.run(main()) == "later"


def test_transactional_works_on_what_the_context_built() -> None:
    """The call has the context's singletons, a tracer of its own, and closes neither."""
    tool = Tool[None, str](name="fetch", description="Fetch.", handler=fetch)
    for resources in (make_context(resources=registry()), ToolContext(resources=registry())):
        client = resources.resources.get(Client)
        assert transactional(tool)(None, context=resources).value == "https://example.org"
        assert resources.resources.get(Client) is client
        assert client.closed == 0
        assert resources.resources.get(Tracer).spans == []


def test_transactional_undoes_files_that_were_built() -> None:
    """A lazily built filesystem takes part like one that was handed in."""

    def write(params: None, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("b.txt", "b")
        return ToolResult.error("No.")

    tool = Tool[None, str](name="write", description="Write.", handler=write)
    binding = Binding(Filesystem, lambda _: InMemoryFilesystem({"a.txt": "a"}))
    context = make_context(resources=ResourceRegistry.of(binding))
    assert not transactional(tool)(None, context=context).success
    assert context.filesystem is not None
    assert (context.filesystem.exists("a.txt"), context.filesystem.exists("b.txt")) == (True, False)


def test_an_unopened_registry_still_says_how_to_open_it() -> None:
    """A registry itself builds nothing."""
    with pytest.raises(ResourcesClosedError, match=r"registry\.open\(\)"):
        registry().get(Client)


def test_execute_tool_takes_a_ledger() -> None:
    """An idempotent tool runs once per key over all calls that share the ledger, whatever their session."""
    runs: list[str] = []

    def pay(params: None, *, context: ToolContext) -> ToolResult[str]:
        runs.append("paid")
        return ToolResult.ok("paid")

    tool = Tool[None, str](name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig(scope="global"))
    ledger = EffectLedger()
    assert execute_tool(tool, effect_ledger=ledger).outcome == "succeeded"
    assert execute_tool(tool, effect_ledger=ledger).outcome == "replayed"
    assert execute_tool(tool, effect_ledger=EffectLedger()).outcome == "succeeded"
    assert runs == ["paid", "paid"]
