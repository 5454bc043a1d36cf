"""Document 002, "Resource Management": the blocks on bindings, registries, scopes and lifecycle, as printed."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest


def test_dependency_injection_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dependency injection example runs as printed; the comments in it are true."""
    monkeypatch.setenv("API_KEY", "key")
    monkeypatch.setenv("BASE_URL", "https://api.example.com")
    closed: list[str] = []

    from weakincentives.resources import Binding, ResourceRegistry, Scope

    # Define your dependencies
    @dataclass(slots=True, frozen=True)
    class Config:
        api_key: str
        base_url: str

        @staticmethod
        def from_env() -> Config:
            return Config(
                api_key=os.environ["API_KEY"],
                base_url=os.environ["BASE_URL"]
            )

    class HTTPClient:
        def __init__(self, config: Config):
            self.base_url = config.base_url
            self.headers = {"Authorization": f"Bearer {config.api_key}"}

        def close(self) -> None:
            """Cleanup connections (called automatically)."""
            closed.append("http")

    class Tracer:
        def __init__(self):
            self.spans: list[str] = []

        def record(self, operation: str) -> None:
            self.spans.append(operation)

    # Create registry with dependency graph
    registry = ResourceRegistry.of(
        # Config has no dependencies
        Binding(Config, lambda r: Config.from_env()),

        # HTTPClient depends on Config
        Binding(HTTPClient, lambda r: HTTPClient(r.get(Config))),

        # Tracer is fresh per tool call
        Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
    )

    # Use with lifecycle management
    with registry.open() as ctx:
        # Lazy resolution walks dependency graph
        http = ctx.get(HTTPClient)  # Also resolves Config

        # Tool-scoped resources
        with ctx.tool_scope() as tool_resolver:
            tracer = tool_resolver.get(Tracer)  # Fresh instance
            tracer.record("search_started")

        # Tracer cleaned up here
        assert closed == []
        with ctx.tool_scope() as tool_resolver:
            assert tool_resolver.get(Tracer) is not tracer
    # HTTPClient.close() called automatically here

    assert closed == ["http"]
    assert http.base_url == "https://api.example.com"
    assert http.headers == {"Authorization": "Bearer key"}
    assert tracer.spans == ["search_started"]


def test_lifecycle_protocols() -> None:
    """The lifecycle example runs as printed: `post_construct` connects, `close` closes the connection."""
    events: list[str] = []

    @dataclass
    class Config:
        db_url: str

    @dataclass
    class Connection:
        url: str

        def close(self) -> None:
            events.append(f"close {self.url}")

    def connect(url: str) -> Connection:
        events.append(f"connect {url}")
        return Connection(url)

    from typing import Protocol

    class Closeable(Protocol):
        """Resource that needs explicit cleanup."""
        def close(self) -> None: ...

    class PostConstruct(Protocol):
        """Resource that needs initialization after construction."""
        def post_construct(self) -> None: ...

    # Example resource using both protocols
    class DatabaseConnection:
        def __init__(self, config: Config):
            self.config = config
            self.conn = None  # type: ignore  # noqa: PGH003

        def post_construct(self) -> None:
            """Called automatically after construction."""
            self.conn = connect(self.config.db_url)

        def close(self) -> None:
            """Called automatically when context ends."""
            if self.conn:
                self.conn.close()

    from weakincentives.resources import Binding, ResourceRegistry

    registry = ResourceRegistry.of(
        Binding.instance(Config, Config("db://test")),
        Binding(DatabaseConnection, lambda r: DatabaseConnection(r.get(Config))),
    )
    with registry.open() as ctx:
        assert ctx.get(DatabaseConnection).conn is not None
        assert events == ["connect db://test"]
    assert events == ["connect db://test", "close db://test"]


def test_the_protocols_of_the_library_are_the_printed_ones() -> None:
    """`Closeable` and `PostConstruct` of the library accept what the document's do."""
    from weakincentives.resources import Closeable, PostConstruct

    class Both:
        def close(self) -> None: ...

        def post_construct(self) -> None: ...

    assert isinstance(Both(), Closeable)
    assert isinstance(Both(), PostConstruct)


def test_the_mapping_of_option_two() -> None:
    """The mapping of "Lazy construction with dependencies" and of `MainLoopConfig`, as printed, resolves."""
    from weakincentives.resources import Binding, ResourceRegistry, Scope

    class Config:
        url = "https://api.example.com"

        @staticmethod
        def from_env() -> Config:
            return Config()

    class HTTPClient:
        def __init__(self, base_url: str) -> None:
            self.base_url = base_url

    class Tracer: ...

    resources = {
        # Config constructed first (no dependencies)
        Config: Binding(Config, lambda r: Config.from_env()),

        # HTTPClient depends on Config
        HTTPClient: Binding(
            HTTPClient,
            lambda r: HTTPClient(r.get(Config).url)
        ),

        # Tracer is fresh per tool call
        Tracer: Binding(
            Tracer,
            lambda r: Tracer(),
            scope=Scope.TOOL_CALL
        ),
    }
    tracer = Tracer()
    with ResourceRegistry.build(resources).open() as ctx, ctx.tool_scope() as tools:
        assert tools.get(HTTPClient).base_url == "https://api.example.com"
        assert tools.get(Tracer) is tools.get(Tracer)
    # Override per-request
    merged = ResourceRegistry.build(resources).merge(ResourceRegistry.build({Tracer: tracer}))
    with merged.open() as ctx, ctx.tool_scope() as tools:
        assert tools.get(Tracer) is tracer
