"""Claude Code's own tools, made transactions by its hooks: remembered before, kept or undone after."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, final

from ...filesystem import Filesystem, HostFilesystem
from ...filesystem.reserved import reserved
from ...filesystem.views import at_same_paths
from ...prompt.prompt import Prompt
from ...results import ToolResult
from ...runtime.call import ToolCall, ToolReply
from ...runtime.tracker import PendingToolTracker
from .processes import Processes
from .served import PREFIX

READING = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch"})
"""Native tools that change nothing here; they may overlap."""

CONFINED = frozenset(
    {"Read", "Glob", "Grep", "LS", "NotebookRead", "Write", "Edit", "MultiEdit", "NotebookEdit", "TodoWrite"}
)
"""Native tools that name the files they touch, so that they are held to the root."""

UNCONFINED = frozenset({"Bash", "WebFetch", "WebSearch"})
"""Native tools that reach whatever the user's account and the network reach. They exist only where they are named."""

_REFUSED: Mapping[str, str] = {
    "Task": "what a subagent does in it would be one transaction inside another",
    "Agent": "what a subagent does in it would be one transaction inside another",
    "BashOutput": "commands in the background outlive their call",
    "KillShell": "commands in the background outlive their call",
}
_PATHS = ("file_path", "notebook_path", "path")
_BACKGROUND = (
    "Commands in the background outlive their call and cannot be undone, so this was not run.\n"
    "Run it in the foreground, without run_in_background."
)
_MAX_MESSAGE = 2000


def check_native_tools(names: Iterable[str]) -> None:
    """ValueError for a tool whose effects cannot be undone, or that we know nothing of."""
    for name in names:
        if name in _REFUSED:
            raise ValueError(f"native_tools= cannot hold {name!r}: {_REFUSED[name]}. Leave it out.")
        if name not in CONFINED | UNCONFINED:
            known = ", ".join(sorted(CONFINED | UNCONFINED))
            raise ValueError(f"native_tools= cannot hold {name!r}: what it does is not known. It may hold: {known}.")
        if name == "Bash" and sys.platform != "linux":
            raise ValueError(
                "native_tools= can hold 'Bash' on Linux only: elsewhere what a command leaves running cannot be ended. "
                "Use a PodmanSandboxSection instead."
            )


def working_directory(names: Iterable[str], prompt: Prompt[Any], otherwise: str | None) -> str | None:
    """The root of the prompt's files, else the other one. ValueError when tools may write and nothing watches them."""
    bound: Any = prompt.resources.get(Filesystem, None) if Filesystem in prompt.resources else None
    files, writable = at_same_paths(bound)  # inside a call, as a sub-agent's, it is a view of that call
    writing = [name for name in names if name not in READING]
    if writing and not writable:
        raise ValueError(
            f"Native tools that write ({', '.join(writing)}) cannot be used on files that may only be read: leave out "
            "read_only=True, of subagent() for a sub-agent, or name only native_tools= that read."
        )
    if writing and not (isinstance(files, HostFilesystem) and files.watches):
        raise ValueError(
            "Native tools change files behind WINK's back, so the prompt must watch them: "
            'bind(resources={Filesystem: HostFilesystem(root, watch="scan")}), or name only native_tools= that read. '
            "A sub-agent uses the files of the agent around it, so bind them there."
        )
    return str(files.root) if isinstance(files, HostFilesystem) else otherwise


@final
class NativeHooks:
    """The hooks of one evaluation. It says when a tool starts and ends, and what must end the evaluation."""

    def __init__(
        self,
        tracker: PendingToolTracker,
        *,
        heard: Callable[[str], Awaitable[None]],
        started: Callable[[ToolCall], None],
        ended: Callable[[ToolReply], None],
        failed: Callable[[BaseException], None],
        is_over: Callable[[], bool],
        root: Path,
        processes: Processes,
    ) -> None:
        self._tracker = tracker
        self._heard = heard
        self._started = started
        self._ended = ended
        self._failed = failed
        self._is_over = is_over
        self._root = root
        self._processes = processes

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
        if self._is_over():
            return {"continue_": False, "stopReason": "The evaluation is ending.", **_decision("deny", "It is over.")}
        if name.startswith(PREFIX):
            return _decision("allow")  # ours: the engine does all this itself
        call_id = data.get("tool_use_id") or tool_use_id or ""
        self._processes.look()
        try:
            await self._heard(call_id)
            refused = self._begin(call_id, name, given)
        except Exception as error:  # noqa: BLE001 - it cannot be recorded, say: nothing runs, and the evaluation ends
            self._failed(error)
            return _decision("deny", "It was not run, because the evaluation is ending.")
        if refused is None:
            return _decision("allow")
        self._ended(refused)
        return _decision("deny", refused.text)

    def _begin(self, call_id: str, name: str, given: Mapping[str, Any]) -> ToolReply | None:
        self._started(ToolCall(call_id, name, _text(given)))
        problem = self._beyond_reach(name, given)
        if problem is not None:
            return self._tracker.refuse(tool_use_id=call_id, tool_name=name, text=problem, arguments=given)
        return self._tracker.begin_tool_execution(
            tool_use_id=call_id, tool_name=name, arguments=given,
            read_only=name in READING, open_world=name not in CONFINED,
        )  # fmt: skip

    def _beyond_reach(self, name: str, given: Mapping[str, Any]) -> str | None:
        """What is wrong with the files that a call names; None when they are all below the root."""
        if given.get("run_in_background"):
            return _BACKGROUND
        if name not in CONFINED:
            return None
        named = [given[key] for key in _PATHS if given.get(key) is not None]
        if name == "Glob":
            pattern = str(given.get("pattern", ""))
            if ".." in pattern.replace("\\", "/").split("/"):
                return f"The pattern {pattern!r} leads out of {self._root}.\nUse one without '..'."
            named += [pattern] if pattern.strip().startswith(("/", "~")) else []
        for target in named:
            if not isinstance(target, str) or not self._is_below(target):
                why, what = ("nothing may be read", "Read") if name in READING else ("nothing can be undone", "Write")
                return f"{target} is outside of {self._root}, where {why}.\n{what} below {self._root}."
            if any(map(reserved, (self._root / target).resolve().relative_to(self._root).parts)):
                return f"{target} has a name that undo state is kept under.\nUse another name."
        return None

    def _is_below(self, target: str) -> bool:
        # Claude Code trims paths and expands "~": what it might read in another way than we do is not let through.
        if target != target.strip() or target.startswith("~") or not target.isprintable():
            return False
        try:
            return (self._root / target).resolve().is_relative_to(self._root)
        except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long
            return False

    async def after(self, data: Mapping[str, Any], tool_use_id: str | None, _: Any) -> dict[str, Any]:
        """The tool succeeded: keep what it did, unless something of ours objects."""
        result: ToolResult[Any] = ToolResult(_text(data.get("tool_response"))[:_MAX_MESSAGE] or "OK", None)
        reply = await self._end(data, tool_use_id, result)
        if reply is None or reply.success:
            return {}
        return {"decision": "block", "reason": reply.text}

    async def after_failure(self, data: Mapping[str, Any], tool_use_id: str | None, _: Any) -> dict[str, Any]:
        """The tool failed: undo what it did, and say so."""
        reply = await self._end(data, tool_use_id, ToolResult.error(str(data.get("error") or "The tool failed.")))
        if reply is None:
            return {}
        undone = reply.text.removeprefix(reply.message).strip()
        if not undone:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": undone}}

    async def _end(self, data: Mapping[str, Any], tool_use_id: str | None, result: ToolResult[Any]) -> ToolReply | None:
        if str(data["tool_name"]).startswith(PREFIX):
            return None
        if data.get("is_interrupt") and self._is_over():
            return None  # we stopped it: the end of the evaluation undoes it, and knows why
        call_id = data.get("tool_use_id") or tool_use_id or ""
        try:
            if data["tool_name"] not in CONFINED:
                alone = not set(self._tracker.pending) - {call_id}
                await self._processes.end_left_over(alone=alone)  # before the files are looked at: it might write on
            reply = self._tracker.end_tool_execution(tool_use_id=call_id, success=result.success, result=result)
        except Exception as error:  # noqa: BLE001 - a failed undo, or processes left: the evaluation must not go on
            self._failed(error)
            return None
        if reply is not None:
            self._ended(reply)
        return reply


def _decision(decision: str, reason: str = "") -> dict[str, Any]:
    made = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    return {"hookSpecificOutput": {**made, "permissionDecisionReason": reason} if reason else made}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
