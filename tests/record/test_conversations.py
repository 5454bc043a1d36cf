"""Conversations on record: read again by another process, gone on with, undone and forked, whatever happened before."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives import Budget, Filesystem, InMemoryFilesystem, MainLoop, Session
from weakincentives.budget import BudgetTracker, TokenUsage
from weakincentives.errors import (
    NotResumableError,
    PromptEvaluationError,
    RecordError,
    RunBusyError,
    RunConflictError,
    WorldChangedError,
)
from weakincentives.filesystem import HostFilesystem
from weakincentives.loop import MainLoopConfig
from weakincentives.loop.conversation import Conversation
from weakincentives.loop.request import ModelRequest, ModelTurn
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptExecuted,
    PromptRendered,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.prompt.events import CallsUndone
from weakincentives.resources import Binding
from weakincentives.runtime import RunStore, SqliteRunStore
from weakincentives.runtime.messages import AnswerMessage, History, ModelMessage, UserMessage
from weakincentives.runtime.record import compare, export_run
from weakincentives.session import append_all
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Note:
    text: str


class Basket:
    """A resource that is on record."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.closed = 0

    def snapshot(self) -> tuple[str, ...]:
        return tuple(self.items)

    def restore(self, snapshot: tuple[str, ...], /) -> None:
        self.items = list(snapshot)

    def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
        if since is None:
            return {"all": self.items}
        return None if since == tuple(self.items) else {"keep": len(since), "added": self.items[len(since) :]}

    def apply(self, delta: Any, /) -> None:
        self.items = list(delta["all"]) if "all" in delta else [*self.items[: delta["keep"]], *delta["added"]]

    def close(self) -> None:
        self.closed += 1


def keep(params: Note, *, context: ToolContext) -> ToolResult[Any]:
    context.resources.get(Filesystem).write(f"{params.text}.txt", params.text)
    context.resources.get(Filesystem).write("last.txt", params.text)
    context.resources.get(Basket).items.append(params.text)
    context.session[Note].append(params)
    if params.text == "bad":
        raise RuntimeError("the disk is on fire")
    if params.text == "interrupted":
        raise KeyboardInterrupt
    return ToolResult.ok(None, message=f"Kept {params.text}.")


MAILED: list[str] = []


def mail(params: Note) -> ToolResult[str]:
    MAILED.append(params.text)
    return ToolResult.ok("sent")


def tell(params: Note) -> ToolResult[str]:
    return ToolResult.ok(params.text * 100_000)


CLOSED = ToolAnnotations(open_world=False)
KEEP = Tool[Note, Any](name="keep", description="Keep a note.", handler=keep, annotations=CLOSED)
MAIL = Tool[Note, str](name="mail", description="Send a mail.", handler=mail)
TELL = Tool[Note, str](
    name="tell", description="Tell it at length.", handler=tell, annotations=ToolAnnotations(read_only=True)
)


class State(MarkdownSection[Any]):
    """A section that shows what is in the session."""

    def render_state(self, session: Any) -> str:
        return f"{session[Note].count()} notes"


@dataclass
class Desk:
    """One process: a loop, the model's answers, and where the files are."""

    store: RunStore
    root: Path | None = None
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    baskets: list[Basket] = field(default_factory=list[Basket])
    adapter: ScriptedAdapter = field(default_factory=ScriptedAdapter)

    def loop(self, *turns: Any, **options: Any) -> MainLoop[str, Any]:
        desk, self.adapter = self, ScriptedAdapter(*turns, **options)
        files: Any = InMemoryFilesystem()
        if self.root is not None:
            self.root.mkdir(exist_ok=True)
            files = Binding(Filesystem, lambda _: HostFilesystem(desk.root or Path()))

        class Loop(MainLoop[str, Any]):
            def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
                you = State(title="You", template=f"You serve {request}.", tools=[KEEP, MAIL, TELL])
                rules = MarkdownSection(
                    title="Rules", template="All.", summary="Some.", visibility=SectionVisibility.SUMMARY
                )
                session = Session(bus=self.bus)
                session[Note].register(Note, append_all)
                return Prompt(PromptTemplate[Any](ns="t", key="desk", system=[you, rules])), session

        def basket(_: Any) -> Basket:
            self.baskets.append(Basket())
            return self.baskets[-1]

        resources = {Filesystem: files, Basket: Binding(Basket, basket)}
        return Loop(self.adapter, config=MainLoopConfig(resources=resources, runs=self.store, **self.config))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


@pytest.fixture(params=["memory", "disk"])
def desk(request: Any, store: SqliteRunStore, tmp_path: Path) -> Desk:
    return Desk(store, None if request.param == "memory" else tmp_path / "root")


def texts(chat: Conversation[Any]) -> list[str]:
    return [message.text for message in chat.history.messages if isinstance(message, UserMessage)]


def files_of(chat: Conversation[Any]) -> dict[str, str]:
    fs = chat._opened._prompt.resources.get(Filesystem)  # pyright: ignore[reportPrivateUsage]
    return {path: fs.read(path) for path in sorted(fs.glob("**/*"))}


def seen(chat: Conversation[Any], desk: Desk) -> Any:
    """What a conversation is: what the model read, the state, the log, the files, another resource."""
    log = [(event.call_id, event.tool_name, event.outcome, event.rendered_output) for event in calls(chat)]
    ended = [(event.text, event.stop_reason, event.usage.total) for event in chat.session[PromptExecuted].all()]
    undone = sum(len(event.undone_calls) for event in chat.session[CallsUndone].all())
    items = list(desk.baskets[-1].items) if desk.baskets else []
    return (
        chat.history, chat.session[Note].all(), log, ended, undone, files_of(chat), items, chat.unanswered,
        chat.session[PromptRendered].count(), chat.session.session_id,
    )  # fmt: skip


def calls(chat: Conversation[Any]) -> tuple[ToolInvoked, ...]:
    return chat.session[ToolInvoked].all()


NUMBERS = iter(range(10_000))


def do(name: str, **arguments: Any) -> Any:
    """A call with an id of its own: those that a script makes up count from its start."""
    return call(name, **arguments).with_id(f"id{next(NUMBERS)}")


SCRIPT: list[tuple[str, list[Any]]] = [
    ("one", [do("keep", text="a"), say("1")]),
    ("two", [[do("keep", text="b"), do("mail", text="hello"), do("keep", text="bad")], say("2")]),
    ("three", [do("open_sections", section_keys=["rules"], reason="asked"), say("3")]),
    ("undo", []),
    ("four", [call("tell", text="x").with_id("long"), do("keep", text="c"), say("4")]),
    ("five", [do("keep", text="d"), ValueError("no network")]),
    ("six", [do("read_tool_result", call_id="long", offset=0, limit=5), say("6")]),
    ("seven", [[do("keep", text="e"), do("keep", text="interrupted"), do("keep", text="f")]]),
    ("resume", [say("7")]),
    ("undo", []),
    ("undo", []),
    ("eight", [do("keep", text="a"), say("8")]),
]  # fmt: skip


def act(chat: Conversation[Any], step: str) -> None:
    """Do one step of the script."""
    try:
        if step == "undo":
            chat.undo()
        elif step == "resume":
            chat.resume()
        else:
            chat.send(step)
    except (PromptEvaluationError, KeyboardInterrupt):
        pass


def play(desk: Desk, store: SqliteRunStore, *, restarts: Callable[[int], bool]) -> list[Any]:
    """The script, in another process after each step that says so; what there was after each step."""
    known: list[Any] = []
    turns = [turn for _, made in SCRIPT for turn in made]
    loop = desk.loop(*turns)
    chat = loop.conversation("Ada", id="chat").__enter__()
    for at, (step, made) in enumerate(SCRIPT):
        act(chat, step)
        turns = turns[len(made) :]
        known.append(seen(chat, desk))
        if restarts(at):
            chat.close()
            chat = desk.loop(*turns).conversation(id="chat").__enter__()
            assert seen(chat, desk) == known[-1], step
    chat.close()
    assert not store.verify()
    return known


def test_a_conversation_goes_on_in_another_process(desk: Desk, store: SqliteRunStore, tmp_path: Path) -> None:
    """After each message, undo and failure it is there as it was; then it goes on as if nothing had happened."""
    MAILED.clear()
    straight = play(desk, store, restarts=lambda _: False)
    assert MAILED == ["hello"]
    with SqliteRunStore(tmp_path / "other.db") as other:
        again = Desk(other, None if desk.root is None else tmp_path / "other")
        restarted = play(again, other, restarts=lambda _: True)
        assert MAILED == ["hello", "hello"]
        for (step, _), one, other_one in zip(SCRIPT, restarted, straight, strict=True):
            for ours, theirs in zip(one[:-1], other_one[:-1], strict=True):
                assert ours == theirs, step
        steps = [[step.kind for step in each.open("chat").steps()] for each in (store, other)]
        assert steps[0] == steps[1]
