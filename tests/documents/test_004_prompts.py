"""004: "Example", as printed but for `payload=`, which is `value=` now; then what the document says around it."""

import pytest


def test_example():
    from dataclasses import dataclass, field
    from weakincentives.prompts import Prompt, TextSection, Tool, ToolResult, ToolsSection

    @dataclass
    class LookupParams:
        entity_id: str = field(metadata={"description": "Global identifier to fetch"})
        include_related: bool = field(default=False)

    @dataclass
    class LookupResult:
        entity_id: str
        document_url: str

    @dataclass
    class GuidanceParams:
        primary_tool: str

    def lookup_handler(params: LookupParams) -> ToolResult[LookupResult]:
        result = LookupResult(entity_id=params.entity_id, document_url="https://example.com")
        message = f"Fetched entity {result.entity_id}."
        return ToolResult(message=message, value=result)

    lookup_tool = Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch structured information for a given entity id.",
        handler=lookup_handler,
    )

    tooling_overview = Prompt(
        name="tools_overview",
        sections=[
            TextSection(
                title="Guidance",
                body="""
                Use tools when you need up-to-date context. Prefer ${primary_tool} for critical lookups.
                """,
                params=GuidanceParams,
                children=[
                    ToolsSection(
                        title="Available Tools",
                        tools=[lookup_tool],
                        params=GuidanceParams,
                        description="""
                        Invoke ${primary_tool} whenever you need fresh entity context.
                        """,
                    )
                ],
            )
        ],
    )

    markdown = tooling_overview.render(GuidanceParams(primary_tool="lookup_entity"))
    tools = tooling_overview.tools()
    assert tools[0].name == "lookup_entity"

    assert str(markdown) == (
        "## 1. Guidance\n\n"
        "Use tools when you need up-to-date context. Prefer lookup_entity for critical lookups.\n\n"
        "### 1.1 Available Tools\n\n"
        "Invoke lookup_entity whenever you need fresh entity context."
    )
    assert lookup_handler(LookupParams("e1")).message == "Fetched entity e1."


def test_validation_and_error_handling():
    from dataclasses import dataclass
    from weakincentives.errors import PromptRenderError, PromptValidationError
    from weakincentives.prompts import Prompt, TextSection, Tool, ToolResult, ToolsSection

    @dataclass
    class GuidanceParams:
        primary_tool: str

    def handler(params: GuidanceParams) -> ToolResult[str]:
        return ToolResult.ok(params.primary_tool)

    tool = Tool[GuidanceParams, str](name="guide", description="Guide.", handler=handler)

    # Construction failures carry section path, tool name and dataclass.
    with pytest.raises(PromptValidationError) as refused:
        ToolsSection(title="Tools", tools=[tool], description="${other}", params=GuidanceParams)
    assert (refused.value.section_path, refused.value.dataclass_type) == (("tools",), GuidanceParams)

    # Rendering without required parameters.
    section = ToolsSection(title="Tools", tools=[tool], description="${primary_tool}", params=GuidanceParams)
    with pytest.raises(PromptRenderError):
        Prompt(name="p", sections=[section]).render()

    # Two tools with the same name.
    with pytest.raises(PromptValidationError) as refused:
        Prompt(name="p", sections=[section, ToolsSection(title="Again", tools=[tool])])
    assert (refused.value.tool_name, refused.value.section_path) == ("guide", ("again",))
    assert refused.value.dataclass_type is GuidanceParams

    # Disabled sections contribute neither markdown nor tools.
    prompt = Prompt(
        name="p",
        sections=[TextSection("Task", "Go."), ToolsSection(title="Tools", tools=[tool], enabled=lambda: False)],
    )
    assert str(prompt.render()) == "## 1. Task\n\nGo."
    assert list(prompt.tools()) == []
