"""Document 000, "ToolContext, Resources, and Filesystem": the blocks that evaluate a prompt, as printed."""

from dataclasses import dataclass

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.session import Session
from weakincentives.testing import ScriptedAdapter, call, say


class HTTPClient:
    def __init__(self, base_url: str = "") -> None:
        self.base_url = base_url
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Tracer:
    made = 0

    def __init__(self) -> None:
        Tracer.made += 1


@dataclass(frozen=True)
class Config:
    url: str

    @staticmethod
    def from_env() -> "Config":
        return Config("https://env.example.com")


@dataclass(frozen=True)
class Params:
    task: str


@dataclass(frozen=True)
class Nothing:
    """No parameters."""


def look(params: Nothing, *, context: ToolContext) -> ToolResult[str]:
    context.resources.get(Tracer, None)
    return ToolResult.ok(context.resources.get(HTTPClient).base_url)


template = PromptTemplate(
    ns="documents",
    key="resources",
    sections=[
        MarkdownSection[Params](
            title="Task",
            template="${task}",
            tools=[Tool[Nothing, str](name="look", description="Look.", handler=look)],
        )
    ],
)


def test_binding_resources_to_prompts():
    """Both ways to bind, and the lifecycle: what WINK built is closed, what was handed in is not."""
    params = Params("Look twice.")
    session = Session()
    adapter = ScriptedAdapter(call("look"), call("look"), say("Seen."))
    Tracer.made = 0
    made = []

    from weakincentives.resources import Binding, Scope
    from weakincentives.prompt import Prompt

    # Simple case: pre-constructed instances
    http_client = HTTPClient(base_url="https://api.example.com")
    prompt = Prompt(template).bind(params, resources={HTTPClient: http_client})

    assert ScriptedAdapter(call("look"), say("Seen.")).evaluate(prompt, session=session).text == "Seen."
    assert not http_client.closed

    # Advanced: lazy construction with dependencies and scopes
    prompt = Prompt(template).bind(params, resources={
        Config: Binding(Config, lambda r: Config.from_env()),
        HTTPClient: Binding(HTTPClient, lambda r: made.append(HTTPClient(r.get(Config).url)) or made[-1]),
        Tracer: Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
    })

    # Use prompt.resources context manager for lifecycle management
    with prompt.resources:
        response = adapter.evaluate(prompt, session=session)
        assert not made[0].closed

    assert response.text == "Seen."
    assert made[0].closed
    assert made[0].base_url == "https://env.example.com"
    assert Tracer.made == 2
