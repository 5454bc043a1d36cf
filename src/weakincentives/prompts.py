"""The older import path of `weakincentives.prompt`."""

from .prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    TextSection,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)

__all__ = [
    "MarkdownSection",
    "Prompt",
    "PromptTemplate",
    "RenderedPrompt",
    "Section",
    "TextSection",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolsSection",
]
