"""The program that test_killed_conversations runs and kills: `conversation_program.py before NUMBER...` and others.

A user sends messages and undoes some. After each end of the process another one reads the conversation, answers what
has no answer, and goes on with what the user has not done yet. See `killed_program`, whose parts it uses.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.record.killed_program import (
    HERE,
    ONCE,
    Added,
    Counts,
    FailingStore,
    Item,
    add,
    forked,
    lines,
    mail,
    pay,
    run_until,
    tell,
    within,
)

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolAnnotations
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import CallMessage, UserMessage
from weakincentives.runtime.record.rows import NewRows, RunInfo

ACTIONS = ["m0", "m1", "undo", "m2", "m3", "undo", "undo", "m4"]
"""What the user does; each is one row of the record."""


class Model(TurnAdapter):
    """Makes the same calls for each message, and answers then; its text is another one whenever it is asked."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        said, turn = request.messages[at].text, len(request.messages) - at - 1
        tell("asked", f"{said}.{sum(isinstance(one, ModelMessage) for one in request.messages[at:])}")
        if turn:
            return ModelTurn(os.urandom(4).hex())
        made: list[tuple[str, dict[str, Any]]] = [
            ("add", {"name": said}),
            ("write_file", {"path": "shared.txt", "content": said, "overwrite": True}),
            ("write_file", {"path": f"{said}/own.txt", "content": said, "overwrite": True}),
            ("pay", {"name": said}),
            ("mail", {"name": said}),
        ]
        calls = tuple(CallMessage(f"{said}c{n}", name, json.dumps(args)) for n, (name, args) in enumerate(made))
        return ModelTurn(os.urandom(4).hex(), calls, stop_reason="tool_use")


class Loop(MainLoop[str, Any]):
    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        session = Session(bus=self.bus)
        self.counts = Counts()
        root = HERE / "root"
        root.mkdir(exist_ok=True)
        files = VfsToolsSection(session=session, config=VfsConfig(root=root))
        tools: list[Tool[Any, Any]] = [
            Tool[Item, Any](name="add", description="a", handler=add, annotations=ToolAnnotations(open_world=False)),
            Tool[Item, str](name="pay", description="p", handler=pay, idempotency=ONCE),
            Tool[Item, str](name="mail", description="m", handler=mail),
        ]
        task = MarkdownSection(title="Task", template=request, tools=tools)
        template = PromptTemplate[Any](ns="t", key="killed", system=[task, files])
        return Prompt(template).bind(resources={Counts: self.counts}), session


class UndoFaultStore(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Ends the process at the n-th file operation after an undo is on record, or fails that operation."""

    OPERATIONS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod"})

    def __init__(self, path: Path, at: int, how: str) -> None:
        super().__init__(path)
        self._left, self._how = at, how
        self._is_armed = False
        sys.addaudithook(self._hear)

    def _hear(self, operation: str, _: tuple[object, ...]) -> None:
        if self._is_armed and operation in self.OPERATIONS:
            self._left -= 1
            if self._left == 0:
                if self._how == "exit":
                    os._exit(9)
                raise OSError(errno.ENOSPC, "No space left on device")

    def append(self, info: RunInfo, rows: NewRows) -> None:
        super().append(info, rows)
        self._is_armed = any(step.body.get("as") == "undo" for step in rows.steps)


def run_once(store: SqliteRunStore | None = None) -> None:
    """Begin the conversation, or go on with it, as a user would."""
    store = SqliteRunStore(HERE / "runs.db") if store is None else store
    loop = Loop(Model(), config=MainLoopConfig(runs=store, effect_ledger=store.ledger(), record_types=(Added,)))
    with loop.conversation("go", id="chat") as chat:
        if chat.unanswered is not None:
            chat.resume()
        done = sum(step.body.get("as") in {"message", "undo"} for step in store.open("chat").steps())
        for action in ACTIONS[done:]:
            if action == "undo":
                chat.undo()
            else:
                chat.send(action)
        root = HERE / "root"
        result = {
            "said": [
                (type(message).__name__, message.text if isinstance(message, UserMessage) else "")
                for message in chat.history.messages
            ],
            "counts": loop.counts.names,
            "added": [item.name for item in chat.session[Added].all()],
            "events": [[event.call_id, event.tool_name, event.outcome] for event in chat.session[ToolInvoked].all()],
            "files": {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.txt")},
            "folders": sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()),
            "unanswered": chat.unanswered,
        }
    (HERE / "result.json").write_text(json.dumps(result))


def run_with_fault(at: int, how: str) -> tuple[int, int]:
    """With a fault at one write to the record, or one of a file after an undo is on record; then without."""

    def fail() -> None:
        path = HERE / "runs.db"
        files = how.removeprefix("file-")
        run_once(FailingStore(path, at, how) if files == how else UndoFaultStore(path, at, files))

    _, status = os.waitpid(forked(fail), 0)
    first = os.waitstatus_to_exitcode(status)
    _, status = os.waitpid(forked(run_once), 0)
    return first, os.waitstatus_to_exitcode(status)


def main(how: str, *numbers: str) -> None:
    """`kill SEED...`, or one of `before`, `after`, `fail`, `file-exit`, `file-fail` and the numbers of operations."""
    within("warm", lambda: (0, run_once() or 0))
    for number in numbers:
        if how == "kill":
            within(number, lambda seed=int(number): run_until(run_once, seed))
        else:
            within(number, lambda at=int(number): run_with_fault(at, how))


if __name__ == "__main__":
    assert not lines()
    main(*sys.argv[1:])
