"""001: "Tool", "ToolResult", "ToolContext", "ResourceRegistry", "ToolExample" and the keys of "Idempotency Ledger"."""

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from weakincentives import prompt
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import IdempotencyConfig, ToolContext, ToolResult
from weakincentives.resources import ResourceRegistry

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
PayloadT = TypeVar("PayloadT")
T = TypeVar("T")


@dataclass(frozen=True)
class Params:
    order_id: str = "123"
    idempotency_token: str = "token-abc"


@dataclass(frozen=True)
class Result:
    done: bool = True


def names(printed):
    return [item.name for item in fields(printed)]


def test_tool():
    """The class as printed; ours has all of its fields, with the same defaults."""
    from weakincentives.prompt import ToolExample, ToolHandler

    @dataclass
    class Tool(Generic[ParamsT, ResultT]):
        name: str  # ^[a-z0-9_-]{1,64}$
        description: str  # 1-200 chars
        handler: ToolHandler[ParamsT, ResultT] | None
        accepts_overrides: bool = True
        examples: tuple[ToolExample[ParamsT, ResultT], ...] = ()

    made = prompt.Tool[Params, Result](name="x", description="y", handler=None)
    assert all(hasattr(made, name) for name in names(Tool))
    assert (made.accepts_overrides, made.examples) == (True, ())


def test_tool_handler_signature():
    def handle_tool(
        params: ParamsT,
        *,
        context: ToolContext,
    ) -> ToolResult[ResultT]: ...

    made = prompt.Tool[Params, Result](name="x", description="y", handler=handle_tool)
    assert made.handler is handle_tool


def test_toolresult():
    @dataclass
    class ToolResult(Generic[PayloadT]):
        message: str  # Text forwarded to model
        value: PayloadT | None  # Typed payload (may be None)
        success: bool = True  # Normal vs. failure
        exclude_value_from_context: bool = False  # Hide from provider

    printed = ToolResult(message="m", value=None)
    ours = prompt.ToolResult(message="m", value=None)
    assert [getattr(ours, name) for name in names(ToolResult)] == [getattr(printed, name) for name in names(ToolResult)]


def test_toolresult_result_rendering_protocol():
    class ToolRenderableResult(Protocol):
        def render(self) -> str: ...

    class Rendered:
        def render(self):
            return "text"

    assert isinstance(Rendered(), prompt.ToolRenderableResult)
    assert prompt.ToolResult.ok(Rendered()).render() == "OK\ntext"


def test_toolcontext():
    from weakincentives.budget import BudgetTracker
    from weakincentives.deadlines import Deadline
    from weakincentives.prompt import PromptProtocol, ProviderAdapterProtocol, RenderedPromptProtocol, SessionProtocol

    @dataclass(slots=True, frozen=True)
    class ToolContext:
        prompt: PromptProtocol[Any]
        rendered_prompt: RenderedPromptProtocol[Any] | None
        adapter: ProviderAdapterProtocol[Any]
        session: SessionProtocol
        deadline: Deadline | None = None
        budget_tracker: BudgetTracker | None = None
        resources: ResourceRegistry = field(default_factory=ResourceRegistry)

        @property
        def filesystem(self) -> Filesystem | None: ...

    context = prompt.ToolContext()
    assert all(hasattr(context, name) for name in names(ToolContext))
    assert context.filesystem is None
    assert context.session.event_bus is context.session.dispatcher


def test_resourceregistry():
    """As printed, but `get(T, None)` where nothing may be bound: `get(T)` raises then."""

    def my_handler(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        # Access via typed registry
        fs = context.resources.get(Filesystem, None)
        if fs is None:
            return ToolResult(message="No filesystem", value=None, success=False)

        # Common resources have sugar properties
        # These are equivalent:
        fs = context.filesystem
        fs = context.resources.get(Filesystem)

        return ToolResult.ok(Result(), message=str(fs is context.filesystem))

    made = prompt.Tool[Params, Result](name="x", description="y", handler=my_handler)
    assert made.call(Params(), ToolContext()).message == "No filesystem"
    bound = ToolContext(resources=ResourceRegistry.build({Filesystem: InMemoryFilesystem()}))
    assert made.call(Params(), bound).message == "True"


def test_toolexample():
    @dataclass(slots=True, frozen=True)
    class ToolExample(Generic[ParamsT, ResultT]):
        description: str  # <= 200 chars
        input: ParamsT  # Params dataclass instance
        output: ResultT  # Result dataclass instance

    assert names(ToolExample) == names(prompt.ToolExample)


def test_example_registration():
    """The tool; the prompt is tried with the prompts."""
    from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolExample

    @dataclass
    class LookupParams:
        entity_id: str = field(metadata={"description": "ID to fetch"})

    @dataclass
    class LookupResult:
        entity_id: str
        url: str

    def lookup_handler(
        params: LookupParams,
        *,
        context: ToolContext,
    ) -> ToolResult[LookupResult]:
        result = LookupResult(entity_id=params.entity_id, url="https://...")
        return ToolResult(message=f"Fetched {result.entity_id}", value=result)

    lookup_tool = Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch information for an entity ID.",
        handler=lookup_handler,
        examples=(
            ToolExample(
                description="Basic lookup",
                input=LookupParams(entity_id="abc-123"),
                output=LookupResult(entity_id="abc-123", url="https://..."),
            ),
        ),
    )

    template = PromptTemplate(
        ns="examples/tooling",
        key="demo",
        sections=[
            MarkdownSection(
                title="Guidance",
                key="guidance",
                template="Use tools for context.",
                tools=[lookup_tool],
            ),
        ],
    )
    prompt = Prompt(template)

    result = lookup_tool.call(lookup_tool.parse('{"entity_id": "abc-123"}'), ToolContext())
    assert result.message == "Fetched abc-123"
    assert lookup_tool.schema()["properties"]["entity_id"]["description"] == "ID to fetch"
    assert prompt.tools() is not None


def test_idempotency_configuration():
    from weakincentives.prompt import Tool

    def handler(params, *, context):
        return ToolResult.ok(Result())

    tool = Tool[Params, Result](
        name="create_order",
        description="Create a new order",
        handler=handler,
        idempotency=IdempotencyConfig(
            strategy="auto",  # Key strategy
            ttl=timedelta(hours=1),  # Cache duration
            scope="session",  # Key namespace
        ),
    )

    assert tool.idempotency.ttl == timedelta(hours=1)


def test_idempotency_strategies():
    """The keys as the comments print them; the hashes are longer."""
    # AUTO: Hash all params
    IdempotencyConfig(strategy="auto")
    # Key: "session:create_order:abc123def456"

    # PARAMS: Hash specific fields only
    IdempotencyConfig(
        strategy="params",
        param_keys=("order_id",),
    )
    # Key: "session:create_order:789xyz"
    # (Only order_id contributes to key, not other params)

    # CUSTOM: Full control over key computation
    IdempotencyConfig(
        strategy="custom",
        key_fn=lambda p: f"order:{p.order_id}:{p.idempotency_token}",
    )
    # Key: "session:order:123:token-abc"

    # NONE: Disable idempotency
    IdempotencyConfig(strategy="none")
    # Always executes handler, never caches

    import re

    auto = IdempotencyConfig(strategy="auto").key_for("create_order", Params())
    assert re.fullmatch("session:create_order:[0-9a-f]+", auto)
    some = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    assert some.key_for("create_order", Params("1", "a")) == some.key_for("create_order", Params("1", "b"))
    custom = IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order_id}:{p.idempotency_token}")
    assert custom.key_for("create_order", Params()) == "session:order:123:token-abc"
    assert IdempotencyConfig(strategy="none").key_for("create_order", Params()) is None
