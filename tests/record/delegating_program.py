"""The agents that test_subagents runs; as a program, it is ended at a write to the record, and begun again.

`delegating_program.py before|after sync|async fork|shared`: one line of JSON for each write, with what was told
meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from weakincentives import PromptTemplate, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter, subagent
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record import RunInfo
from weakincentives.runtime.record.rows import NewRows
from weakincentives.session import Replace, Vector, append_all

CLOSED = ToolAnnotations(open_world=False)


@dataclass(frozen=True)
class Topic:
    topic: str


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Report:
    summary: str


@dataclass(frozen=True)
class Counted:
    """How many calls there were, those that were undone included."""

    calls: int = 0


def counted(before: Vector[Counted], _: ToolInvoked) -> Replace[Counted]:
    return Replace((Counted((before[-1].calls if before else 0) + 1),))


Script = Sequence[tuple[str, dict[str, Any]] | str]


class Model(TurnAdapter):
    """Says what the script of the prompt has at this point of the conversation; remembers what it was asked."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        super().__init__()
        self.scripts = scripts
        self.asked: list[str] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        said = request.messages[0].text  # pyright: ignore[reportAttributeAccessIssue]
        name = next(name for name in self.scripts if f"I am {name}." in said)
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        topic = said.partition("About ")[2].partition(".")[0]
        self.asked.append(f"{name}{topic}{at}")
        tell(f"asked {name}{topic}{at}")
        turn = self.scripts[name][at]
        if isinstance(turn, str):
            return ModelTurn(turn)
        made = CallMessage(f"{name}{topic}{at}", turn[0], json.dumps(turn[1]))
        return ModelTurn("", (made,), stop_reason="tool_use")


SCRIPTS: dict[str, Script] = {
    "outer": [
        ("note", {"text": "o"}),
        ("first", {"topic": "x"}),
        ("note", {"text": "p"}),
        ("first", {"topic": "y"}),
        "done",
    ],
    "first": [
        ("note", {"text": "a"}),
        ("second", {"topic": "z"}),
        ("fail", {"text": "b"}),
        ("note", {"text": "a2"}),
        json.dumps({"summary": "one"}),
    ],
    "second": [("note", {"text": "c"}), ("mail", {"text": "m"}), ("note", {"text": "c"}), "two"],
}


def tell(what: str) -> None:
    """Something happened outside."""
    if told_to:
        with told_to[-1].open("a") as file:
            file.write(f"{what}\n")


told_to: list[Path] = []


class World:
    """What a program makes anew in every process; the folder is what it left behind."""

    def __init__(self, root: Path, session: str = "fork") -> None:
        self.did: list[str] = []
        self.session = Session(session_id="a session")
        self.session[Note].register(Note, append_all)
        self.session[Report].register(Report, append_all)
        self.session[Counted].register(ToolInvoked, counted)
        self.fs = HostFilesystem(root)
        note, fail = self.tool("note", self.note, CLOSED), self.tool("fail", self.fail, CLOSED)
        mail = self.tool("mail", self.mail, ToolAnnotations(open_world=True))
        second = self.agent("second", None, session, note, mail)
        first = self.agent("first", Report, session, note, fail, second)
        task = MarkdownSection(title="Task", template="I am outer.", tools=[note, fail, first])
        template = PromptTemplate[Any](ns="tests", key="outer", sections=[task])
        self.prompt: Prompt[Any] = Prompt(template).bind(resources={Filesystem: self.fs})

    def agent(self, key: str, output: Any, session: Any, *tools: Tool[Any, Any]) -> Tool[Any, Any]:
        kind: Any = PromptTemplate if output is None else PromptTemplate[output]
        task = MarkdownSection[Topic](title="Task", template=f"I am {key}. About ${{topic}}.", tools=tools)
        template = kind(ns="tests", key=key, sections=[task])
        return subagent(name=key, description="d", prompt=template, params=Topic, session=session)

    def tool(self, name: str, handler: Any, annotations: ToolAnnotations) -> Tool[Any, Any]:
        return Tool[Note, Note](name=name, description=name, handler=handler, annotations=annotations)

    def note(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.did.append(params.text)
        fs = context.resources.get(Filesystem)
        name = f"{params.text}.txt"
        old = fs.read(name) if fs.exists(name) else ""
        fs.write(name, f"{old}{params.text}\n")
        return ToolResult.ok(params)

    def fail(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.note(params, context=context)
        return ToolResult.error("no")

    def mail(self, params: Note) -> ToolResult[Note]:
        self.did.append("mail")
        tell("mailed")
        return ToolResult.ok(params)

    def run(self, store: Any, run_id: str, model: Model, *, in_loop: bool = False) -> Any:
        record = store.run(run_id)
        if in_loop:
            return asyncio.run(model.aevaluate(self.prompt, self.session, record=record))
        return model.evaluate(self.prompt, self.session, record=record)

    def seen(self) -> dict[str, Any]:
        """Everything that must be the same however often the run was interrupted."""
        ids = {event.event_id: at for at, event in enumerate(self.session[ToolInvoked].all())}
        return {
            "notes": list(self.session[Note].all()),
            "reports": list(self.session[Report].all()),
            "counted": self.session[Counted].latest(),
            "files": {path: self.fs.read(path) for path in self.fs.search("txt")},
            "events": [
                (
                    e.session_id, e.prompt_name, e.call_id, e.tool_name, e.outcome, e.rendered_output, e.params,
                    e.success, e.changes, ids.get(e.within or ""), [ids[one] for one in e.undone_calls],
                )
                for e in self.session[ToolInvoked].all()
            ],
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.fs.close()


class Ending(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Ends the process before or after the n-th write to the record."""

    def __init__(self, path: Path, at: int, how: str) -> None:
        super().__init__(path, durable=False)
        self._left, self._how = at, how

    def append(self, info: RunInfo, rows: NewRows) -> None:
        self._left -= 1
        if self._left == 0 and self._how == "before":
            os._exit(9)
        super().append(info, rows)
        if self._left == 0:
            os._exit(9)


def run_in(here: Path, at: int, how: str, session: str, *, in_loop: bool) -> None:
    """Begin the run, or go on with it, and leave what there is to see."""
    (here / "root").mkdir(exist_ok=True)
    with Ending(here / "runs.db", at, how) as store, World(here / "root", session) as world:
        text = world.run(store, "r", Model(SCRIPTS), in_loop=in_loop).text
        (here / "seen.txt").write_text(json.dumps([text, world.seen()], default=repr))
        (here / "problems.txt").write_text(json.dumps(store.verify()))


def in_a_process(here: Path, at: int, how: str, session: str, *, in_loop: bool) -> int:
    """The exit code of a process that does this."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            run_in(here, at, how, session, in_loop=in_loop)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main(how: str, mode: str, session: str) -> None:
    """End at the first write, the second and so on, until the run comes to its end before that."""
    warm = Path("warm")
    warm.mkdir()
    run_in(warm, 0, how, session, in_loop=False)  # imports what is imported late: otherwise every process would
    gc.freeze()
    at, code = 0, 9
    while code == 9:
        at += 1
        here = Path(str(at))
        here.mkdir()
        told_to.append(here / "told.txt")
        told_to[-1].touch()
        code = in_a_process(here, at, how, session, in_loop=mode == "async")
        told = len(told_to[-1].read_text().splitlines())
        with SqliteRunStore(here / "runs.db") as store:
            interrupted = [info.run_id for info in store.interrupted()]
            turns = sum(step.kind == "turn" for info in store.infos() for step in store.steps(info.run_id))
        again = 0 if code == 0 else in_a_process(here, 0, how, session, in_loop=mode == "async")
        lines = told_to[-1].read_text().splitlines()
        print(json.dumps([at, code, again, turns, lines[:told], lines[told:], interrupted]), flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(*sys.argv[1:])
