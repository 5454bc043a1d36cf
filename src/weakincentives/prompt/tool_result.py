"""The documented import path of results; they are defined in `weakincentives.results`, because `dbc` makes them too."""

from ..results import ToolRenderableResult, ToolResult, render_value

__all__ = ["ToolRenderableResult", "ToolResult", "render_value"]
