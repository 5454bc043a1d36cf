"""Whether the tools of a program are those that its run was recorded with."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...errors import ParseError, RunFormatError
from ...prompt.tool import Tool
from ...session.encoding import type_name
from .rows import Step, digest_of

_logger = logging.getLogger(__name__)
_MAX_LISTED = 10


def fingerprints(tools: Iterable[Tool[Any, Any]]) -> dict[str, str]:
    """By the name of each tool what tells whether it was changed: its params and its result."""
    return {tool.name: _fingerprint(tool) for tool in tools}


def offered(tools: Iterable[Tool[Any, Any]]) -> str:
    """What a model reads of each tool, as JSON by their names: for the eye, and to see what of it was changed."""
    told = {tool.name: {"description": tool.description, "params": tool.schema()} for tool in tools}
    return json.dumps(told, sort_keys=True, ensure_ascii=False, default=str)


def versions() -> dict[str, str]:
    """What a program runs on, for a replay elsewhere."""
    return {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}".strip()}


def check_tools(steps: Sequence[Step], tools: Iterable[Tool[Any, Any]], accepted: Collection[str]) -> None:
    """Refuse to go on with recorded calls that the tools of today could not have been asked for.

    A changed tool that still reads its recorded calls is only a warning. Raises `RunFormatError` with the calls that
    are not read, unless `accepted` has the names of their tools.
    """
    present = {tool.name: tool for tool in tools}
    recorded: Mapping[str, str] = steps[0].body.get("tools", {})
    changed = {
        name for name, made in recorded.items() if name not in present or _fingerprint(present[name]) != made
    }.difference(accepted)
    if not changed:
        return
    arguments = {call[0]: call[2] for step in steps if step.kind == "turn" for call in step.body["calls"]}
    unread = [
        f"step {step.seq} ({step.tool}: {problem})"
        for step in steps
        if step.kind == "call" and step.tool in changed and not step.body.get("raw") and step.outcome != "invalid"
        if (problem := _problem(present.get(step.tool or ""), arguments.get(step.call_id or "")))
    ]
    if unread:
        more = f" and {len(unread) - _MAX_LISTED} more" if len(unread) > _MAX_LISTED else ""
        raise RunFormatError(
            f"The program's tools cannot read these recorded calls: {', '.join(unread[:_MAX_LISTED])}{more}. Use the "
            "program as it was, or name the tools in accept_changed= to go on without what they cannot read."
        )
    _logger.warning("These tools were changed since the run was recorded: %s", ", ".join(sorted(changed)))


def _fingerprint(tool: Tool[Any, Any]) -> str:
    result = tool.result_type
    made = [tool.schema(), type_name(result) if isinstance(result, type) else str(result)]
    return digest_of(json.dumps(made, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))


def _problem(tool: Tool[Any, Any] | None, arguments: Any) -> str | None:
    if tool is None:
        return "there is no such tool any more"
    try:
        tool.parse(arguments or "{}")
    except ParseError as error:
        return str(error).partition("\n")[0]
    return None


__all__ = ["check_tools", "fingerprints", "offered", "versions"]
