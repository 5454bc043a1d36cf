"""What an agent author declares: tools, sections, prompts, policies."""

from .annotations import ToolAnnotations
from .handlers import ToolHandler
from .idempotency import IdempotencyConfig
from .tool import Tool
from .tool_context import ToolContext
from .tool_example import ToolExample
from .tool_result import ToolRenderableResult, ToolResult

__all__ = [
    "IdempotencyConfig",
    "Tool",
    "ToolAnnotations",
    "ToolContext",
    "ToolExample",
    "ToolHandler",
    "ToolRenderableResult",
    "ToolResult",
]
