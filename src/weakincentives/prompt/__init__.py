"""What an agent author declares: tools, sections, prompts, policies."""

from ..errors import (
    NoEffect,
    ParseError,
    PromptError,
    PromptRenderError,
    PromptValidationError,
    SchemaError,
    ToolError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from ..session import SessionProtocol
from .changes import Changes, SliceDelta
from .events import CallsUndone, Outcome, PromptExecuted, PromptRendered, RecordedError, ToolInvoked
from .function_tool import FunctionTool
from .handlers import ToolHandler
from .idempotency import IdempotencyConfig
from .markdown import MarkdownSection, TextSection, ToolsSection
from .overrides import (
    LocalPromptOverridesStore,
    PromptDescriptor,
    PromptOverride,
    PromptOverridesStore,
    SectionOverride,
    ToolOverride,
)
from .policies import QuotaPolicy, RateLimitPolicy, SequentialDependencyPolicy
from .policy import Decision, ResultPolicy, ToolPolicy
from .prompt import Prompt
from .prompt_resources import PromptResources
from .protocols import PromptProtocol, ProviderAdapterProtocol, RenderedPromptProtocol
from .read_before_write import ReadBeforeWritePolicy, SeenFiles
from .render import RenderedPrompt
from .section import Section
from .structured import StructuredOutput
from .template import PromptTemplate
from .tool import Tool
from .tool_context import ToolContext
from .tool_decorator import tool
from .tool_metadata import ToolAnnotations, ToolExample
from .tool_result import ToolRenderableResult, ToolResult
from .tree import BoundTool
from .visibility import SectionVisibility, SetVisibility, VisibilityOverrides, set_visibility

__all__ = [
    "BoundTool",
    "CallsUndone",
    "Changes",
    "Decision",
    "FunctionTool",
    "IdempotencyConfig",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "NoEffect",
    "Outcome",
    "ParseError",
    "Prompt",
    "PromptDescriptor",
    "PromptError",
    "PromptExecuted",
    "PromptOverride",
    "PromptOverridesStore",
    "PromptProtocol",
    "PromptRenderError",
    "PromptRendered",
    "PromptResources",
    "PromptTemplate",
    "PromptValidationError",
    "ProviderAdapterProtocol",
    "QuotaPolicy",
    "RateLimitPolicy",
    "ReadBeforeWritePolicy",
    "RecordedError",
    "RenderedPrompt",
    "RenderedPromptProtocol",
    "ResultPolicy",
    "SchemaError",
    "Section",
    "SectionOverride",
    "SectionVisibility",
    "SeenFiles",
    "SequentialDependencyPolicy",
    "SessionProtocol",
    "SetVisibility",
    "SliceDelta",
    "StructuredOutput",
    "TextSection",
    "Tool",
    "ToolAnnotations",
    "ToolContext",
    "ToolError",
    "ToolExample",
    "ToolHandler",
    "ToolInvoked",
    "ToolOverride",
    "ToolPolicy",
    "ToolRenderableResult",
    "ToolResult",
    "ToolValidationError",
    "ToolsSection",
    "VisibilityExpansionRequired",
    "VisibilityOverrides",
    "set_visibility",
    "tool",
]
