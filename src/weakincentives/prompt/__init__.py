"""What an agent author declares: tools, sections, prompts, policies."""

from typing import TYPE_CHECKING

from ..deprecation import former_names
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
from ..lazy_names import FindName, lazy_names
from ..session import SessionProtocol
from .changes import Changes
from .events import CallsUndone, Outcome, PromptExecuted, PromptRendered, RecordedError, ToolInvoked
from .handlers import ToolHandler
from .idempotency import IdempotencyConfig
from .policies import QuotaPolicy, RateLimitPolicy, SequentialDependencyPolicy
from .policy import Decision, Policy, ToolPolicy
from .prompt import Prompt
from .prompt_resources import PromptResources
from .render import RenderedPrompt
from .section import MarkdownSection, Section, TextSection, ToolsSection
from .template import PromptTemplate
from .tool import Tool
from .tool_context import PromptProtocol, ProviderAdapterProtocol, RenderedPromptProtocol, ToolContext
from .tool_decorator import FunctionTool, tool
from .tool_metadata import ToolAnnotations, ToolExample
from .tool_result import ToolRenderableResult, ToolResult
from .visibility import SectionVisibility, set_visibility

if TYPE_CHECKING:
    from .overrides import (
        LocalPromptOverridesStore,
        PromptDescriptor,
        PromptOverride,
        PromptOverridesStore,
        SectionOverride,
        ToolOverride,
    )
    from .read_before_write import ReadBeforeWritePolicy

__getattr__: FindName = lazy_names(
    __name__,
    {
        ".overrides": (
            "LocalPromptOverridesStore PromptDescriptor PromptOverride PromptOverridesStore "
            "SectionOverride ToolOverride"
        ),
        ".read_before_write": "ReadBeforeWritePolicy",
    },
    former_names(
        __name__,
        {
            "BoundTool": "prompt.tree",
            "ResultPolicy": "prompt.policy",
            "SeenFiles": "prompt.read_before_write",
            "SetVisibility": "prompt.visibility",
            "SliceDelta": "prompt.changes",
            "StructuredOutput": "prompt.template",
            "VisibilityOverrides": "prompt.visibility",
        },
        stacklevel=3,
    ),
)

__all__ = [
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
    "Policy",
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
    "SchemaError",
    "Section",
    "SectionOverride",
    "SectionVisibility",
    "SequentialDependencyPolicy",
    "SessionProtocol",
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
    "set_visibility",
    "tool",
]
