"""002: "Using MainLoop (Recommended)" and "Use MainLoop for Resource Management", as printed."""

import os
from dataclasses import dataclass

import pytest

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.runtime import InProcessDispatcher, MainLoop, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(slots=True, frozen=True)
class Config:
    url: str

    @staticmethod
    def from_env() -> "Config":
        return Config(os.environ["BASE_URL"])


class HTTPClient:
    closed = 0

    def __init__(self, url: str):
        self.url = url

    def close(self) -> None:
        self.closed += 1


class Tracer:
    def __init__(self):
        self.spans: list[str] = []


@dataclass(frozen=True)
class Fetch:
    path: str = "/"


clients: list[HTTPClient] = []


def _fetch(params: Fetch, *, context: ToolContext) -> ToolResult[str]:
    client = context.resources.get(HTTPClient)
    clients.append(client)
    tracer = context.resources.get(Tracer, None)
    if tracer is not None:
        tracer.spans.append(params.path)
    return ToolResult.ok(f"{client.url}{params.path}")


class MyLoop(MainLoop[str, str]):
    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        fetch = Tool[Fetch, str](name="fetch", description="Fetch a page.", handler=_fetch)
        template = PromptTemplate[str](
            ns="docs", key="loop", sections=[MarkdownSection(title="Task", template="Fetch it.", tools=[fetch])]
        )
        return Prompt(template), Session(bus=self.bus)


@pytest.fixture
def adapter():
    clients.clear()  # the other test's
    return ScriptedAdapter(call("fetch"), say("first"), call("fetch", path="/b"), say("second"))


def test_using_main_loop(adapter, monkeypatch):
    """Bindings of the config are built for each request and closed with it; a request adds its own."""
    monkeypatch.setenv("BASE_URL", "http://example.test")
    bus, request, tracer = InProcessDispatcher(), "the page", Tracer()

    from weakincentives.runtime import MainLoopConfig
    from weakincentives.resources import Binding, Scope

    # Configure resources at the loop level
    config = MainLoopConfig(
        resources={
            Config: Binding(Config, lambda r: Config.from_env()),
            HTTPClient: Binding(
                HTTPClient,
                lambda r: HTTPClient(r.get(Config).url)
            ),
        }
    )
    loop = MyLoop(adapter=adapter, bus=bus, config=config)

    # Resources bound automatically
    response, session = loop.execute(request)
    assert (response.text, response.output) == ("first", "first")
    assert [client.closed for client in clients] == [1]
    assert session[ToolInvoked].latest().result.value == "http://example.test/"

    # Override per-request
    response, session = loop.execute(
        request,
        resources={Tracer: tracer}
    )
    assert response.text == "second"
    assert tracer.spans == ["/b"]
    assert [client.closed for client in clients] == [1, 1]
    assert clients[0] is not clients[1]


def test_use_main_loop_for_resource_management(adapter):
    """The printed good way works, and so does the manual one."""
    from weakincentives.runtime import MainLoopConfig

    bus, request, http_client = InProcessDispatcher(), "the page", HTTPClient("http://example.test")

    # Good
    loop = MyLoop(
        adapter=adapter,
        bus=bus,
        config=MainLoopConfig(resources={HTTPClient: http_client})
    )
    response, session = loop.execute(request)
    assert session[ToolInvoked].latest().success
    assert http_client.closed == 0

    prompt, session = loop.prepare(request)
    prompt = prompt.bind(resources={HTTPClient: http_client})

    # Bad - manual lifecycle
    with prompt.resources:
        response = adapter.evaluate(prompt, session)
    assert response.text == "second"
