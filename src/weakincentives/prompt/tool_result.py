"""Results, where agent authors look for them; they are defined lower down because `dbc` makes them too."""

from ..results import ToolRenderableResult, ToolResult, render_value

__all__ = ["ToolRenderableResult", "ToolResult", "render_value"]
