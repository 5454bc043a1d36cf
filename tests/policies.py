"""Asking policies and telling them of results, without a call around them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weakincentives.prompt import ToolContext, ToolPolicy, ToolResult
from weakincentives.prompt.policy import evaluate_policies, notify_policies


async def step(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call it, and await what can be awaited."""
    result = method(*arguments)
    return await result if inspect.isawaitable(result) else result


def asked(policies: Sequence[ToolPolicy], tool_name: str, params: object, context: ToolContext) -> str | None:
    """The first refusal, or None."""
    return asyncio.run(evaluate_policies(policies, tool_name, params, context, step))


def told(
    policies: Sequence[ToolPolicy], tool_name: str, params: object, result: ToolResult[Any], context: ToolContext
) -> None:
    """Tell them of a success."""
    asyncio.run(notify_policies(policies, tool_name, params, result, context, step))
