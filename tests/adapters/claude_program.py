"""The program that test_claude_record runs and ends: `claude_program.py FOLDER URL`, with the run "r".

It works on FOLDER/project and records into FOLDER/runs.db. Its tool `hold` writes a file and then waits for its end.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weakincentives import Session
from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import SqliteRunStore


@dataclass(frozen=True)
class Note:
    text: str


def keep(params: Note, *, context: ToolContext) -> ToolResult[str]:
    context.session[Note].append(params)
    return ToolResult.ok(params.text.upper(), message="Kept.")


def hold(params: Note, *, context: ToolContext) -> ToolResult[str]:
    context.session[Note].append(params)
    assert context.filesystem is not None
    context.filesystem.write("held.txt", params.text)
    time.sleep(300)
    return ToolResult.ok("late")


def adapter_at(url: str, folder: Path, **options: Any) -> ClaudeAgentSDKAdapter:
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    names = ["Read", "Write", "Edit", "Bash"]
    return ClaudeAgentSDKAdapter("claude-sonnet-4-5", env=env, native_tools=names, **options)


def prompt_for(files: HostFilesystem) -> Prompt[Any]:
    tools = [
        Tool[Note, str](name="keep", description="Keep a note.", handler=keep),
        Tool[Note, str](name="hold", description="Hold.", handler=hold),
    ]
    section = MarkdownSection(title="Task", template="Do it.", tools=tools)
    return Prompt(name="claude", sections=[section]).bind(resources={Filesystem: files})


if __name__ == "__main__":
    place, server = Path(sys.argv[1]), sys.argv[2]
    with HostFilesystem(place / "project", watch="scan") as bound, SqliteRunStore(place / "runs.db") as store:
        adapter_at(server, place).evaluate(prompt_for(bound), Session(), record=store.run("r"))
