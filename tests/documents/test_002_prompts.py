"""002: the blocks that build sections and prompts; the headings are in the names of the tests."""

from dataclasses import dataclass

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import PromptTemplate, Tool, ToolContext


@dataclass
class Params:
    topic: str = "tea"


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
    """Stands in for a provider."""

    def evaluate(self, prompt, session):
        return prompt.resources.get(HTTPClient).base_url


def tool(name):
    return Tool[None, None](name=name, description="Do it.")


@pytest.fixture
def template():
    from weakincentives.prompt import MarkdownSection

    return PromptTemplate(
        ns="documents", key="chapter4", sections=[MarkdownSection[Params](title="Topic", template="${topic}")]
    )


def test_binding_resources_to_prompts_pre_constructed_instances(template):
    params, adapter, session = Params(), Adapter(), None

    from weakincentives.prompt import Prompt

    # Simple case: pass instances directly
    http_client = HTTPClient(base_url="https://api.example.com")
    prompt = Prompt(template).bind(
        params,
        resources={HTTPClient: http_client}
    )

    # Use with context manager for lifecycle
    with prompt.resources:
        response = adapter.evaluate(prompt, session=session)

    assert response == "https://api.example.com"
    assert not http_client.closed


def test_binding_resources_to_prompts_lazy_construction_with_dependencies(template):
    params = Params()

    from weakincentives.prompt import Prompt
    from weakincentives.resources import Binding, Scope

    prompt = Prompt(template).bind(params, resources={
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
    })

    with prompt.resources:
        client = prompt.resources.get(HTTPClient)
        assert client.base_url == "https://config.example.com"
        with prompt.resources.tool_scope() as first, prompt.resources.tool_scope() as second:
            assert first.get(Tracer) is not second.get(Tracer)
    assert client.closed


def test_error_correction_patterns_in_prompts():
    from weakincentives.prompt import MarkdownSection, Prompt

    read_file, write_file, list_directory = tool("read_file"), tool("write_file"), tool("list_directory")

    section = MarkdownSection(
        title="File Operations",
        key="files",
        template="""
# File Operations

You have access to file manipulation tools. Follow these patterns:

## Error Recovery

If a tool call fails:

1. **Read the error message carefully** - it contains specific guidance
2. **Check for suggested alternatives** - error messages often suggest other tools
3. **Don't retry immediately** - fix the underlying issue first
4. **Use discovery tools** if paths are wrong (list_directory)

## Common Error Patterns

- **"File not found"** → Use list_directory to find correct path
- **"File exists"** → Use read_file first to check contents, then write with overwrite=true
- **"Permission denied"** → File may be read-only; copy it first
- **"Invalid path"** → Paths must start with /workspace/

## Example Recovery Flow

````
# Initial attempt
write_file(path="output.txt", content="data")
# Error: "File exists - use overwrite=true to replace"

# Recovery: Read first to understand contents
read_file(path="output.txt")
# Output: Shows existing file has 10 bytes

# Retry with overwrite
write_file(path="output.txt", content="data", overwrite=true)
# Success: "Wrote 4 bytes to output.txt"
````
    """.strip(),
        tools=(read_file, write_file, list_directory),
    )

    rendered = Prompt(name="files", sections=[section]).render()
    assert rendered.text.startswith("## 1. File Operations\n\n# File Operations\n\nYou have access")
    assert rendered.text.endswith('# Success: "Wrote 4 bytes to output.txt"\n````')
    assert rendered.tools == (read_file, write_file, list_directory)


def test_rate_limiting_and_quotas():
    """Only the attaching; the policy itself is tried elsewhere."""

    class RateLimitPolicy:
        def __init__(self, max_calls_per_minute: int):
            self.max_calls_per_minute = max_calls_per_minute

        def check(self, tool_name: str, params: object, context: ToolContext) -> str | None:
            return None

    from weakincentives.prompt import MarkdownSection, Prompt

    api_call_tool = tool("api_call")

    # Attach to section
    section = MarkdownSection(
        title="External API",
        key="api",
        template="...",
        tools=(api_call_tool,),
        policies=(RateLimitPolicy(max_calls_per_minute=10),),
    )

    (policy,) = Prompt(name="api", sections=[section]).policies_for("api_call")
    assert policy.max_calls_per_minute == 10


def test_why_bundle_tools_with_sections():
    run_tests_tool, build_tool, deploy_tool, health_check_tool = map(
        tool, ("run_tests", "build", "deploy", "health_check")
    )

    from weakincentives.prompt import MarkdownSection, Tool

    deployment_section = MarkdownSection(
        title="Deployment",
        key="deployment",
        template="""
# Deployment Instructions

You have access to deployment tools. Follow this workflow:

1. **Always run tests first** (`run_tests` tool)
2. **Build artifacts** (`build` tool)
3. **Deploy to staging** (`deploy` tool with `environment="staging"`)
4. **Verify staging** (manual check or `health_check` tool)
5. **Deploy to production** (`deploy` tool with `environment="production"`)

Never deploy without testing. Never deploy directly to production.
    """.strip(),
        tools=(run_tests_tool, build_tool, deploy_tool, health_check_tool),
    )

    from weakincentives.prompt import Prompt

    prompt = Prompt(name="deployer", sections=[deployment_section])
    assert "Never deploy directly to production." in str(prompt.render())
    assert [each.name for each in prompt.tools()] == ["run_tests", "build", "deploy", "health_check"]


def test_example_vfs_tool_suite(template):
    """Binding a suite's section: `Prompt(template).bind(params, sections=[vfs])`, here with a suite of our own."""
    from weakincentives.prompt import MarkdownSection, Prompt

    class Suite(MarkdownSection):
        def resources(self):
            return {Config: Config()}

    params, vfs = Params(), Suite(title="Files", template="Use these tools.", tools=[tool("read_file")])

    # Add to prompt
    prompt = Prompt(template).bind(params, sections=[vfs])

    assert [each.name for each in prompt.tools()] == ["read_file"]
    assert Config in prompt.resources
    with pytest.raises(PromptValidationError, match="Config is bound twice: by section 'files' and by section 'more'"):
        prompt.bind(sections=[Suite(title="More")])


def test_attaching_policies_to_sections():
    from weakincentives.prompt import SequentialDependencyPolicy

    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
            "release": frozenset({"deploy"}),  # Can chain
        }
    )
    deploy_tool, test_tool, build_tool = tool("deploy"), tool("test"), tool("build")

    from weakincentives.prompt import MarkdownSection

    section = MarkdownSection(
        title="Deployment",
        key="deployment",
        template="Deploy the application after testing.",
        tools=(deploy_tool, test_tool, build_tool),
        policies=(deploy_policy,),  # Attach policies here
    )
    assert section.policies == (deploy_policy,)


def test_policy_composition():
    from weakincentives.prompt import MarkdownSection, Prompt, ReadBeforeWritePolicy, SequentialDependencyPolicy

    class QuotaPolicy:
        def __init__(self, max_calls: int):
            self.max_calls = max_calls

        def check(self, tool_name: str, params: object, context: ToolContext) -> str | None:
            return None

    deploy_tool, quota_policy, read_before_write = tool("deploy"), QuotaPolicy(3), ReadBeforeWritePolicy()
    deploy_policy = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test"})})

    section = MarkdownSection(
        title="Production Ops",
        key="ops",
        template="...",
        tools=(deploy_tool,),
        policies=(
            quota_policy,           # Check quota first
            deploy_policy,          # Then check dependencies
            read_before_write,      # Then check file safety
        ),
    )

    prompt = Prompt(name="ops", sections=[section])
    assert prompt.policies_for("deploy") == (quota_policy, deploy_policy, read_before_write)


def test_6_bundle_tools_with_guidance_in_sections(template):
    from weakincentives.prompt import MarkdownSection, Prompt, ReadBeforeWritePolicy

    params, prompt = Params(), Prompt(template)
    read_file, write_file, list_directory = tool("read_file"), tool("write_file"), tool("list_directory")

    # Good
    section = MarkdownSection(
        title="File Operations",
        template="Use these tools to read and write files. Always read before writing.",
        tools=(read_file, write_file, list_directory),
        policies=(ReadBeforeWritePolicy(),),
    )
    assert section.key == "file-operations"

    # Bad - tools without context
    with pytest.raises(TypeError, match="tools live on sections"):
        prompt.bind(params, extra_tools=[read_file, write_file, list_directory])


def test_7_use_mainloop_for_resource_management(template):
    """The block's second half, the lifecycle by hand."""
    from weakincentives.prompt import Prompt

    adapter, session = Adapter(), None
    prompt = Prompt(template).bind(resources={HTTPClient: HTTPClient("https://api.example.com")})

    with prompt.resources:
        response = adapter.evaluate(prompt, session)

    assert response == "https://api.example.com"
