"""003: "Section Integration" and "Prompt Rendering"."""

from dataclasses import dataclass

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, ReadBeforeWritePolicy, Tool


@dataclass
class Params:
    pass


lookup_tool = Tool[None, None](name="lookup", description="Look it up.")
search_tool = Tool[None, None](name="search", description="Search.")


def test_section_integration():
    section = MarkdownSection[Params](
        title="Guidance",
        key="guidance",
        template="Use tools when needed.",
        tools=[lookup_tool, search_tool],
        policies=[ReadBeforeWritePolicy()],
    )

    prompt = Prompt(PromptTemplate(ns="documents", key="runtime", sections=[section]))
    assert [type(policy) for policy in prompt.policies_for("search")] == [ReadBeforeWritePolicy]
    assert str(prompt.render()) == "## 1. Guidance\n\nUse tools when needed."


def test_prompt_rendering():
    section = MarkdownSection(title="A", tools=[lookup_tool])
    with pytest.raises(PromptValidationError, match="'lookup' is declared twice"):
        PromptTemplate(ns="documents", key="twice", sections=[section, MarkdownSection(title="B", tools=[lookup_tool])])
    prompt = Prompt(
        PromptTemplate(ns="documents", key="order", sections=[MarkdownSection(title="B", tools=[search_tool]), section])
    )
    assert prompt.render().tools == (search_tool, lookup_tool)
