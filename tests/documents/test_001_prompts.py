"""001: "Section Integration", "Prompt Rendering" and "Example Registration"."""

from dataclasses import dataclass, field

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
)


@dataclass
class Params:
    pass


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
search_tool = Tool[None, None](name="search", description="Search.")


def test_section_integration():
    section = MarkdownSection[Params](
        title="Guidance",
        template="Use tools when needed.",
        key="guidance",
        tools=[lookup_tool, search_tool],
    )
    assert section.tools == (lookup_tool, search_tool)
    assert section.key == "guidance"


def test_prompt_rendering():
    """Duplicate names are refused; the declaration order is kept; only enabled sections contribute."""
    with pytest.raises(PromptValidationError):
        PromptTemplate(
            ns="examples/tooling",
            key="demo",
            sections=[
                MarkdownSection(title="One", tools=[lookup_tool]),
                MarkdownSection(title="Two", tools=[lookup_tool]),
            ],
        )
    rendered = Prompt(
        PromptTemplate(
            ns="examples/tooling",
            key="demo",
            sections=[
                MarkdownSection(title="Two", tools=[search_tool], enabled=False),
                MarkdownSection(title="One", tools=[lookup_tool]),
            ],
        )
    ).render()
    assert rendered.tools == (lookup_tool,)


def test_example_registration():
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

    rendered = prompt.render()
    assert rendered.text == "## 1. Guidance\n\nUse tools for context."
    assert rendered.tools == prompt.tools() == (lookup_tool,)
    assert lookup_tool.schema()["properties"]["entity_id"]["description"] == "ID to fetch"
    result = lookup_handler(LookupParams("abc-123"), context=ToolContext(prompt=prompt, rendered_prompt=rendered))
    assert result.message == "Fetched abc-123"
