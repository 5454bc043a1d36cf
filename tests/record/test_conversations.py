# pyright: reportPrivateUsage=false
"""Conversations on record: read again by another process, gone on with, undone and forked, whatever happened before."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples
from tests.record.sealing import HmacSeal
from tests.runtime.interrupt_parts import python_handler

from weakincentives import Budget, Filesystem, InMemoryFilesystem, MainLoop, Session
from weakincentives.budget import BudgetTracker, TokenUsage
from weakincentives.errors import (
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
from weakincentives.runtime.messages import CallMessage, History, ModelMessage, UserMessage
from weakincentives.runtime.record import compare, export_run
from weakincentives.runtime.record.rows import NewRows, RunInfo
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
    ended = [(event.text, event.stop_reason, str(event.usage)) for event in chat.session[PromptExecuted].all()]
    undone = sum(len(event.undone_calls) for event in chat.session[CallsUndone].all())
    items = list(desk.baskets[-1].items) if desk.baskets else []
    return (
        chat.history, chat.session[Note].all(), log, ended, undone, files_of(chat), items, chat.unanswered,
        chat.session[PromptRendered].count(), chat.session.session_id,
    )  # fmt: skip


def calls(chat: Conversation[Any]) -> Sequence[ToolInvoked]:
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_message_can_be_undone(desk: Desk, store: SqliteRunStore) -> None:
    """Back to the first, in this process and in others; the record says at each step what was there."""
    loop = desk.loop(*[turn for n in range(4) for turn in (do("keep", text=f"n{n}"), say(str(n)))])
    known: list[Any] = []
    with loop.conversation("Ada", id="chat") as chat:
        for number in range(4):
            known.append((chat.history, chat.session[Note].all(), files_of(chat)))
            chat.send(f"message {number}")
    for restarts in (False, True):
        copy = store.fork("chat", at=store.open("chat").steps()[-1].seq)
        if desk.root is not None:
            desk.root = desk.root.with_name(f"copy{restarts}")
        chat = desk.loop().conversation(id=copy).__enter__()
        for number in reversed(range(4)):
            undone = chat.undo()
            assert undone.text == f"message {number}"
            if restarts:
                chat.close()
                chat = desk.loop().conversation(id=copy).__enter__()
            assert (chat.history, chat.session[Note].all(), files_of(chat)) == known[number]
            run = store.open(copy, types=[Note])
            last = run.steps()[-1].seq
            assert run.state_at(last)[Note].all() == known[number][1]
            assert {path: run.files_at(last).read(path) for path in run.files_at(last).glob("**/*")} == known[number][2]
        with pytest.raises(ValueError, match="no message"):
            chat.undo()
        chat.close()
        assert not store.verify()


def test_an_id_is_made_up(desk: Desk, store: SqliteRunStore) -> None:
    """`chat.id` says which; each message tells its subscribers once, also when it is read again."""
    loop = desk.loop(say("1"))
    with loop.conversation("Ada") as chat:
        response = chat.send("a")
        assert repr(chat) == f"<Conversation {chat.id!r}, open>"
    assert repr(chat) == f"<Conversation {chat.id!r}, closed>"
    assert response.run_id == chat.id
    assert chat.history.messages[-1] == ModelMessage("1")
    told: list[Any] = []
    again = desk.loop(say("2"))
    again.bus.subscribe(PromptExecuted, told.append)
    with again.conversation(id=chat.id) as later:
        assert (told, later.session[PromptExecuted].count()) == ([], 1)
        later.send("b")
    assert [event.text for event in told] == ["2"]


def test_a_conversation_is_one_kind_of_run(desk: Desk, store: SqliteRunStore) -> None:
    """Each error names the right call."""
    loop = desk.loop(say("1"), say("2"))
    loop.adapter.evaluate(Prompt(name="x", sections=[MarkdownSection(title="x")]), Session(), record=store.run("run"))
    with loop.conversation("Ada", id="chat") as chat:
        chat.send("a")
    with pytest.raises(RunConflictError, match=r"loop\.resume\('run'\)"):
        loop.conversation(id="run").__enter__()
    with pytest.raises(RunConflictError, match=r"loop\.resume\('run'\)"):
        loop.conversation("Ada", id="run").__enter__()
    for wrong in (lambda: loop.resume("chat"), lambda: loop.execute("Ada", run_id="chat")):
        with pytest.raises(RunConflictError, match=r"loop\.conversation\(id='chat'\)"):
            wrong()
    with pytest.raises(RunConflictError, match="another request"):
        loop.conversation("Bo", id="chat").__enter__()
    with pytest.raises(RecordError, match="give its request"):
        loop.conversation(id="other").__enter__()
    with pytest.raises(RuntimeError, match="not read from the record"):
        loop.conversation(id="chat").unanswered  # noqa: B018
    with loop.conversation("Ada", id="chat") as chat:
        assert texts(chat) == ["a"]


def test_one_process_has_it(desk: Desk, store: SqliteRunStore, tmp_path: Path) -> None:
    """Another one hears who; when it is closed, it is free."""
    with SqliteRunStore(tmp_path / "runs.db") as other:
        with desk.loop(say("1")).conversation("Ada", id="chat") as chat:
            chat.send("a")
            info = store.info("chat")
            assert info is not None
            assert (info.status, info.alive, info.interrupted) == ("paused", True, False)
            with pytest.raises(RunBusyError):
                Desk(other).loop().conversation(id="chat").__enter__()
        info = store.info("chat")
        assert info is not None
        assert (info.status, info.alive, info.interrupted) == ("paused", False, False)
        with Desk(other, desk.root).loop(say("2")).conversation(id="chat") as there:
            assert there.send("b").text == "2"
    assert not store.interrupted()


@pytest.mark.parametrize("then", ["send", "resume", "undo"])
@pytest.mark.slow
def test_a_message_that_was_cancelled(desk: Desk, store: SqliteRunStore, then: str) -> None:
    """It has no answer, and the conversation goes on; here and when it is read again."""
    loop = desk.loop()
    begun = asyncio.Event()

    class Slow(ScriptedAdapter):
        async def aask(self, request: ModelRequest) -> ModelTurn:
            if len(request.messages) == 3:
                begun.set()
                await asyncio.Event().wait()
            return await super().aask(request)

    loop.adapter = Slow([do("keep", text="a")], say("Here."))

    async def main() -> Any:
        async with loop.conversation("Ada", id="chat") as chat:
            task = asyncio.create_task(chat.asend("first"))
            await begun.wait()
            chat.interject("And quickly.")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert chat.unanswered == "first"
            assert texts(chat) == ["first", "And quickly."]
            assert store.open("chat").steps()[-1].body["error"] == "CancelledError"
            return seen(chat, desk)

    known = asyncio.run(main())
    with desk.loop(say("Here.")).conversation(id="chat") as chat:
        assert seen(chat, desk) == known
        if then == "undo":
            chat.undo()
            assert (texts(chat), files_of(chat)) == ([], {})
            return
        response = chat.resume() if then == "resume" else chat.send("second")
        assert response.text == "Here."
        assert texts(chat) == ["first", "And quickly.", *(["second"] if then == "send" else [])]
        assert chat.unanswered is None
        with pytest.raises(ValueError, match="nothing to go on with"):
            chat.resume()


def test_what_was_said_meanwhile_is_read_where_it_was(desk: Desk, store: SqliteRunStore) -> None:
    """After the calls of a turn, and instead of the end."""
    loop = desk.loop([do("keep", text="a")], say("1"), say("1!"))
    chat = loop.conversation("Ada", id="chat").__enter__()

    def on_event(event: Any) -> None:
        if event.name() in {"call_finished", "text_delta"} and len(texts(chat)) < 3:
            chat.interject(event.name())

    assert chat.send("first", on_event=on_event).text == "1!"
    kinds = [getattr(message, "text", "") for message in chat.history.messages]
    assert kinds == ["first", "", "Kept a.", "call_finished", "1", "text_delta", "1!"]
    known = seen(chat, desk)
    chat.close()
    with desk.loop().conversation(id="chat") as chat:
        assert seen(chat, desk) == known


def test_files_that_another_program_changed(store: SqliteRunStore, tmp_path: Path) -> None:
    """An undo does not overwrite them unless it is told to."""
    desk = Desk(store, tmp_path / "root")
    loop = desk.loop(*[turn for n in range(3) for turn in (do("keep", text=f"n{n}"), say("ok"))])
    with loop.conversation("Ada", id="chat") as chat:
        for number in range(3):
            chat.send(f"message {number}")
        (tmp_path / "root" / "n2.txt").write_text("edited")
        with pytest.raises(WorldChangedError, match=r"n2\.txt.*world='keep'"):
            chat.undo()
        assert texts(chat)[-1] == "message 2"
        chat.undo(world="keep")
        assert files_of(chat) == {"last.txt": "n1", "n0.txt": "n0", "n1.txt": "n1", "n2.txt": "edited"}
        (tmp_path / "root" / "last.txt").write_text("edited")
        chat.undo(world="restore")  # all that was changed since the message
        assert files_of(chat) == {"last.txt": "n0", "n0.txt": "n0"}


def test_resources_are_undone(desk: Desk, store: SqliteRunStore) -> None:
    """Those on record, in this process and in others; one that a message built is built anew."""
    with desk.loop(do("keep", text="a"), say("1"), do("keep", text="b"), say("2")).conversation("Ada", id="c") as chat:
        chat.send("one")
        chat.send("two")
        chat.undo()
        assert desk.baskets[-1].items == ["a"]
    again = desk.loop(do("keep", text="c"), say("1"))
    with again.conversation(id="c") as chat:
        assert desk.baskets[-1].items == ["a"]
        chat.undo()
        chat.send("one")
        assert desk.baskets[-1].items == ["c"]
    assert all(basket.closed == 1 for basket in desk.baskets)
    with desk.loop().conversation(id="c") as chat:
        assert desk.baskets[-1].items == ["c"]


def test_limits_count_what_was_done_before(desk: Desk, store: SqliteRunStore) -> None:
    """A tracker counts all messages, also those of earlier processes; a message that goes on has what is left."""
    usage = TokenUsage(input=10)
    with desk.loop(say("1"), do("keep", text="a"), ValueError("no"), usage=usage).conversation(
        "Ada", id="chat"
    ) as chat:
        chat.send("one")
        with pytest.raises(PromptEvaluationError):
            chat.send("two")
    last = next(step.seq for step in reversed(store.open("chat").steps()) if step.kind == "call")
    copy = store.fork("chat", at=last)
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    with desk.loop(say("2"), usage=usage).conversation(id=copy, budget_tracker=tracker) as chat:
        assert chat.unanswered == "two"
        response = chat.resume()
        assert (response.turns, response.usage.total, tracker.consumed.total) == (2, 20, 30)
    copy = store.fork("chat", at=last)
    with desk.loop(say("2"), usage=usage).conversation(id=copy, budget=Budget(max_total_tokens=9)) as chat:
        with pytest.raises(PromptEvaluationError, match="used up"):
            chat.resume()
        assert chat.send("three", budget=Budget(max_total_tokens=99)).text == "2"


def test_a_history_is_on_record(desk: Desk, store: SqliteRunStore) -> None:
    """What a conversation goes on from need not be given again."""
    history = History((UserMessage("Hello"), ModelMessage("Good day.")))
    with desk.loop(say("1")).conversation("Ada", id="chat", history=history) as chat:
        chat.send("a")
        known = seen(chat, desk)
    with desk.loop().conversation(id="chat") as chat:
        assert seen(chat, desk) == known
    assert known[0].messages[:2] == history.messages


@pytest.mark.slow
def test_forks_go_on_from_a_message_or_a_step(desk: Desk, store: SqliteRunStore) -> None:
    """The other one stays as it is; a fork in the middle of a message has it without an answer."""
    MAILED.clear()
    turns = [[do("keep", text="a")], say("1"), [do("mail", text="x"), do("keep", text="b")], say("2")]
    with desk.loop(*turns).conversation("Ada", id="chat") as chat:
        chat.send("one")
        chat.send("two")
        with pytest.raises(ValueError, match="has 2 messages"):
            chat.fork(3)
        first, both = chat.fork(1, new_id="first"), chat.fork()
        straight = seen(chat, desk)[:-1]
    assert first == "first"
    info = store.info(first)
    assert info is not None
    assert (info.status, info.parent) == ("paused", "chat")
    if desk.root is not None:
        desk.root = desk.root.with_name("first")
    with desk.loop(say("other")).conversation(id=first) as chat:
        assert (texts(chat), chat.unanswered) == (["one"], None)
        assert chat.send("else").text == "other"
    if desk.root is not None:
        desk.root = desk.root.with_name("root")
    with desk.loop().conversation(id=both) as chat:
        assert seen(chat, desk)[:-1] == straight
    for step in store.open("chat").steps()[1:]:
        MAILED.clear()
        if desk.root is not None:
            desk.root = desk.root.with_name(f"at{step.seq}")
        copy = store.fork("chat", at=step.seq)
        loop = desk.loop(*_left(store, copy))
        with loop.conversation(id=copy) as chat:
            if chat.unanswered is not None:
                chat.resume()
            for text in ["one", "two"][len(texts(chat)) :]:
                chat.send(text)
            made = seen(chat, desk)[:-1]
            unknown = step.kind == "started"
            if not unknown:
                assert made[0].messages == straight[0].messages, step
                assert made[1:] == straight[1:], step
            else:
                assert MAILED == []
                assert calls(chat)[1].outcome == "unknown"
        assert not store.verify()


def _left(store: SqliteRunStore, run_id: str) -> list[Any]:
    """The turns of the conversation that a fork does not have, with the ids of their calls."""
    have = sum(step.kind == "turn" for step in store.open(run_id).steps())
    turns = [step.body for step in store.open("chat").steps() if step.kind == "turn"]
    return [
        [call(name, **json.loads(arguments)).with_id(call_id) for call_id, name, arguments in body["calls"]]
        or say(body["text"])
        for body in turns[have:]
    ]


def test_async_code_has_the_same(desk: Desk, store: SqliteRunStore) -> None:
    """Streams, failures, undo; read again by synchronous code."""
    turns = [do("keep", text="a"), say("1"), ValueError("no"), say("2"), do("keep", text="b"), say("3")]

    async def main() -> Any:
        async with desk.loop(*turns).conversation("Ada", id="chat") as chat:
            async with chat.stream("one") as events:
                kinds = [event.name() async for event in events]
            assert (kinds[0], kinds[-1]) == ("run_started", "finished")
            with pytest.raises(PromptEvaluationError):
                await chat.asend("two")
            assert (await chat.aresume()).text == "2"
            await chat.asend("three")
            undone = await chat.aundo()
            assert (undone.text, texts(chat)) == ("three", ["one", "two"])
            return seen(chat, desk)

    known = asyncio.run(main())
    with desk.loop().conversation(id="chat") as chat:
        assert seen(chat, desk) == known


def test_a_sealed_store_keeps_conversations(tmp_path: Path) -> None:
    """That it is one is sealed as well, and known again."""
    with SqliteRunStore(tmp_path / "runs.db", seal=HmacSeal()) as store:
        desk = Desk(store)
        with desk.loop(do("keep", text="a"), say("1"), say("2")).conversation("Ada", id="chat") as chat:
            chat.send("one")
            chat.send("two")
            copy = chat.fork(1)
            chat.undo()
            known = seen(chat, desk)
        with desk.loop().conversation(id="chat") as chat:
            assert seen(chat, desk) == known
        with desk.loop().conversation(id=copy) as chat:
            assert texts(chat) == ["one"]
        assert b"conversation:" not in (tmp_path / "runs.db").read_bytes()


# Idle ones.


def waited(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def is_free(store: SqliteRunStore, run_id: str = "chat") -> bool:
    info = store.info(run_id)
    return info is not None and not info.alive


def test_an_idle_conversation_is_closed_and_read_again(desk: Desk, store: SqliteRunStore) -> None:
    """Its resources are closed, other processes may go on with it, and the next message has all of it."""
    before = set(threading.enumerate())
    turns = [do("keep", text="a"), say("1"), do("keep", text="c"), say("3")]
    with desk.loop(*turns).conversation("Ada", id="chat", idle=timedelta(milliseconds=20)) as chat:
        chat.send("one")
        waited(lambda: is_free(store) and desk.baskets[-1].closed == 1)
        assert texts(chat) == ["one"]
        other = Desk(store, desk.root)
        with other.loop(do("keep", text="b"), say("2")).conversation(id="chat") as there:
            there.send("two")
        chat.send("three")
        assert texts(chat) == ["one", "two", "three"]
        assert desk.baskets[-1].items == ["a", "b", "c"]
        assert chat.session[Note].all() == (Note("a"), Note("b"), Note("c"))
        waited(lambda: is_free(store))
        assert chat.undo().text == "three"
    assert all(basket.closed == 1 for basket in desk.baskets)
    assert set(threading.enumerate()) <= before
    assert is_free(store)


def test_an_idle_one_in_async_code_is_closed_where_it_was_opened(desk: Desk, store: SqliteRunStore) -> None:
    """On the event loop of its resources; nothing is left there when it is closed."""

    async def main() -> None:
        turns = [do("keep", text="a"), say("1"), do("keep", text="b"), say("2")]
        async with desk.loop(*turns).conversation("Ada", id="chat", idle=timedelta(milliseconds=20)) as chat:
            await chat.asend("one")
            await asyncio.to_thread(waited, lambda: is_free(store))
            assert desk.baskets[-1].closed == 1
            await chat.asend("two")
            assert texts(chat) == ["one", "two"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert is_free(store)


def test_closing_an_idle_conversation_is_not_another_message(desk: Desk) -> None:
    """With `busy="raise"` a message that comes just then waits for it."""
    turns = [say("ok") for _ in range(40)]
    with desk.loop(*turns).conversation("Ada", idle=timedelta(milliseconds=1), busy="raise") as chat:
        for number in range(40):
            chat.send(str(number))
            time.sleep(0.0005 * (number % 8))  # near to when it is closed


def test_threads_and_an_idle_conversation_at_once(desk: Desk, store: SqliteRunStore) -> None:
    """Every message is answered once, however often it is closed in between."""
    loop = desk.loop(*[say("ok") for _ in range(24)])
    with loop.conversation("Ada", id="chat", idle=timedelta(milliseconds=1)) as chat:

        def talk(n: int) -> None:
            for at in range(6):
                chat.send(f"{n}.{at}")

        threads = [threading.Thread(target=talk, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(texts(chat)) == sorted(f"{n}.{at}" for n in range(4) for at in range(6))
    with desk.loop().conversation(id="chat") as chat:
        assert len(texts(chat)) == 24


# What else there is in a store.


@pytest.mark.slow
def test_other_readers_know_conversations(desk: Desk, store: SqliteRunStore, tmp_path: Path) -> None:
    """Exported, compared, pruned: as other runs are."""
    with desk.loop(do("keep", text="a"), say("1"), say("2")).conversation("Ada", id="chat") as chat:
        chat.send("one")
        chat.send("two")
        chat.undo()
        known = seen(chat, desk)
        assert not store.prune(timedelta(0))
    export_run(store, "chat", tmp_path / "chat.wink")
    with SqliteRunStore(tmp_path / "chat.wink") as exported:
        info = exported.info("chat")
        assert info is not None
        assert info.is_conversation
        compared = compare(store.open("chat"), exported.open("chat"))
        assert (len(compared.calls), compared.parted) == (1, None)
        assert not exported.verify()
        if desk.root is not None:
            desk.root = desk.root.with_name("exported")
        with Desk(exported, desk.root).loop(say("3")).conversation(id="chat") as chat:
            assert chat.history == known[0]
            assert chat.send("three").text == "3"
    assert [info.run_id for info in store.prune(timedelta(0))] == ["chat"]


# Interrupts, faults, and any order of all of it.


class Answering(ScriptedAdapter):
    """Makes three calls, then answers."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        if not any(isinstance(message, ModelMessage) for message in request.messages):
            made = (("keep", "a"), ("mail", "m"), ("keep", "b"))
            return ModelTurn("", tuple(CallMessage(text, name, f'{{"text":"{text}"}}') for name, text in made))
        return ModelTurn("done")


@pytest.mark.slow
def test_ctrl_c_anywhere(store: SqliteRunStore, tmp_path: Path) -> None:
    """In the middle of a message: it goes on with `resume`, here or in another process, and nothing is done twice."""
    desk = Desk(store, tmp_path / "root")
    with desk.loop(say("warm")).conversation("Ada", id="warm") as chat:
        chat.send("warm")
    number, step = 0, 97
    while True:
        number += step
        MAILED.clear()
        desk.root = tmp_path / f"root{number}"
        loop = desk.loop()
        loop.adapter = Answering()
        chat = loop.conversation("Ada", id=f"chat{number}").__enter__()
        counted = 0

        def interrupt(_: Any, event: str, __: Any) -> None:
            nonlocal counted
            counted += event == "call"
            if counted == number:  # noqa: B023 - called before the next one
                counted += 1
                signal.raise_signal(signal.SIGINT)

        was_interrupted = False
        try:
            with python_handler():
                sys.setprofile(interrupt)
                chat.send("go")
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            sys.setprofile(None)
        if number % 2:
            chat.close()
            chat = loop.conversation(id=f"chat{number}").__enter__()
        if not texts(chat):
            assert chat.send("go").text == "done"
        while chat.unanswered is not None:
            assert was_interrupted
            chat.resume()
        assert len(MAILED) <= 1
        assert chat.history.open_calls == ()
        expected = {f"{note.text}.txt" for note in chat.session[Note].all()}
        assert set(files_of(chat)) - {"last.txt"} == expected
        has_parted = chat._opened.is_over  # then the next message reads the record again
        known = seen(chat, desk)
        chat.close()
        with desk.loop().conversation(id=f"chat{number}") as chat:
            assert has_parted or seen(chat, desk) == known
        if not was_interrupted and counted < number:
            break
    assert number > 10 * step
    assert not store.verify()


def _turns_left(store: SqliteRunStore, run_id: str, turns: list[Any]) -> list[Any]:
    return turns[sum(step.kind == "turn" for step in store.open(run_id).steps()) :]


class FailingOnce(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Fails the n-th write from when it is armed."""

    left = 0

    def append(self, info: RunInfo, rows: NewRows) -> None:
        self.left -= 1
        if self.left == 0:
            raise RecordError("disk full")
        super().append(info, rows)


@pytest.mark.slow
@pytest.mark.parametrize("action", ["send", "undo"])
def test_a_write_that_fails_is_not_the_end(tmp_path: Path, action: str) -> None:
    """The same conversation reads the record again, and goes on."""
    for at in range(1, 8 if action == "send" else 2):
        with FailingOnce(tmp_path / f"{at}.db") as store:
            desk = Desk(store, tmp_path / f"{action}{at}")
            turns = [do("keep", text="a"), say("1"), [do("keep", text="b"), do("keep", text="c")], say("2")]
            loop = desk.loop(*turns)
            with loop.conversation("Ada", id="chat") as chat:
                chat.send("one")
                if action == "undo":
                    chat.send("two")
                store.left = at
                with pytest.raises(RecordError):
                    chat.undo() if action == "undo" else chat.send("two")
                if action == "undo":
                    assert chat.undo().text == "two"
                    assert (texts(chat), sorted(files_of(chat))) == (["one"], ["a.txt", "last.txt"])
                    continue
                chat._adapter = ScriptedAdapter(*_turns_left(store, "chat", turns))  # pyright: ignore[reportPrivateUsage]
                if chat.unanswered is None and texts(chat) == ["one"]:
                    chat.send("two")
                else:
                    chat.resume()
                assert sorted(files_of(chat)) == ["a.txt", "b.txt", "c.txt", "last.txt"]
                assert chat.history.messages[-1] == ModelMessage("2")
            assert not store.verify()


STEPS = ["keep", "bad", "say", "fail", "mail", "undo", "resume", "restart"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(STEPS), max_size=10))
@settings(max_examples=examples(25))
def test_any_messages_and_undos_in_any_process(steps: list[str]) -> None:
    """After any of them undo gives exactly what there was before the message, and a restart changes nothing."""
    with TemporaryDirectory() as folder, SqliteRunStore(Path(folder) / "runs.db", durable=False) as store:
        desk = Desk(store, Path(folder) / "root")
        chat = desk.loop().conversation("Ada", id="chat").__enter__()
        before: list[Any] = []
        for number, step in enumerate(steps):
            turns: list[Any] = {
                "keep": [do("keep", text=str(number)), say("ok")], "bad": [do("keep", text="bad"), say("ok")],
                "say": [say("ok")], "fail": [do("keep", text=str(number)), ValueError("no")],
                "mail": [do("mail", text=str(number)), say("ok")], "resume": [say("again")],
            }.get(step, [])  # fmt: skip
            chat._adapter = chat._open._evaluation._adapter = ScriptedAdapter(*turns)  # type: ignore[union-attr]
            if step == "undo":
                if before:
                    chat.undo()
                    assert (chat.history, chat.session[Note].all(), files_of(chat)) == before.pop()
            elif step == "restart":
                known = seen(chat, desk)
                chat.close()
                chat = desk.loop().conversation(id="chat").__enter__()
                assert seen(chat, desk) == known
            elif step == "resume":
                if chat.unanswered is not None:
                    assert chat.resume().text == "again"
            else:
                before.append((chat.history, chat.session[Note].all(), files_of(chat)))
                act(chat, str(number))
        chat.close()
        assert not store.verify()
