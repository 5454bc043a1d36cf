"""Our tools, served to Claude Code inside this process over MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

from ...loop.request import ToolSpec
from ...runtime.call import ToolCall, ToolReply

SERVER = "wink"
PREFIX = f"mcp__{SERVER}__"
_CALL_ID = "claudecode/toolUseId"

Execute = Callable[[ToolCall], Awaitable[ToolReply]]
"""Runs a call to its answer; never raises but for cancellation."""


@final
class ServedTools:
    """An MCP server over the tools of one evaluation. `stop` ends what still runs, each call undone and recorded."""

    def __init__(self, mcp: Any, types: Any, specs: Callable[[], tuple[ToolSpec, ...]], execute: Execute) -> None:
        self._types = types
        self._specs = specs
        self._execute = execute
        self._running: set[asyncio.Task[ToolReply]] = set()
        self.server = mcp.Server(SERVER, on_list_tools=self._list, on_call_tool=self._call)

    async def _list(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the signature is MCP's
        types = self._types
        tools = [
            types.Tool(
                name=spec.name,
                description=spec.text,
                input_schema=spec.schema,
                # Claude Code overlaps calls of tools that only read, and of no others.
                annotations=types.ToolAnnotations(read_only_hint=spec.read_only),
            )
            for spec in self._specs()
        ]
        return types.ListToolsResult(tools=tools)

    async def _call(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the signature is MCP's
        meta: Mapping[str, Any] = params.meta or {}
        call = ToolCall(str(meta.get(_CALL_ID, "")), params.name, params.arguments or {})
        # A task of its own: the SDK's may be dropped at any moment, and the undo must not be.
        task = asyncio.ensure_future(_awaited(self._execute(call)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        reply = await asyncio.shield(task)
        types = self._types
        # Without structured content: Claude Code would show the model that instead of the text.
        return types.CallToolResult(content=[types.TextContent(type="text", text=reply.text)], is_error=reply.is_error)

    async def stop(self, grace: float) -> None:
        """Let running calls end by themselves for a moment, then cancel them and wait until they are undone."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace)
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*tuple(self._running), return_exceptions=True)


async def _awaited(execution: Awaitable[ToolReply]) -> ToolReply:
    return await execution


__all__ = ["PREFIX", "SERVER", "Execute", "ServedTools"]
