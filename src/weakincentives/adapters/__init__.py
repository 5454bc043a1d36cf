"""Wire formats: what connects the engine to models."""

from .tool_execution_context import ToolExecutionContext
from .tool_executor import ToolExecutor

__all__ = ["ToolExecutionContext", "ToolExecutor"]
