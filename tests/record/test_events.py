"""`store.open(run).events(after=step)`: what listeners were told of a run, read again from its record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
from pydantic import SecretStr

from weakincentives import Filesystem, InMemoryFilesystem, MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.adapters import (
    CallFinished,
    CallStarted,
    Finished,
    History,
    ReasoningDelta,
    Resumed,
    Retrying,
    RunStarted,
    SectionsOpened,
    TextDelta,
    TurnStarted,
    sse,
    subagent,
)
from weakincentives.errors import PromptEvaluationError, RecordError, RunBusyError, RunFormatError
from weakincentives.prompt import SectionVisibility, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, PostgresRunStore, RecordedRun, RunStore, SqliteRunStore
from weakincentives.runtime.record.rows import NewRows, Step
from weakincentives.testing import ScriptedAdapter, call, say

HOSTILE = "a\n\nevent: forged\r\ndata: x\rid: 9\n\x00 \ud800 \u2028 " + "x" * 5_000


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr


@dataclass(frozen=True)
class Stop:
    pass


@dataclass(frozen=True)
class Note:
    text: str


class Streamed(ScriptedAdapter):
    """Says its text in pieces, and something of its reasoning, as an adapter with a socket does."""

    def ask(self, request: Any) -> Any:
        turn = super().ask(request)
        if request.on_text is not None:
            request.on_reasoning("Hm.")
            for start in range(0, len(turn.text), 2_000):
                request.on_text(turn.text[start : start + 2_000])
        return turn


CLOSED = ToolAnnotations(open_world=False)
TURNS: tuple[Any, ...] = (
    [
        say(HOSTILE),
        call("order", name="tea").with_id("c1"),
        call("look", name="a").with_id("c2"),
        call("look", name="b").with_id("c3"),
    ],
    call("login", user="ann", password="hunter2xyz").with_id("c4"),
    [
        call("fail", name="cup").with_id("c5"),
        call("mail", name="m").with_id("c6"),
        call("order", name="milk").with_id("c7"),
    ],
    [call("open_sections", section_keys=["rules"], reason="asked").with_id("c8"), call("look", name="c").with_id("c9")],
    call("ask_helper", name="why").with_id("c10"),
    [say("So. "), call("missing", name="x").with_id("c11")],
    say("Done."),
)
HELPER: tuple[Any, ...] = (
    [say("Well, "), call("order", name="sugar").with_id("c12")],
    call("look", name="d").with_id("c13"),
    say("Because."),
)


class Shop(MainLoop[str, str]):
    """Tools of all kinds, sections that open, and a sub-agent. `stop` ends the run, as Ctrl-C does, in that call."""

    def __init__(self, store: Any, turns: Iterable[Any] = TURNS, helper: Iterable[Any] = HELPER, **config: Any) -> None:
        self.helper = Streamed(*helper)
        self.stop = ""
        super().__init__(Streamed(*turns), config=MainLoopConfig(runs=store, record_types=(Note,), **config))

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        def order(params: Item, context: ToolContext) -> ToolResult[str]:
            assert context.filesystem is not None
            context.filesystem.write(f"{params.name}.txt", "ordered")
            context.session[Note].append(Note(params.name))
            if params.name == self.stop:
                raise KeyboardInterrupt
            return ToolResult.ok(params.name, message="Ordered.")

        def look(params: Item) -> ToolResult[str]:
            time.sleep(0.002)  # long enough to overlap
            return ToolResult.ok(params.name, message="Looked.")

        def fail(params: Item, context: ToolContext) -> ToolResult[str]:
            context.session[Note].append(Note(params.name))
            return ToolResult.error("No cups.")

        def mail(params: Item) -> ToolResult[str]:
            return ToolResult.ok(params.name, message="Sent.")

        def login(params: Login) -> ToolResult[str]:
            return ToolResult.ok(params.user, message="Welcome.")

        orders = Tool[Item, str](name="order", description="d", handler=order, annotations=CLOSED)
        looks = Tool[Item, str](
            name="look", description="d", handler=look, annotations=ToolAnnotations(read_only=True, open_world=False)
        )
        task = MarkdownSection[Item](title="Task", template="Help with ${name}.", tools=[orders, looks])
        helper = subagent(
            name="ask_helper", description="d", params=Item, adapter=self.helper,
            prompt=PromptTemplate[Any](ns="t", key="helper", sections=[task]),
        )  # fmt: skip
        tools = [
            orders, looks, helper, Tool[Item, str](name="fail", description="d", handler=fail, annotations=CLOSED),
            Tool[Item, str](name="mail", description="d", handler=mail),
            Tool[Login, str](name="login", description="d", handler=login),
        ]  # fmt: skip
        rules = MarkdownSection(
            title="Rules", template="Be kind.", key="rules", summary="Rules.", visibility=SectionVisibility.SUMMARY
        )
        prompt = Prompt(name="shop", sections=[MarkdownSection(title="Task", template="Go.", tools=tools), rules])
        return prompt.bind(resources={Filesystem: InMemoryFilesystem()}), Session(session_id="s")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        made: Any = SqliteRunStore(tmp_path / "runs.db")
    else:
        made = PostgresRunStore(request.getfixturevalue("postgres"))
    with made:
        yield made


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as made:
        yield made


def told(shop: Shop, run_id: str = "r", **options: Any) -> list[Any]:
    """What a stream gives; the answer without the conversation, which a record does not give back."""
    with shop.stream_sync("go", run_id=run_id, **options) as stream:
        return [_without_history(event) for event in stream]


def _without_history(event: Any) -> Any:
    if not isinstance(event, Finished):
        return event
    answer = cast("Any", event)
    return replace(answer, response=replace(answer.response, history=History()))


def until_raised(events: Iterable[Any], kind: type[Exception], match: str = ".") -> list[Any]:
    """What was given before it was raised."""
    found: list[Any] = []

    def take() -> None:
        for event in events:
            found.append(event)  # noqa: PERF402

    with pytest.raises(kind, match=match):
        take()
    return found


def on_record(events: Iterable[Any]) -> list[Any]:
    """What of live events a record has: each turn's text is one event, in the order in which calls took effect."""
    kept: list[Any] = []
    for event in events:
        last = kept[-1] if kept else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta) and last.path == event.path:
            kept[-1] = replace(last, text=last.text + event.text)
        elif not isinstance(event, ReasoningDelta | Retrying):
            kept.append(event)
    return kept


class Page:
    """What a page shows that follows the rule: a turn begins its text anew, a call is known by its id."""

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self.calls: dict[Any, Any] = {}
        self.opened: set[str] = set()
        self.answer: str | None = None
        self.step = 0

    def show(self, events: Iterable[Any]) -> Page:
        for event in events:
            self.step = self.step if event.step is None else event.step
            match event:
                case TurnStarted(number):
                    self.texts[event.path, number] = ""
                case TextDelta(text):
                    self.texts[event.path, event.turn] += text
                case CallStarted(call_id, name, arguments):
                    self.calls[event.path, call_id] = (name, arguments, None)
                case CallFinished(call_id, name, outcome, text):
                    known = self.calls[event.path, call_id]
                    self.calls[event.path, call_id] = (*known[:2], outcome, text, event.kept, event.changes)
                case SectionsOpened(keys):
                    self.opened |= set(keys)
                case Finished():
                    self.answer = cast("Any", event).response.text
                case _:
                    pass
        return self

    def seen(self) -> Any:
        return self.texts, self.calls, self.opened, self.answer


def test_a_record_tells_what_listeners_were_told(store: RunStore) -> None:
    """The same events, but for reasoning and the pieces that text came in; only calls that overlapped stand apart."""
    live = told(Shop(store))
    read = list(open_run(store).events())
    expected = on_record(live)
    assert [type(event) for event in read][:3] == [RunStarted, TurnStarted, TextDelta]
    assert read[-1] == live[-1]
    assert sorted(map(repr, read)) == sorted(map(repr, expected))
    assert Page().show(read).seen() == Page().show(live).seen()
    assert {event.path for event in read} == {(), ("ask_helper",)}
    assert {event.run_id for event in read} == {"r"}
    assert [event.turn for event in read if isinstance(event, TurnStarted)] == [1, 2, 3, 4, 5, 1, 2, 3, 6, 7]
    assert all(read[0].at <= event.at <= read[-1].at for event in read)
    assert read[-1].to_dict() | {"at": 0} == live[-1].to_dict() | {"at": 0}


def open_run(store: Any, run_id: str = "r") -> Any:
    return store.open(run_id)


def test_a_reader_goes_on_at_every_cut(runs: SqliteRunStore) -> None:
    """Live up to any event, then the record: nothing is lost, and only what was told after that step comes again."""
    live = told(Shop(runs))
    whole = Page().show(live).seen()
    steps = [event.step for event in live[1:]]
    assert sorted(steps) == steps
    assert steps[-1] == open_run(runs).steps()[-1].seq
    for cut in range(len(live) + 1):
        page = Page().show(live[:cut])
        step = page.step
        rest = list(open_run(runs).events(after=step))
        assert page.show(rest).seen() == whole
        ended = [event.call_id for event in live[:cut] if isinstance(event, CallFinished) and not event.path]
        before = [event for event in live[:cut] if event.step is not None and event.step < step]
        again = [(event.path, event) for event in rest if not isinstance(event, TextDelta | CallStarted)]
        assert not [event for event in before if (event.path, event) in again]
        told_twice = [event.call_id for event in rest if isinstance(event, CallFinished) and event.call_id in ended]
        assert len(told_twice) <= 1
        assert not told_twice or live[cut - 1].step == 15  # sections were opened by the call before it


def test_a_reader_of_the_record_goes_on_at_every_cut(runs: SqliteRunStore) -> None:
    """After the last event of a step exactly what follows comes; in the middle of one, that step comes again."""
    told(Shop(runs))
    read = list(open_run(runs).events())
    whole = Page().show(read).seen()
    for cut in range(len(read)):
        rest = list(open_run(runs).events(after=read[cut].step))
        assert rest == read[len(read) - len(rest) :]
        assert len(rest) >= len(read) - cut - 1
        assert Page().show(read[: cut + 1]).show(rest).seen() == whole
        if isinstance(read[cut], RunStarted | TextDelta | CallFinished | Finished) and not read[cut].path:
            assert rest == read[cut + 1 :]  # it was the last of its step


def test_secret_arguments_are_masked_as_they_were_live(store: RunStore) -> None:
    """The record has them as the model wrote them; what is read of it has not."""
    live = told(Shop(store))
    read = list(open_run(store).events())
    (shown,) = [event for event in read if isinstance(event, CallStarted) and event.tool_name == "login"]
    assert shown in live
    assert "ann" in shown.arguments
    assert "hunter2xyz" not in "".join(event.to_json() for event in read)


def test_a_run_that_goes_on_says_so_once_and_tells_only_what_is_new(store: RunStore) -> None:
    """At every step that it can be left at: what is on record is read there, the rest is told; nothing is missing."""
    whole = told(Shop(store))
    expected = Page().show(whole)
    for step in list(store.steps("r")):
        fork = store.fork("r", at=step.seq)
        seen: list[Any] = []
        rest = _rest_of(store, fork, TURNS)
        live = told(Shop(store, rest), fork, on_event=seen.append)
        before = list(open_run(store, fork).events(after=0))
        assert [type(event) for event in live][:2] == [RunStarted, Resumed]
        assert sum(isinstance(event, Resumed) for event in live if not event.path) == 1
        assert live[1] == Resumed(1)
        assert live[1].step == step.seq
        started = {event.call_id for event in live if isinstance(event, CallStarted) and not event.path}
        finished = {event.call_id for event in live if isinstance(event, CallFinished) and not event.path}
        assert started <= finished <= started | {"c8"}  # which is over once the sections are open
        page = Page().show(event for event in before if event.step <= step.seq).show(live)
        if step.kind != "started":  # then the outcome of the mail is unknown
            assert page.seen()[2:] == expected.seen()[2:]
        resumed = [event for event in before if isinstance(event, Resumed)]
        assert resumed == [Resumed(1)]
        assert (resumed[0].step or 0) <= step.seq + 1  # the row that says so may say nothing else
        assert Page().show(before).seen() == page.seen()


def _rest_of(store: RunStore, run_id: str, turns: tuple[Any, ...]) -> tuple[Any, ...]:
    return turns[sum(step.kind == "turn" for step in store.steps(run_id)) :]


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_stream_can_tell_first_what_is_on_record(runs: SqliteRunStore, form: str) -> None:
    """With `after=`, at every step: the page is as if the run had never been left, whatever it had seen of it."""
    whole = told(Shop(runs))
    expected = Page().show(whole).seen()
    for cut in range(0, len(whole), 3):
        page = Page().show(whole[:cut])
        for at in {page.step or 1, min(page.step + 3, whole[-1].step)}:
            fork = runs.fork("r", at=at)
            if any(step.kind == "started" for step in list(runs.steps(fork))[-1:]):
                continue
            shop = Shop(runs, _rest_of(runs, fork, TURNS))
            rest = told(shop, fork, after=page.step) if form == "sync" else asyncio.run(_told(shop, fork, page.step))
            assert [type(event) for event in rest[:1]] == [RunStarted]
            assert sum(isinstance(event, RunStarted | Finished) for event in rest) == 2
            shown = Page().show(whole[:cut]).show(rest).seen()
            assert shown[2:] == expected[2:]
            assert shown[1].keys() == expected[1].keys()
            assert {key: text for key, text in shown[0].items() if text} == {
                key: text for key, text in expected[0].items() if text
            }


async def _told(shop: Shop, run_id: str, after: Any) -> list[Any]:
    async with shop.stream("go", run_id=run_id, after=after) as stream:
        return [_without_history(event) async for event in stream]


@pytest.mark.parametrize("header", ["", "abc", "-1", "1e9", "9" * 400, "\u0663", "0"])
def test_a_last_event_id_can_be_anything(runs: SqliteRunStore, header: str) -> None:
    """It is what a browser sent: what is not a step means from the beginning."""
    whole = told(Shop(runs))
    assert Page().show(told(Shop(runs, ()), after=header)).seen() == Page().show(whole).seen()
    assert told(Shop(runs, ()), after="9" * 15) == [RunStarted("shop"), whole[-1]]


def test_an_attempt_is_told_from_the_record_too(runs: SqliteRunStore) -> None:
    """A run that was interrupted in a call: what it did until then, that it goes on, and the rest."""
    shop = Shop(runs)
    shop.stop = "milk"
    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        shop.execute("go", run_id="r", on_event=seen.append)
    before = list(open_run(runs).events())
    assert not any(isinstance(event, Finished) for event in before)
    assert isinstance(before[-1], CallFinished)
    assert before[-1].tool_name == "mail"
    live = told(Shop(runs, _rest_of(runs, "r", TURNS)))
    assert live[1] == Resumed(2)
    assert isinstance(live[2], CallStarted)
    read = list(open_run(runs).events())
    assert read[: len(before)] == before
    assert read[len(before)] == Resumed(2)
    assert sorted(map(repr, on_record(live[2:]))) == sorted(map(repr, read[len(before) + 1 :]))


def test_a_run_that_failed_raises_what_it_had_raised(store: RunStore) -> None:
    """After its events; a retry goes on, and then the failure is not the end."""
    with pytest.raises(PromptEvaluationError, match="did not finish within 2 turns"):
        Shop(store).execute("go", run_id="r", max_turns=2)
    read = until_raised(open_run(store).events(), PromptEvaluationError, "did not finish within 2 turns")
    assert isinstance(read[-1], CallFinished)
    with Shop(store, ()).stream_sync("go", run_id="r", after=0) as stream:
        assert until_raised(stream, PromptEvaluationError, "did not finish") == read
    Shop(store, TURNS[2:]).resume("r", request="go", retry=True)
    read = list(open_run(store).events())
    assert isinstance(read[-1], Finished)
    assert sum(isinstance(event, Resumed) for event in read) == 1


def test_a_run_that_another_process_has_is_read_while_it_goes_on(runs: SqliteRunStore) -> None:
    """Two readers, whenever they look: each has a beginning of the same events, and all of them in the end."""
    shop = Shop(runs)
    ends: list[Any] = []

    def read() -> None:
        seen: list[Any] = []
        page, step = Page(), 0
        while page.answer is None:
            if runs.info("r") is None:
                continue
            for event in open_run(runs).events(after=step):
                seen.append(event)
                step = event.step
                page.show([event])
        ends.append(page.seen())

    readers = [Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    whole = told(shop)
    for reader in readers:
        reader.join(60)
    assert ends == [Page().show(whole).seen()] * 2


def test_a_run_that_is_busy_tells_what_is_on_record_and_then_that_it_is(runs: SqliteRunStore) -> None:
    """A reader that asks for the run while another has it."""
    told(Shop(runs))
    fork = runs.fork("r", at=9)
    held = runs.take(fork)
    try:
        with Shop(runs).stream_sync("go", run_id=fork, after=0) as stream:
            seen = until_raised(stream, RunBusyError)
    finally:
        held.release()
    assert seen == list(open_run(runs, fork).events())


def test_steps_of_a_kind_that_is_not_known_tell_nothing(runs: SqliteRunStore) -> None:
    """A later release may write them; a damaged one that is known is named."""
    told(Shop(runs))
    read = list(open_run(runs).events())
    fork = runs.fork("r", at=3)
    held = runs.take(fork)
    new: Any = Step(seq=4, kind="compacted", turn=1, body={"anything": [1]})
    held.append(NewRows([new]))
    damaged: Any = Step(seq=5, kind="turn", turn=2, body={"text": 7})
    held.append(NewRows([damaged]))
    held.release()
    assert until_raised(open_run(runs, fork).events(), RunFormatError, "Step 5") == read[:3]


def test_a_store_that_fails_while_it_is_read_says_so(runs: SqliteRunStore, tmp_path: Path) -> None:
    """What was read stands; a page is told as of any failure, and may go on from there."""
    told(Shop(runs))
    whole = list(open_run(runs).events())

    class Failing:
        def __init__(self, left: int) -> None:
            self.left = left

        def __getattr__(self, name: str) -> Any:
            return getattr(runs, name)

        def steps(self, *args: Any, **options: Any) -> Iterator[Step]:
            for step in runs.steps(*args, **options):
                if self.left == 0:
                    raise RecordError("the disk is gone, password=hunter2xyz")
                self.left -= 1
                yield step

    for left in range(2, 12):
        failing: Any = Failing(left)
        found = until_raised(RecordedRun(failing, "r").events(), RecordError)
        assert found == whole[: len(found)]
    chunks = asyncio.run(_chunks(RecordedRun(Failing(6), "r").events()))  # pyright: ignore[reportArgumentType]
    assert chunks[-1].startswith("event: failed\ndata: ")
    assert "hunter2xyz" not in "".join(chunks)


async def _chunks(events: Any) -> list[str]:
    return [chunk.decode() async for chunk in sse(events)]


def test_a_record_is_sent_to_pages_as_a_stream_is(runs: SqliteRunStore) -> None:
    """One block for each event whatever its text, with the step as id; 1 MB of text is one of them."""
    told(Shop(runs, ([say("y" * 1_000_000), call("order", name="tea")], say(HOSTILE))))
    chunks = asyncio.run(_chunks(open_run(runs).events()))
    assert all(chunk.count("\n\n") == 1 and chunk.endswith("\n\n") and "\r" not in chunk for chunk in chunks)
    heads = [chunk.split("\n")[:2] for chunk in chunks]
    assert [head[0] for head in heads] == [f"id: {event.step}" for event in open_run(runs).events()]
    assert [head[1] for head in heads][:3] == ["event: run_started", "event: turn_started", "event: text_delta"]
    assert max(map(len, chunks)) > 1_000_000


@pytest.mark.parametrize("after", [None, 0])
def test_leaving_a_resumed_run_at_every_event_leaves_it_whole(runs: SqliteRunStore, after: int | None) -> None:
    """Also while the record is told: the run can be taken up again, and the last attempt has all of it."""
    turns: tuple[Any, ...] = ([say("I see. "), call("order", name="tea")], call("order", name="cup"), say("Done."))
    number = 0
    for number in range(40):
        left = Shop(runs, _rest_of(runs, "r", turns) if runs.info("r") else turns)
        with left.stream_sync("go", run_id="r", after=after) as stream:
            for at, event in enumerate(stream):
                if at == number % 6 or isinstance(event, Finished):
                    break
        if runs.infos()[0].status == "done":
            break
    read = list(open_run(runs).events())
    assert isinstance(read[-1], Finished)
    assert [event.tool_name for event in read if isinstance(event, CallFinished) and event.kept] == ["order", "order"]
    assert Page().show(read).texts[(), 1] == "I see. "
    assert runs.verify() == []
