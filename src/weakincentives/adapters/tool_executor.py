"""The import path of `ToolExecutor` that the documents print; it lives in `weakincentives.runtime`."""

from ..runtime.executor import ToolExecutor

__all__ = ["ToolExecutor"]
