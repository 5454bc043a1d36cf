"""Wire formats: what connects the engine to models."""

from .tool_executor import ToolExecutor

__all__ = ["ToolExecutor"]
