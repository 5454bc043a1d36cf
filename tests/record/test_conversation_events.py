# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`store.open(chat).events(after=step)` for conversations: what a page needs to draw the chat again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from weakincentives import Filesystem, InMemoryFilesystem, MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.adapters import (
    AnswerMessage,
    CallFinished,
    CallMessage,
    CallStarted,
    Failed,
    Finished,
    MessageReceived,
    MessageUndone,
    ModelRequest,
    ModelTurn,
    Resumed,
    RunStarted,
    TextDelta,
    TurnAdapter,
    TurnStarted,
    sse,
)
from weakincentives.content import Image
from weakincentives.errors import PromptEvaluationError
from weakincentives.loop.conversation import Conversation
from weakincentives.prompt import ToolAnnotations, ToolContext, ToolInvoked, ToolResult, tool
from weakincentives.runtime import MainLoopConfig, PostgresRunStore, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say

PIXEL = Image(b"\x89PNG\r\n\x1a\n" + b"\0" * 30, name="pixel.png")


@dataclass(frozen=True)
class Item:
    name: str


@tool(annotations=ToolAnnotations(open_world=False))
def order(params: Item, *, context: ToolContext) -> ToolResult[str]:
    """Order it."""
    context.resources.get(Filesystem).write(f"{params.name}.txt", params.name)
    return ToolResult.ok("ordered")


class Cafe(MainLoop[str, str]):
    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        you = MarkdownSection(title="You", template="Take orders.", tools=[order])
        prompt = Prompt(PromptTemplate[str](ns="cafe", key="orders", system=[you]))
        return prompt.bind(resources={Filesystem: InMemoryFilesystem()}), Session(bus=self.bus)


class Waiter(TurnAdapter):
    """Takes the order, then says so; whatever was there before."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        last = request.messages[-1]
        if isinstance(last, AnswerMessage) and last.text.startswith("OK"):
            return ModelTurn("One tea.")
        call_id = f"c{len(request.messages)}"
        return ModelTurn("Let me see. ", (CallMessage(call_id, "order", '{"name": "tea"}'),))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        made: Any = SqliteRunStore(tmp_path / "runs.db", durable=False)
    else:
        made = PostgresRunStore(request.getfixturevalue("postgres"))
    with made:
        yield made


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as made:
        yield made


def cafe(store: Any, *turns: Any) -> Cafe:
    return Cafe(ScriptedAdapter(*turns), config=MainLoopConfig(runs=store))


def read(events: Any) -> list[Any]:
    """The events up to the end, or up to the failure."""
    found: list[Any] = []
    with events:
        try:
            found.extend(events)
        except PromptEvaluationError as error:
            found.append(error)
    return found


def comparable(events: Iterable[Any]) -> list[Any]:
    """Without what differs by nature: durations, and the parts of a response that are not on record."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, CallFinished):
            found.append(replace(event, duration=0.0))
        elif isinstance(event, Finished):
            found.append((event.step, event.response.text, event.response.turns, event.response.usage))
        elif isinstance(event, PromptEvaluationError):
            found.append(Failed(str(event), type(event).__name__))
        elif not isinstance(event, RunStarted):
            found.append(event)
    return found


class Page:
    """What a page does with the events: a message, its texts and calls, and how it ended."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.after = 0

    def show(self, events: Iterable[Any]) -> None:
        for event in events:
            self.after = self.after if event.step is None else event.step
            now = self.messages[-1] if self.messages else {}
            match event:
                case MessageReceived(text, interjected):
                    if interjected:
                        now["said"].append(text)
                    else:
                        message = {"step": event.step, "said": [text], "turns": {}, "calls": {}, "end": None}
                        self.messages.append(message)
                case MessageUndone(message):
                    assert now["step"] == message
                    self.messages.pop()
                case TurnStarted(number):
                    now["turns"][number], now["end"] = "", None
                case TextDelta(text):
                    now["turns"][event.turn] += text
                case CallFinished(call_id, _, outcome):
                    now["calls"][call_id] = outcome
                case Failed(_, error):
                    now["end"] = error
                case Finished(response):
                    now["end"] = response.text
                case _:
                    pass

    @property
    def texts(self) -> list[tuple[Any, ...]]:
        return [
            (*message["said"], *filter(None, message["turns"].values()), message["end"]) for message in self.messages
        ]


def a_long_chat(store: Any) -> tuple[list[Any], list[Any]]:
    """Every kind of thing that happens in a chat, in two processes; what was told live, with what is told later."""
    told: list[Any] = []
    chat: Conversation[str]
    first = cafe(
        store,
        [say("Let me see. "), call("order", name="tea")],
        say("One tea."),
        [say("Baking. "), call("order", name="cake")],
        RuntimeError("the key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 is wrong"),
        say("One cake."),
        say("A picture."),
    )
    with first.conversation("Ada", id="chat") as chat:
        told += read(chat.stream_sync("A tea."))
        told += read(chat.stream_sync("A cake."))
        told += read(chat.stream_resume_sync())
        told += read(chat.stream_sync(["What is this?", PIXEL]))
        chat.undo()
    with cafe(store, [call("order", name="juice")], say("Juice."), say("Bye.")).conversation(id="chat") as chat:
        listener = told.append

        def hurry(event: Any) -> None:
            listener(event)
            if isinstance(event, CallStarted):
                chat.interject("Quick!")
                chat.interject("Please.")

        chat.send("A juice.", on_event=hurry)
        told += read(chat.stream_sync("Bye."))
    return told, list(store.open("chat").events())


def test_the_record_of_a_chat_says_what_listeners_were_told(store: Any) -> None:
    """The same events with the same numbers of turns, and besides: how a message failed, and what was undone."""
    told, recorded = a_long_chat(store)
    live, kept = comparable(told), comparable(recorded)
    failed_at = next(at for at, event in enumerate(live) if isinstance(event, Failed))
    assert live.pop(failed_at - 1) == TurnStarted(2)  # the request that failed is not on record
    undone = next(event for event in kept if isinstance(event, MessageUndone))
    answer = next(event for event in kept if isinstance(event, tuple) and event[1] == "Juice.")
    assert [event for event in kept if event is not undone and event is not answer] == live
    assert kept[kept.index(undone) - 1][1] == "A picture."
    failed = next(event for event in recorded if isinstance(event, Failed))
    assert failed.error == "PromptEvaluationError"
    assert "abcdefghijklmnopqrstuvwxyz" not in failed.to_json()
    assert [event.attempt for event in recorded if isinstance(event, Resumed)] == [2]
    page = Page()
    page.show(recorded)
    assert page.texts == [
        ("A tea.", "Let me see. ", "One tea.", "One tea."),
        ("A cake.", "Baking. ", "One cake.", "One cake."),
        ("A juice.", "Quick!", "Please.", "Juice.", "Juice."),
        ("Bye.", "Bye.", "Bye."),
    ]


def test_a_page_may_come_back_after_any_event(sqlite: SqliteRunStore) -> None:
    """What it gets then, with what it has, is the whole chat; nothing stands that was undone."""
    told, recorded = a_long_chat(sqlite)
    whole = Page()
    whole.show(recorded)
    run = sqlite.open("chat")
    for at in range(len(recorded)):
        page = Page()
        page.show(recorded[: at + 1])
        page.show(run.events(after=page.after))
        assert page.messages == whole.messages
    numbered = [event for event in told if getattr(event, "step", None) is not None]
    for event in numbered:  # a live event's number, too, means that all up to there was told
        page = Page()
        page.show(each for each in recorded if each.step <= event.step)
        page.show(run.events(after=event.step))
        assert page.messages == whole.messages
    image = next(event.text for event in recorded if isinstance(event, MessageReceived) and "What" in event.text)
    assert image.splitlines() == ["What is this?", *image.splitlines()[1:-1], "[image pixel.png, image/png, 38 bytes]"]


def test_a_message_that_was_undone_gives_way_to_the_one_before(sqlite: SqliteRunStore) -> None:
    """That one failed and is asked about again: its turns go on where they were."""
    turns = ([call("order", name="tea")], ValueError("no"), say("Cake."), say("Tea."))
    with cafe(sqlite, *turns).conversation("Ada", id="chat") as chat:
        told = [*read(chat.stream_sync("A tea.")), *read(chat.stream_sync("A cake."))]
        assert chat.undo().text == "A cake."
        assert chat.unanswered == "A tea."
        told += read(chat.stream_resume_sync())
    recorded = list(sqlite.open("chat").events())
    numbers = [(event.number, event.turn) for event in recorded if isinstance(event, TurnStarted)]
    assert numbers == [(1, 1), (1, 1), (2, 2)]
    assert [event.number for event in told if isinstance(event, TurnStarted)] == [1, 2, 1, 2]  # one failed
    for after in range(len(sqlite.open("chat").steps())):
        rest = [event.number for event in sqlite.open("chat").events(after=after) if isinstance(event, TurnStarted)]
        assert rest == [number for number, _ in numbers][-len(rest) or 3 :]
    page = Page()
    page.show(recorded)
    assert page.texts == [("A tea.", "Tea.", "Tea.")]


def test_every_event_is_a_moment_to_leave(sqlite: SqliteRunStore) -> None:
    """The call is undone, the message has no answer, the record says so, and the chat goes on from there."""

    async def leave(at: int) -> bool:
        """False when there are not so many events."""
        chat_id, seen, waiter = f"chat-{at}", Page(), Cafe(Waiter(), config=MainLoopConfig(runs=sqlite))
        is_left = False
        async with waiter.conversation("Ada", id=chat_id) as chat:
            async with chat.stream("A tea.") as events:
                number = 0
                async for event in events:
                    seen.show([event])
                    if is_left := number == at:
                        break
                    number += 1
            calls = chat.session[ToolInvoked].all()
            assert [event.outcome for event in calls] in ([], ["cancelled"], ["succeeded"])
            if at % 2:  # in this process, else in another one
                await go_on(chat, seen)
        async with waiter.conversation("Ada", id=chat_id) as chat:
            await go_on(chat, seen)
        fresh = Page()
        fresh.show(sqlite.open(chat_id).events())
        assert fresh.messages == seen.messages
        assert fresh.texts[0][-2:] == ("One tea.", "One tea.")
        assert len(fresh.texts) == 1
        assert list(sqlite.open(chat_id).files_at(len(sqlite.open(chat_id).steps())).glob("*")) == ["tea.txt"]
        return is_left

    async def go_on(chat: Conversation[str], seen: Page) -> None:
        seen.show(sqlite.open(chat.id or "").events(after=seen.after))
        if not seen.messages:  # it was left before the message was on record
            async with chat.stream("A tea.") as events:
                seen.show([event async for event in events])
        elif chat.unanswered is not None:
            assert seen.messages[-1]["end"] in {None, "CancelledError"}
            async with chat.stream_resume() as events:
                seen.show([event async for event in events])
        assert chat.unanswered is None

    at = 0
    while asyncio.run(leave(at)):
        at += 1
    assert at == 9


def test_nothing_to_go_on_with_is_an_error(sqlite: SqliteRunStore) -> None:
    """As of `resume`; and the synchronous form is refused in async code."""
    with cafe(sqlite).conversation("Ada", id="chat") as chat:
        with pytest.raises(ValueError, match="nothing to go on with"), chat.stream_resume_sync() as events:
            list(events)

        async def main() -> None:
            chat.stream_resume_sync()

        with pytest.raises(RuntimeError, match="stream_resume"):
            asyncio.run(main())


def test_server_sent_events_of_a_chat_go_on_after_a_failed_message(sqlite: SqliteRunStore) -> None:
    """A page reads `failed` the same way from a record and at the end of a stream."""

    async def chunks(events: Any) -> list[str]:
        return [chunk.decode() async for chunk in sse(events)]

    async def main() -> tuple[list[str], list[str]]:
        async with cafe(sqlite, ValueError("no"), say("Yes.")).conversation("Ada", id="chat") as chat:
            live = await chunks(chat.stream("One?"))
            await chat.asend("Two?")
        return live, await chunks(sqlite.open("chat").events())

    live, kept = asyncio.run(main())
    names = [chunk.split("event: ")[1].split("\n")[0] for chunk in kept]
    assert names == ["run_started", "message_received", "failed", "message_received", "turn_started", "text_delta",
                     "finished"]  # fmt: skip
    assert '"event": "failed", "message": "Request to scripted failed. ValueError: no"' in live[-1]
    assert '"event": "failed", "message": "Request to scripted failed. ValueError: no"' in kept[2]


def test_a_fork_and_a_process_that_was_killed(store: Any) -> None:
    """Each fork is a chat of its own; one that ends in the middle of a message has no end for that."""
    a_long_chat(store)
    steps = store.open("chat").steps()
    call_made = next(step.seq for step in steps if step.kind == "call")
    killed = store.fork("chat", at=call_made)  # as if it was killed there
    page = Page()
    page.show(store.open(killed).events())
    assert page.texts == [("A tea.", "Let me see. ", None)]
    with cafe(store, say("One tea."), say("More.")).conversation(id=killed) as chat:
        assert chat.unanswered == "A tea."
        page.show(read(chat.stream_resume_sync()))
        assert page.texts == [("A tea.", "Let me see. ", "One tea.", "One tea.")]
        chat.send("More?")
        assert chat.undo().text == "More?"
        assert chat.undo().text == "A tea."
        other = chat.fork()
    page.show(store.open(killed).events(after=page.after))
    assert page.messages == []
    again = Page()
    again.show(store.open(other).events())
    assert again.messages == []
