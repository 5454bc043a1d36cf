"""000: "Binding resources to prompts" and "Attaching policies to tools"."""

from dataclasses import dataclass

import pytest


@dataclass
class Params:
    topic: str


class HTTPClient:
    def __init__(self, base_url):
        self.base_url = base_url
        self.closed = False

    def close(self):
        self.closed = True


class Config:
    url = "https://config.example.com"

    @staticmethod
    def from_env():
        return Config()


class Tracer:
    pass


class Adapter:
    """Stands in for a provider: says what the prompt's tools would find."""

    def evaluate(self, prompt, *, session):
        return prompt.resources.get(HTTPClient).base_url


@pytest.fixture
def template():
    from weakincentives.prompt import MarkdownSection, PromptTemplate

    return PromptTemplate(
        ns="documents", key="tools", sections=[MarkdownSection[Params](title="Topic", template="${topic}")]
    )


def test_binding_resources_to_prompts(template):
    from weakincentives.resources import Binding, Scope
    from weakincentives.prompt import Prompt

    params, adapter, session = Params("tea"), Adapter(), None

    # Simple case: pre-constructed instances
    http_client = HTTPClient(base_url="https://api.example.com")
    prompt = Prompt(template).bind(params, resources={HTTPClient: http_client})
    assert prompt.resources.get(HTTPClient) is http_client

    # Advanced: lazy construction with dependencies and scopes
    prompt = Prompt(template).bind(params, resources={
        Config: Binding(Config, lambda r: Config.from_env()),
        HTTPClient: Binding(HTTPClient, lambda r: HTTPClient(r.get(Config).url)),
        Tracer: Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
    })

    # Use prompt.resources context manager for lifecycle management
    with prompt.resources:
        response = adapter.evaluate(prompt, session=session)
        built = prompt.resources.get(HTTPClient)

    assert response == "https://config.example.com"
    assert built.closed
    assert not http_client.closed


def test_attaching_policies_to_tools():
    from weakincentives.prompt import SequentialDependencyPolicy

    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
        }
    )

    from weakincentives.prompt import MarkdownSection, Tool

    deploy_tool, test_tool, build_tool = (
        Tool[None, None](name=name, description="Do it.") for name in ("deploy", "test", "build")
    )

    section = MarkdownSection(
        title="Deployment",
        key="deployment",
        template="Deploy the application after testing.",
        tools=(deploy_tool, test_tool, build_tool),
        policies=(deploy_policy,),
    )

    from weakincentives.prompt import Prompt

    prompt = Prompt(name="deployer", sections=[section])
    assert prompt.policies_for("deploy") == (deploy_policy,)
    assert str(prompt.render()) == "## 1. Deployment\n\nDeploy the application after testing."


def test_tool_suites_as_sections():
    """Instructions, tool contracts and session slices in one place."""
    from weakincentives.prompt import MarkdownSection, Prompt, Tool
    from weakincentives.session import Append, Session

    class Suite(MarkdownSection):
        def __init__(self):
            super().__init__(
                title="Notes",
                template="Use note for what matters later.",
                tools=[Tool[None, str](name="note", description="Keep a note.")],
            )

        def install(self, session):
            session[str].register(int, keep)

    def keep(view, event):
        return Append(f"note {event}")

    prompt, session = Prompt(name="p", sections=[Suite()]), Session()
    prompt.install(session)
    session.dispatch(7)
    assert session[str].latest() == "note 7"
    assert [tool.name for tool in prompt.tools()] == ["note"]
