"""Our tools, served to Claude Code inside this process over MCP and run through the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, final

from ...errors import PromptEvaluationError, VisibilityExpansionRequired
from ...loop.attachments import IMAGE_TYPES, Accepts, fitted_answer, shown_of
from ...loop.request import tool_spec
from ...loop.state import EvaluationState
from ...prompt.tool import Tool
from ...prompt.tool_metadata import ToolAnnotations
from ...results import ToolResult
from ...runtime.call import ToolCall, ToolReply
from ...runtime.messages import AnswerMessage
from ...runtime.redaction import ended_text
from ...runtime.truncation import READ_TOOL, ReadToolResult, ResultPart
from ..sdk_adapter import base64_of

SERVER = "wink"
PREFIX = f"mcp__{SERVER}__"
_CALL_ID = "claudecode/toolUseId"
_ENDING = "This call was not run, because the evaluation is ending."

_READ_ON = Tool[ReadToolResult, ResultPart](
    name=READ_TOOL,
    description="Read on in a tool result that was cut because it was too long.",
    handler=None,
    annotations=ToolAnnotations(read_only=True, destructive=False),
)
"""As the engine offers it once something was cut, which is too late for Claude Code to hear of it."""


@final
class ServedTools:
    """An MCP server over the tools of one evaluation. It says when a call starts and ends.

    `stop` ends what still runs, each call undone and recorded.
    """

    def __init__(
        self,
        mcp: Any,
        types: Any,
        state: EvaluationState[Any],
        *,
        heard: Callable[[str], Awaitable[None]],
        started: Callable[[ToolCall], None],
        ended: Callable[[ToolReply], None],
        is_over: Callable[[], bool],
        accepts: Accepts,
    ) -> None:
        self._types = types
        self._accepts = accepts._replace(media_types=accepts.media_types & IMAGE_TYPES)  # MCP has no form for a PDF
        self._state = state
        self._heard = heard
        self._started = started
        self._ended = ended
        self._is_over = is_over
        self._newest_read: Future[None] | None = None
        self._running: set[asyncio.Task[ToolReply]] = set()
        self.server: Any = mcp.Server(SERVER, on_list_tools=self._list, on_call_tool=self._call)

    def tools(self) -> tuple[Any, ...]:
        """All tools that may come to be offered: Claude Code is told once; what is not open yet is refused."""
        known = {tool.name: tool for section in self._state.prompt.sections for tool in _tools_below(section)}
        known.setdefault(READ_TOOL, _READ_ON)
        return tuple({**known, **{tool.name: tool for tool in self._state.executor.tools}}.values())

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
            for spec in map(tool_spec, self.tools())
        ]
        return types.ListToolsResult(tools=tools)

    async def _call(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the signature is MCP's
        meta: Mapping[str, Any] = params.meta or {}
        call = ToolCall(str(meta.get(_CALL_ID, "")), params.name, params.arguments or {})
        # A task of its own: the SDK's may be dropped at any moment, and the undo must not be.
        task = asyncio.create_task(self._execute(call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        reply = await asyncio.shield(task)
        types = self._types
        answer = AnswerMessage(reply.call_id, reply.text, reply.is_error, shown_of(reply.result))
        answer = fitted_answer(answer, self._accepts)
        shown = [
            types.ImageContent(type="image", data=base64_of(content), mime_type=content.media_type)
            for content in answer.attachments
        ]
        # Without structured content: Claude Code would show the model that instead of the text.
        text = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[text, *shown], is_error=answer.is_error)

    async def _execute(self, call: ToolCall) -> ToolReply:
        """Run a call to its answer; never raises but for cancellation."""
        if not any(tool.name == call.name and tool.annotations.read_only for tool in self._state.executor.tools):
            return await self._execute_one(call, None)
        # Claude Code overlaps these. They are recorded and told in the order in which they came.
        before, done = self._newest_read, Future[None]()
        self._newest_read = done
        try:
            return await self._execute_one(call, before)
        finally:
            done.set_result(None)

    async def _execute_one(self, call: ToolCall, before: Future[None] | None) -> ToolReply:
        state = self._state
        try:
            await self._heard(call.id)
            if self._is_over():
                return state.executor.decline(call, _ENDING)
            self._started(ToolCall(call.id, call.name, json.dumps(call.arguments, ensure_ascii=False, default=str)))
            reply = await state.executor.aexecute(call, before=before)
        except VisibilityExpansionRequired as expansion:
            reply = self._expand_sections(call, expansion)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the call is answered, then the evaluation ends with it
            state.fail(error)
            text = ended_text(error)
            reply = ToolReply(call.id, text, ToolResult.error(text), "crashed", is_error=True)
        self._ended(reply)
        return reply

    def _expand_sections(self, call: ToolCall, expansion: VisibilityExpansionRequired) -> ToolReply:
        """Claude Code cannot be given another first message, so the answer holds the whole prompt as it reads now."""
        try:
            rendered = self._state.expand_sections(expansion)
        except PromptEvaluationError as error:
            self._state.fail(error)
            return ToolReply(call.id, str(error), ToolResult.error(str(error)), "expanded")
        said = "\n\n".join(part for part in (rendered.system, rendered.text) if part)
        text = f"Opened: {', '.join(expansion.section_keys)}. The prompt now reads:\n\n{said}"
        return ToolReply(call.id, text, ToolResult.ok(None, message=text), "expanded")

    async def stop(self, grace: float) -> None:
        """Let running calls end by themselves for a moment, then cancel them and wait until they are undone."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace)
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*tuple(self._running), return_exceptions=True)


def _tools_below(section: Any) -> list[Any]:
    found = list(section.tools)
    for child in section.children:
        found += _tools_below(child)
    return found
