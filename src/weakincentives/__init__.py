"""Tool calls as transactions: a runtime for LLM agents that must not leave a mess.

The names below are found on first use, so that importing the package alone (as `wink --help` does) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapters import ToolExecutor
    from .budget import Budget, BudgetTracker, TokenUsage
    from .deadlines import Deadline
    from .errors import ParseError, ToolValidationError, WinkError
    from .filesystem import Filesystem, InMemoryFilesystem
    from .prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolInvoked, tool
    from .results import ToolResult
    from .run_context import Heartbeat, RunContext
    from .runtime import MainLoop, ToolCall
    from .serde import dump, parse, schema
    from .session import Session

__version__ = "0.2.0"

_HOMES = {
    "Budget": "budget",
    "BudgetTracker": "budget",
    "Deadline": "deadlines",
    "Filesystem": "filesystem",
    "Heartbeat": "run_context",
    "InMemoryFilesystem": "filesystem",
    "MainLoop": "runtime",
    "MarkdownSection": "prompt",
    "ParseError": "errors",
    "Prompt": "prompt",
    "PromptTemplate": "prompt",
    "RunContext": "run_context",
    "Session": "session",
    "TokenUsage": "budget",
    "Tool": "prompt",
    "ToolCall": "runtime",
    "ToolContext": "prompt",
    "ToolExecutor": "adapters",
    "ToolInvoked": "prompt",
    "ToolResult": "results",
    "ToolValidationError": "errors",
    "WinkError": "errors",
    "dump": "serde",
    "parse": "serde",
    "schema": "serde",
    "tool": "prompt",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Budget",
    "BudgetTracker",
    "Deadline",
    "Filesystem",
    "Heartbeat",
    "InMemoryFilesystem",
    "MainLoop",
    "MarkdownSection",
    "ParseError",
    "Prompt",
    "PromptTemplate",
    "RunContext",
    "Session",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolExecutor",
    "ToolInvoked",
    "ToolResult",
    "ToolValidationError",
    "WinkError",
    "__version__",
    "dump",
    "parse",
    "schema",
    "tool",
]
