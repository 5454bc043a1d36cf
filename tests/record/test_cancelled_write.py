"""A run that is cancelled while a row is being written."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weakincentives import MainLoop, MarkdownSection, Prompt, Session, ToolContext, ToolInvoked, ToolResult
from weakincentives.prompt import Tool, ToolAnnotations
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Item:
    name: str


def test_calls_after_one_whose_row_was_being_written_are_made_by_the_next_attempt(tmp_path: Path) -> None:
    """They were not begun, which is not what happened to them: the run was interrupted before."""
    path, made = tmp_path / "runs.db", list[str]()
    wrote = asyncio.Event()
    blocks = [True]

    async def add(params: Item, *, context: ToolContext) -> ToolResult[Item]:
        made.append(params.name)
        if blocks.pop():
            other.execute("BEGIN IMMEDIATE")  # the row of this call waits for it
            wrote.set()
        blocks.append(False)
        return ToolResult.ok(params)

    tool = Tool[Item, Item](name="add", description="Add.", handler=add, annotations=ToolAnnotations(open_world=False))

    class Desk(MainLoop[str, Any]):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            return Prompt(
                name="desk", sections=[MarkdownSection(title="Task", template=request, tools=[tool])]
            ), Session()

    turn = [call("add", name="one").with_id("c1"), call("add", name="two").with_id("c2")]

    async def interrupted() -> None:
        with SqliteRunStore(path) as store:
            loop = Desk(ScriptedAdapter(turn), config=MainLoopConfig(runs=store))
            task = asyncio.create_task(loop.aexecute("Go.", run_id="r"))
            await wrote.wait()
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.sleep(0.2)
            other.execute("ROLLBACK")
            await asyncio.gather(task, return_exceptions=True)

    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        asyncio.run(interrupted())
    with SqliteRunStore(path) as store:
        response, session = Desk(ScriptedAdapter(say("Done.")), config=MainLoopConfig(runs=store)).execute(
            "Go.", run_id="r"
        )
    assert response.text == "Done."
    assert [(event.params.name, event.outcome) for event in session[ToolInvoked].all()] == [
        ("one", "succeeded"),
        ("two", "succeeded"),
    ]
    assert made[-1] == "two"
