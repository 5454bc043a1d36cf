"""A recorded run that says which of its steps are on record; it is traced for simulated power cuts."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from weakincentives import Session
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record.rows import NewRows, RunInfo


@dataclass(frozen=True)
class Number:
    n: int


def saying(store: SqliteRunStore) -> SqliteRunStore:
    """The store, which says what is on record once it is."""
    append = store.append

    def say(info: RunInfo, rows: NewRows) -> None:
        append(info, rows)
        if rows.steps:
            os.write(1, f"step {rows.steps[-1].seq}\n".encode())

    store.append = say  # pyright: ignore[reportAttributeAccessIssue]
    return store


class Model(TurnAdapter):
    """Makes one call in each turn, so many times."""

    def __init__(self, turns: int) -> None:
        super().__init__(max_turns=turns + 1)
        self.turns = turns
        self.asked: list[int] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        self.asked.append(at)
        if at == self.turns:
            return ModelTurn("Done.")
        return ModelTurn("", (CallMessage(f"c{at}", "put", json.dumps({"n": at})),), stop_reason="tool_use")


def run(store: SqliteRunStore, model: Model) -> tuple[Any, Session, Filesystem]:
    """The run, from where it is."""

    def put(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        assert context.filesystem is not None
        context.filesystem.write(f"{params.n}.txt", "x" * 100 * params.n)
        context.session[Number].append(params)
        return ToolResult.ok(params.n)

    closed = ToolAnnotations(open_world=False)
    tools = [Tool[Number, Any](name="put", description="Put.", handler=put, annotations=closed)]
    session, fs = Session(), InMemoryFilesystem()
    prompt: Prompt[Any] = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do.", tools=tools)])
    made = prompt.bind(resources={Filesystem: fs})
    return model.evaluate(made, session, record=store.run("r")), session, fs


def main() -> None:
    """Run it as the arguments say: the store, the number of turns, whether to wait for the disk."""
    path, turns, synchronous = sys.argv[1:]
    with saying(SqliteRunStore(path, durable=synchronous == "FULL")) as store:
        run(store, Model(int(turns)))
