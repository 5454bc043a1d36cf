"""001: "Runtime Dispatch", "Exception Handling", "Session and Telemetry" as they run; the ledger has a file of its own."""

from dataclasses import dataclass
from typing import Any

from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolExample, ToolInvoked, ToolResult
from weakincentives.runtime import Session, ToolCall
from weakincentives.session import Append
from weakincentives.testing import execute_tool, make_session


def test_example_registration_runs():
    """The block as printed, then the tool is called as a model would."""
    from dataclasses import dataclass, field

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

    session = Session()
    executor = ToolExecutor(prompt=prompt, session=session)
    reply = executor.execute(ToolCall("call_1", "lookup_entity", '{"entity_id": "abc-123"}'))
    assert reply.text == 'Fetched abc-123\n{"entity_id":"abc-123","url":"https://..."}'
    (event,) = session[ToolInvoked].all()
    assert (event.tool_name, event.success) == ("lookup_entity", True)
    assert event.params == LookupParams("abc-123")


@dataclass(frozen=True)
class Params:
    fail: bool = False


@dataclass(frozen=True)
class Saved:
    number: int


def save(params: Params, *, context: ToolContext) -> ToolResult[Any]:
    context.session[Saved].append(Saved(0))
    if params.fail:
        raise RuntimeError("broken")
    return ToolResult(message="Saved", value=Saved(1))


tool = Tool[Params, Any](name="save", description="Save.", handler=save)


def test_exception_handling():
    """Unexpected exceptions convert to `ToolResult(success=False, value=None)` whose message guides the model."""
    reply = execute_tool(tool, Params(fail=True))
    assert (reply.result.success, reply.result.value) == (False, None)
    assert reply.result.message == "Internal error: broken"


def test_event_publication_failures_trigger_session_rollback():
    """The printed rule: a subscriber that raises undoes the call."""
    session = make_session()

    def publish(event):
        raise ConnectionError("the bus is down")

    session.event_bus.subscribe(ToolInvoked, publish)
    reply = execute_tool(tool, Params(), session=session)
    assert reply.outcome == "undone"
    assert session[Saved].count() == 0


def test_session_and_telemetry():
    """`ToolInvoked` fires for all outcomes; `success` decides whether the value is routed to its slice."""
    session = make_session()
    session[Saved].register(Saved, lambda view, event: Append(event))
    execute_tool(tool, Params(fail=True), session=session)
    assert session[Saved].all() == ()
    execute_tool(tool, Params(), session=session)
    assert session[Saved].all() == (Saved(0), Saved(1))
    execute_tool(tool, '{"wrong": 1}', session=session)
    assert [event.success for event in session[ToolInvoked].all()] == [False, True, False]


def test_reducers_tolerate_no_value():
    """A result without a value is routed nowhere."""
    session = make_session()

    def quiet(params: Params) -> ToolResult[Any]:
        return ToolResult(message="ok", value=None)

    session[Saved].register(Saved, lambda view, event: 1 / 0)
    assert execute_tool(Tool[Params, Any](name="quiet", description="Q.", handler=quiet), {}, session=session).success


def test_tool_executor_import_path():
    """`from weakincentives.adapters.tool_executor import ToolExecutor`, as 001 prints it."""
    from weakincentives.adapters.tool_executor import ToolExecutor

    from weakincentives import ToolExecutor as documented

    assert ToolExecutor is documented
