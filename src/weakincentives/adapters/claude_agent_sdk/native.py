"""Claude Code's own tools, made transactions by its hooks: remembered before, kept or undone after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from ...prompt.prompt import Prompt
from ...results import ToolResult
from ...runtime.call import ToolReply
from ...runtime.tracker import PendingToolTracker
from .served import PREFIX

READING = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch"})
"""Native tools that change nothing here; they may overlap."""

_REFUSED: Mapping[str, str] = {
    "Task": "what a subagent does in it would be one transaction inside another",
    "Agent": "what a subagent does in it would be one transaction inside another",
    "BashOutput": "commands in the background outlive their call",
    "KillShell": "commands in the background outlive their call",
}
_BACKGROUND = (
    "Commands in the background outlive their call and cannot be undone, so this was not run.\n"
    "Run it in the foreground, without run_in_background."
)
_MAX_MESSAGE = 2000


def check_native_tools(names: Iterable[str]) -> None:
    """ValueError for a tool whose effects cannot be undone."""
    for name in names:
        if name in _REFUSED:
            raise ValueError(f"native_tools= cannot hold {name!r}: {_REFUSED[name]}. Leave it out.")


def changes_files(names: Iterable[str]) -> bool:
    """Whether one of the tools may write."""
    return any(name not in READING for name in names)


@final
class NativeHooks:
    """The hooks of one evaluation. It says when a tool starts and ends, and what must end the evaluation."""

    def __init__(
        self,
        tracker: PendingToolTracker,
        started: Callable[[str, str, str], None],
        ended: Callable[[ToolReply], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._tracker = tracker
        self._started = started
        self._ended = ended
        self._failed = failed

    def matchers(self, sdk: Any) -> dict[str, list[Any]]:
        """For `ClaudeAgentOptions.hooks`. A hook that fails blocks the tool: nothing runs unwatched."""
        return {
            "PreToolUse": [sdk.HookMatcher(hooks=[self.before], on_failure="block")],
            "PostToolUse": [sdk.HookMatcher(hooks=[self.after])],
            "PostToolUseFailure": [sdk.HookMatcher(hooks=[self.after_failure])],
        }

    async def before(self, data: Mapping[str, Any], tool_use_id: str | None, _: Any) -> dict[str, Any]:
        """Admit and remember, or refuse."""
        name: str = data["tool_name"]
        given: Mapping[str, Any] = data.get("tool_input") or {}
        if name.startswith(PREFIX):
            return _decision("allow")  # ours: the engine does all this itself
        call_id = data.get("tool_use_id") or tool_use_id or ""
        self._started(call_id, name, _text(given))
        if given.get("run_in_background"):
            refused = self._tracker.refuse(tool_use_id=call_id, tool_name=name, text=_BACKGROUND, arguments=given)
        else:
            refused = self._tracker.begin_tool_execution(
                tool_use_id=call_id, tool_name=name, arguments=given, read_only=name in READING
            )
        if refused is None:
            return _decision("allow")
        self._ended(refused)
        return _decision("deny", refused.text)

    async def after(self, data: Mapping[str, Any], tool_use_id: str | None, _: Any) -> dict[str, Any]:
        """The tool succeeded: keep what it did, unless something of ours objects."""
        result: ToolResult[Any] = ToolResult(_text(data.get("tool_response"))[:_MAX_MESSAGE] or "OK", None)
        reply = self._end(data, tool_use_id, result)
        if reply is None or reply.success:
            return {}
        return {"decision": "block", "reason": reply.text}

    async def after_failure(self, data: Mapping[str, Any], tool_use_id: str | None, _: Any) -> dict[str, Any]:
        """The tool failed: undo what it did, and say so."""
        reply = self._end(data, tool_use_id, ToolResult.error(str(data.get("error") or "The tool failed.")))
        if reply is None:
            return {}
        undone = reply.text.removeprefix(reply.message).strip()
        if not undone:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": undone}}

    def _end(self, data: Mapping[str, Any], tool_use_id: str | None, result: ToolResult[Any]) -> ToolReply | None:
        if str(data["tool_name"]).startswith(PREFIX):
            return None
        call_id = data.get("tool_use_id") or tool_use_id or ""
        try:
            reply = self._tracker.end_tool_execution(tool_use_id=call_id, success=result.success, result=result)
        except Exception as error:  # noqa: BLE001 - a failed undo: the evaluation must not go on
            self._failed(error)
            return None
        if reply is not None:
            self._ended(reply)
        return reply


def tracker_of(prompt: Prompt[Any], **options: Any) -> PendingToolTracker:
    """Native tools belong to no section, so the template's policies are asked, and no others."""
    return PendingToolTracker(resources=prompt.resources, policies=prompt.template.policies, prompt=prompt, **options)


def _decision(decision: str, reason: str = "") -> dict[str, Any]:
    made = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    return {"hookSpecificOutput": {**made, "permissionDecisionReason": reason} if reason else made}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


__all__ = ["READING", "NativeHooks", "changes_files", "check_native_tools", "tracker_of"]
