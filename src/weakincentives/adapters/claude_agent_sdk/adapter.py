"""`ClaudeAgentSDKAdapter`: the model, the loop and some tools are Claude Code's; the transactions are ours."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from ...event_loop import run_to_end
from ...loop.adapter import Adapter, AdapterKeywords, aopen_record, record_of
from ...loop.attachments import Accepts
from ...loop.response import PromptResponse
from ...prompt.prompt import Prompt
from ...runtime.call import ToolReply
from ...runtime.options import RunKeywords, RunOptions
from ...session import Session
from ..anthropic import AnthropicAdapter
from ..sdk_errors import load
from .driver import ClaudeDriver
from .native import check_native_tools
from .recorded import NOT_RESUMABLE, DrivenRecord

_LONGEST_TIMER = 2**31 - 1

OutputT = TypeVar("OutputT")


class ClaudeAgentSDKAdapter(Adapter):
    """Evaluates prompts with Claude Code, through its Agent SDK. One process of it for each evaluation.

    The prompt's tools are served to it in this process and run through the engine like anywhere else. Of Claude Code's
    own tools only those named in `native_tools` are there; each is asked for, undone and recorded like a call of ours.
    Retrying and the history of the conversation within an evaluation are Claude Code's; everything else that
    `Adapter.evaluate` says holds. There is no manual mode, and no `ask`. A recorded run
    (`record=`) is never resumed: `NotResumableError` for one that was interrupted; one that has ended gives its answer.

    Args:
        model: Claude Code's name for a model; None for its default.
        native_tools: none by default. Those that name their files ("Read", "Write", "Edit", "Glob", "Grep", ...) are
            held to the root; "Bash", "WebFetch" and "WebSearch" are not. Those that change files need the prompt to
            bind a `HostFilesystem(root, watch="scan")`, whose root is then their working directory.
        cwd: their working directory when the prompt binds no `HostFilesystem`.
        env: added to the environment of Claude Code, which otherwise has a few names of this process's only: PATH,
            HOME, locale, certificates, proxies, and what begins with ANTHROPIC_ or CLAUDE_.
        cli_path: another Claude Code than the one that comes with the SDK.
        extra: further fields of the SDK's `ClaudeAgentOptions`; what this adapter sets itself wins.
        media_types: which images and documents it is shown, `()` for none; without it, images and PDFs.
        options: `max_turns`, `output_retries`, `max_expansions`, `hide_errors`, `system`.

    Raises:
        ImportError: the SDK is not installed.
        ValueError: `manual`, or a native tool whose effects cannot be undone, or are not known.
    """

    accepts: Accepts = AnthropicAdapter.accepts
    """What Claude Code is shown besides text; of a tool's result only images."""

    def __init__(
        self,
        model: str | None = None,
        *,
        native_tools: Sequence[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        cli_path: str | os.PathLike[str] | None = None,
        extra: Mapping[str, Any] | None = None,
        media_types: Collection[str] | None = None,
        **options: Unpack[AdapterKeywords],
    ) -> None:
        super().__init__(**options)
        self.accepts = self.accepts.with_types(media_types)
        if self.settings.manual:
            raise ValueError("ClaudeAgentSDKAdapter has no manual mode: Claude Code runs the loop. Leave manual= out.")
        check_native_tools(native_tools)
        self.sdk: Any = load("claude_agent_sdk", "claude-agent-sdk")
        self.mcp: Any = load("mcp.server.lowlevel", "claude-agent-sdk")
        self.mcp_types: Any = load("mcp_types", "claude-agent-sdk")
        self.model = model
        self.native_tools: tuple[str, ...] = tuple(native_tools)
        self.cwd: str | None = None if cwd is None else os.fspath(cwd)
        self.env: dict[str, str] = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "API_TIMEOUT_MS": str(_milliseconds(self.settings.request_timeout)),
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # a command that takes too long would go on in the background
            "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",  # a "@path" in the prompt would be read, wherever it is
            **(env or {}),
        }
        self.cli_path: str | None = None if cli_path is None else os.fspath(cli_path)
        self.extra: dict[str, Any] = dict(extra or {})

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return "claude_agent_sdk"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """See `Adapter.evaluate`; an earlier `history` is told to Claude Code as text."""
        return run_to_end(self._evaluate(prompt, session, self._run_options("evaluate", options), tool_results))

    async def aevaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """Like `evaluate`, for async code. Cancelling it ends Claude Code, then undoes what was under way."""
        return await self._evaluate(prompt, session, self._run_options("aevaluate", options), tool_results)

    async def _evaluate(
        self, prompt: Prompt[OutputT], session: Session, options: RunOptions, tool_results: object
    ) -> PromptResponse[OutputT]:
        if tool_results is not None:
            raise ValueError("tool_results= belongs to manual mode, which ClaudeAgentSDKAdapter does not have.")
        record = record_of(options)
        if record is None:
            return await ClaudeDriver(self, prompt, session, options.started()).run()
        driven = DrivenRecord(await aopen_record(record, prompt, session, not_resumable=NOT_RESUMABLE))
        try:
            return await ClaudeDriver(self, prompt, session, options.started(), driven).run()
        finally:
            driven.release()


def _milliseconds(seconds: float) -> int:
    """As Claude Code takes them: 0 would mean its default, and what its timers cannot hold would mean at once."""
    return min(max(1, int(seconds * 1000)), _LONGEST_TIMER)
