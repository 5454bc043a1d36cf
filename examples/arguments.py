"""Arguments are checked before any handler: what a model reads when it calls a tool well, and badly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from weakincentives import ToolExecutor
from weakincentives.loop.request import tool_spec
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import Session, ToolCall, ToolReply


@dataclass(slots=True, frozen=True)
class SearchParams:
    """Parameters for searching files."""

    query: str
    """Search query (required)."""

    limit: int = 10
    """Maximum results to return (1-100)."""

    case_sensitive: bool = False
    """Whether search is case-sensitive."""

    file_types: tuple[str, ...] = ()
    """File extensions to filter (e.g., ('py', 'md'))."""


GOOD = (
    '{"query": "rollback"}',
    '{"query": "rollback", "limit": 5, "file_types": ["py", "md"]}',
)
BAD = (
    ("a number in quotes", '{"query": "rollback", "limit": "10"}'),
    ("four mistakes, all reported", '{"limit": 2.5, "case_sensitive": "true", "file_types": ["py", 7]}'),
    ("a name that is almost right", '{"query": "rollback", "limt": 5}'),
    ("JSON that stops in the middle", '{"query": "roll'),
    ("not an object", '["rollback"]'),
)


def _search(params: SearchParams, *, context: ToolContext) -> ToolResult[str]:
    del context
    return ToolResult.ok(f"the handler got {params}")


TOOL = Tool[SearchParams, str](name="search_files", description="Search files by their text.", handler=_search)
PROMPT = Prompt[Any](name="search", sections=[MarkdownSection(title="Search", template="", tools=[TOOL])])


def show() -> str:
    """What is sent for the tool, and what comes back for good and bad calls; each goes through the engine.

    AssertionError when a good call is refused or a bad one accepted.
    """
    spec = tool_spec(TOOL)
    lines = ["What is sent to the model about the tool:", "", f"  name: {spec.name}", f"  description: {spec.text}"]
    lines += ["  parameters:", *(f"    {line}" for line in json.dumps(spec.schema, indent=2).splitlines()), ""]
    with ToolExecutor(prompt=PROMPT, session=Session()) as executor:
        lines += ["Calls that reach the handler, and what is sent back:", ""]
        for number, text in enumerate(GOOD):
            lines += [f"  {text}", *_sent(executor.execute(ToolCall(f"good-{number}", TOOL.name, text)), "succeeded")]
        lines += ["Calls that do not, and what is sent back instead:", ""]
        for number, (title, text) in enumerate(BAD):
            reply = executor.execute(ToolCall(f"bad-{number}", TOOL.name, text))
            lines += [f"  {text}    ({title})", *_sent(reply, "invalid")]
    lines.append(f"{len(GOOD)} calls accepted, {len(BAD)} refused before any handler ran.")
    return "\n".join(lines)


def _sent(reply: ToolReply, outcome: str) -> list[str]:
    """The text of a reply, as it is sent, set off from what is around it."""
    if reply.outcome != outcome:
        raise AssertionError(f"a call should have {outcome} but {reply.outcome}: {reply.text}")
    return [*(f"    | {line}" for line in reply.text.split("\n")), ""]


if __name__ == "__main__":
    print(show())
