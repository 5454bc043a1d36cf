"""`loop.stream`, `adapter.stream` and their synchronous forms: the events of one run, and what leaving them does."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import random
import threading
import time
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.runtime.limits_parts import eventually

from weakincentives import (
    Filesystem,
    InMemoryFilesystem,
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.adapters import (
    CallFinished,
    CallStarted,
    EventStream,
    Failed,
    Finished,
    MessageReceived,
    MessageUndone,
    ReasoningDelta,
    Resumed,
    Retrying,
    RunStarted,
    SectionsOpened,
    SyncEventStream,
    TextDelta,
    TurnStarted,
    sse,
    subagent,
)
from weakincentives.errors import RollbackError
from weakincentives.filesystem import FileChanges
from weakincentives.prompt.changes import Changes, SliceDelta
from weakincentives.run_context import RunContext
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.progress import ProgressEvent
from weakincentives.runtime.quick_events import unfrozen
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.threads import abandoned_count

WAIT = 60.0


@dataclass(frozen=True)
class Order:
    item: str


@dataclass(frozen=True)
class Note:
    text: str


class Desk(MainLoop[str, Any]):
    """Writes a file and a note, waiting in the handler while `hold` is set; async handlers with `is_async`."""

    def __init__(self, *turns: Any, is_async: bool = False, **config: Any) -> None:
        self.files = InMemoryFilesystem()
        self.hold = threading.Event()
        self.held = threading.Event()
        self.is_async = is_async
        script = turns or ([say("Let me see. "), call("order", item="tea")], call("order", item="cup"), say("Done."))
        super().__init__(ScriptedAdapter(*script), config=MainLoopConfig(**config))

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        if request == "unprepared":
            raise LookupError("no such request")

        def write(params: Order, context: ToolContext) -> None:
            assert context.filesystem is not None
            context.filesystem.write(f"{params.item}.txt", "half")
            context.session[Note].append(Note(params.item))

        def order(params: Order, *, context: ToolContext) -> ToolResult[str]:
            write(params, context)
            if self.hold.is_set():
                self.held.set()
                eventually(lambda: not self.hold.is_set() or not context_is_active(context), WAIT)
            return ToolResult("Ordered.")

        async def aorder(params: Order, *, context: ToolContext) -> ToolResult[str]:
            write(params, context)
            if self.hold.is_set():
                self.held.set()
                await asyncio.sleep(WAIT)
            return ToolResult("Ordered.")

        tool = Tool[Order, str](name="order", description="Order.", handler=aorder if self.is_async else order)
        prompt = Prompt(name="desk", sections=[MarkdownSection(title="Task", template="Go.", tools=[tool])])
        return prompt.bind(resources={Filesystem: self.files}), Session(bus=self.bus)


def context_is_active(context: ToolContext) -> bool:
    try:
        context.require_active()
    except Exception:
        return False
    return True


async def read(stream: EventStream[Any]) -> list[Any]:
    async with stream as events:
        return [event async for event in events]


async def collect(events: EventStream[Any], seen: list[Any]) -> None:
    async for event in events:
        seen.append(event)  # noqa: PERF401 - those before an error are wanted, too


def read_sync(stream: SyncEventStream[Any]) -> list[Any]:
    with stream as events:
        return list(events)


EXPECTED = [
    RunStarted("desk"),
    TurnStarted(1),
    TextDelta("Let me see. "),
    CallStarted("call_1", "order", '{"item":"tea"}'),
    CallFinished,
    TurnStarted(2),
    CallStarted("call_2", "order", '{"item":"cup"}'),
    CallFinished,
    TurnStarted(3),
    TextDelta("Done."),
    Finished,
]


def assert_expected(events: list[Any]) -> None:
    assert len(events) == len(EXPECTED)
    for event, wanted in zip(events, EXPECTED, strict=True):
        assert isinstance(event, wanted) if isinstance(wanted, type) else event == wanted


def test_a_stream_gives_every_event_and_the_response_last() -> None:
    """In the order in which things happened."""
    events = asyncio.run(read(Desk().stream("tea")))
    assert_expected(events)
    assert events[-1].response.text == "Done."
    assert events[4].outcome == "succeeded"
    assert events[4].changes.files.added == ("tea.txt",)


def test_the_synchronous_form_gives_the_same() -> None:
    """`stream_sync` is `stream` with `with` and `for`."""
    assert_expected(read_sync(Desk().stream_sync("tea")))


def test_adapters_stream_too() -> None:
    """Without a loop around them."""
    adapter: Any = Desk().adapter
    prompt, session = Desk().prepare("tea")
    assert_expected(asyncio.run(read(adapter.stream(prompt, session))))
    adapter = Desk().adapter
    prompt, session = Desk().prepare("tea")
    assert_expected(read_sync(adapter.stream_sync(prompt, session)))


def test_events_say_which_run_and_turn_they_belong_to() -> None:
    """The id is that of the run context, the turn counts, and time does not go back."""
    context = RunContext(run_id="r-1")
    events = asyncio.run(read(Desk().stream("tea", run_context=context)))
    assert {event.run_id for event in events} == {"r-1"}
    assert [event.turn for event in events] == [0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert {event.step for event in events} == {None}
    assert sorted(event.at for event in events) == [event.at for event in events]


def test_events_of_a_run_on_record_say_after_which_step_they_came(tmp_path: Path) -> None:
    """So that a reader who lost the connection can look up what it missed."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        events = asyncio.run(read(Desk(runs=store, record_types=(Note,)).stream("tea", run_id="r-7")))
        steps = [event.step for event in events]
        assert steps[0] is None
        assert sorted(steps[1:]) == steps[1:]
        assert {event.run_id for event in events} == {"r-7"}
        finished = [event for event in events if isinstance(event, CallFinished)]
        kinds = {step.seq: step.kind for step in store.open("r-7").steps()}
        assert [kinds[event.step] for event in finished if event.step is not None] == ["call", "call"]


def test_a_listener_of_the_caller_is_told_as_well() -> None:
    """`on_event=` goes on working beside a stream; what it raises has no effect on it."""
    seen: list[Any] = []
    events = asyncio.run(read(Desk().stream("tea", on_event=seen.append)))
    assert seen == events[1:-1]

    def broken(event: object) -> None:
        raise ValueError(event)

    assert_expected(asyncio.run(read(Desk().stream("tea", on_event=broken))))


def test_a_run_that_fails_raises_where_the_next_event_was_expected() -> None:
    """After the events up to there; then the iteration is over, and the block ends quietly."""

    async def main() -> None:
        seen: list[Any] = []
        async with Desk(call("order", item="tea")).stream("tea") as events:
            with pytest.raises(AssertionError, match="script ends"):
                await collect(events, seen)
            assert [event async for event in events] == []
        assert seen[-1] == TurnStarted(2)

    asyncio.run(main())
    with Desk(call("order", item="tea")).stream_sync("tea") as events:
        with pytest.raises(AssertionError, match="script ends"):
            list(events)
        assert list(events) == []


def test_what_prepare_raises_is_raised_when_the_block_is_entered() -> None:
    """There is no run then."""

    async def main() -> None:
        with pytest.raises(LookupError):
            async with Desk().stream("unprepared"):
                pytest.fail("was entered")

    asyncio.run(main())
    with pytest.raises(LookupError), Desk().stream_sync("unprepared"):
        pytest.fail("was entered")


def test_wrong_use_says_what_to_do() -> None:
    """Read outside of the block, entered twice, in an event loop, with an unknown option."""

    async def main() -> None:
        stream = Desk().stream("tea")
        with pytest.raises(RuntimeError, match="inside its block"):
            await anext(stream)
        with pytest.raises(RuntimeError, match="inside its block"):
            _ = stream.session
        async with stream:
            pass
        with pytest.raises(RuntimeError, match="a second time"):
            await stream.__aenter__()
        with pytest.raises(RuntimeError, match=r"async with loop\.stream"):
            Desk().stream_sync("tea")

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="inside its block"):
        next(Desk().stream_sync("tea"))
    with pytest.raises(TypeError, match=r"Desk\.stream\(\) got an unexpected keyword argument 'limit'"):
        Desk().stream("tea", limit=3)  # pyright: ignore[reportCallIssue]


# Leaving early.


def assert_nothing_left(desk: Desk, session: Session, seen: list[Any]) -> None:
    """What was kept is what finished calls say; everything else is gone."""
    log = session[ToolInvoked].all()
    kept = [event.params.item for event in log if event.success]
    assert sorted(path.name for path in map(Path, desk.files.glob("*"))) == sorted(f"{item}.txt" for item in kept)
    assert [note.text for note in session[Note].all()] == kept
    assert len({event.call_id for event in log}) == len(log)
    told = [event.call_id for event in seen if isinstance(event, CallFinished)]
    assert set(told) <= {event.call_id for event in log}


@pytest.mark.parametrize("number", range(len(EXPECTED) + 1))
@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_after_any_event_leaves_nothing_behind(number: int, is_async: bool) -> None:
    """What a finished call did stays, what was running is undone, and no task is left."""
    desk = Desk(is_async=is_async)

    async def main() -> None:
        seen: list[Any] = []
        async with desk.stream("tea") as events:
            async for event in events:
                seen.append(event)
                if len(seen) > number:
                    break
        assert_nothing_left(desk, events.session, seen)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_while_a_call_runs_waits_until_it_is_undone(is_async: bool) -> None:
    """The handler has written; when the block is over, nothing of that is there."""
    desk = Desk(is_async=is_async)
    desk.hold.set()

    async def main() -> None:
        async with desk.stream("tea") as events:
            async for event in events:
                if isinstance(event, CallStarted):
                    await asyncio.to_thread(desk.held.wait, WAIT)
                    assert desk.files.exists("tea.txt")
                    break
        assert not desk.files.exists("tea.txt")
        assert [event.outcome for event in events.session[ToolInvoked].all()] == ["cancelled"]

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_the_synchronous_form_does_the_same(is_async: bool) -> None:
    """Also by an exception, which is what the caller gets."""
    desk = Desk(is_async=is_async)
    desk.hold.set()
    stream = desk.stream_sync("tea")

    def interrupted() -> None:
        with stream as events:
            for event in events:
                if isinstance(event, CallStarted):
                    assert desk.held.wait(WAIT)
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not desk.files.exists("tea.txt")
    assert [event.outcome for event in stream.session[ToolInvoked].all()] == ["cancelled"]


def test_cancelling_the_reader_undoes_the_call_before_it_is_over() -> None:
    """Cancelled twice, too: the second does not leave half a call behind."""
    desk = Desk(is_async=True)
    desk.hold.set()
    sessions: list[Session] = []

    async def reader() -> None:
        async with desk.stream("tea") as events:
            sessions.append(events.session)
            async for _ in events:
                pass

    async def main() -> None:
        task = asyncio.create_task(reader())
        await asyncio.to_thread(desk.held.wait, WAIT)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not desk.files.exists("tea.txt")
        assert [event.outcome for event in sessions[0][ToolInvoked].all()] == ["cancelled"]

    asyncio.run(main())


def test_an_undo_that_fails_is_raised_by_leaving() -> None:
    """Nobody would hear of it otherwise; an error of the reader's own is what the reader gets."""

    class Stubborn:
        def snapshot(self) -> int:
            return 1

        def restore(self, snapshot: int) -> None:
            raise OSError("the disk is gone")

    held = threading.Event()

    async def wait(params: None, *, context: ToolContext) -> ToolResult[str]:
        context.resources.get(Stubborn)
        held.set()
        await asyncio.sleep(WAIT)
        return ToolResult("Waited.")

    tool = Tool[None, str](name="wait", description="Wait.", handler=wait)
    section = MarkdownSection(title="Task", template="Go.", tools=[tool])

    async def leave(error: Exception | None) -> None:
        held.clear()
        prompt = Prompt(name="stubborn", sections=[section]).bind(resources={Stubborn: Stubborn()})
        async with ScriptedAdapter(call("wait")).stream(prompt, Session()):
            await asyncio.to_thread(held.wait, WAIT)
            if error is not None:
                raise error

    with pytest.raises(RollbackError):
        asyncio.run(leave(None))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(leave(ZeroDivisionError()))


def random_exits(number: int, seed: int) -> None:
    random_ = random.Random(seed)
    before = threading.active_count()

    async def leave() -> None:
        desk, seen = Desk(is_async=random_.random() < 0.5), list[Any]()
        stop, pause = random_.randrange(len(EXPECTED) + 1), random_.choice([0, 0, 0.0005, 0.002])
        async with desk.stream("tea") as events:
            async for event in events:
                seen.append(event)
                if len(seen) > stop:
                    break
                await asyncio.sleep(pause)
        assert_nothing_left(desk, events.session, seen)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def leave_sync() -> None:
        desk, seen = Desk(is_async=random_.random() < 0.5), list[Any]()
        stop, pause = random_.randrange(len(EXPECTED) + 1), random_.choice([0, 0, 0.0005, 0.002])
        with desk.stream_sync("tea") as events:
            for event in events:
                seen.append(event)
                if len(seen) > stop:
                    break
                time.sleep(pause)
        assert_nothing_left(desk, events.session, seen)

    async def several() -> None:
        for _ in range(number):
            await leave()

    asyncio.run(several())
    for _ in range(number):
        leave_sync()
    eventually(lambda: abandoned_count() == 0, WAIT)
    eventually(lambda: threading.active_count() <= before + 8, WAIT)


def test_random_exits_leave_nothing() -> None:
    """No task, no thread, no half call; async and synchronous."""
    random_exits(20, 7)


@pytest.mark.torture
def test_a_thousand_random_exits_leave_nothing() -> None:
    """The same, a thousand times."""
    random_exits(500, random.randrange(1 << 30))


# Slow readers.


class Chatty(ScriptedAdapter):
    """Streams its text letter by letter, like an adapter with a socket."""

    def ask(self, request: Any) -> Any:
        turn = super().ask(request)
        for letter in turn.text:
            if request.on_text is not None:
                request.on_text(letter)
                request.on_reasoning("?")
        return turn


def test_text_for_a_slow_reader_is_one_event() -> None:
    """A reader that is behind gets what was said meanwhile in one piece; the run did not wait for it."""
    prompt, session = Desk().prepare("tea")
    text = "x" * 5000

    class Same(Chatty):
        def ask(self, request: Any) -> Any:
            turn = ScriptedAdapter.ask(self, request)
            for letter in turn.text:
                if request.on_text is not None:
                    request.on_text(letter)
            return turn

    async def main() -> list[Any]:
        async with Same(say(text)).stream(prompt, session) as events:
            first = [await anext(events), await anext(events)]
            await asyncio.sleep(0.2)
            await asyncio.to_thread(eventually, lambda: events._is_over, WAIT)
            return first + [event async for event in events]

    events = asyncio.run(main())
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert "".join(event.text for event in deltas) == text
    assert len(deltas) <= 2
    assert deltas[-1].turn == 1


def test_reasoning_and_text_stay_apart() -> None:
    """Merging keeps their order, and neither becomes the other."""
    prompt, session = Desk().prepare("tea")
    with Chatty(say("ab")).stream_sync(prompt, session) as events:
        found = [event for event in events if isinstance(event, TextDelta | ReasoningDelta)]
    assert found == [TextDelta("a"), ReasoningDelta("?"), TextDelta("b"), ReasoningDelta("?")]


# JSON and server-sent events.


def test_the_names_of_events_and_fields_in_json_stay() -> None:
    """Pages and logs rely on them: a changed name is a changed interface. The file is kept."""
    changes = Changes((SliceDelta("Plan", 1),), FileChanges(added=("a.txt",)))
    common: dict[str, Any] = {"run_id": "r-1", "step": 3, "turn": 2, "at": 1.5}
    events: list[Any] = [
        RunStarted("desk", **common),
        MessageReceived("Hello.", **common),
        MessageReceived("Quick!", interjected=True, **common),
        MessageUndone(2, **common),
        Failed("The key [masked] is wrong.", "PromptEvaluationError", **common),
        Resumed(2, **common),
        TurnStarted(2, **common),
        TextDelta("a", **common),
        ReasoningDelta("b", **common),
        Retrying("busy", 1, 0.5, **common),
        CallStarted("c1", "order", "{}", **common),
        CallFinished("c1", "order", "succeeded", "Ordered.", 0.25, changes, True, **common),
        SectionsOpened(("faq",), **common),
        TextDelta("of a sub-agent", **common, path=("research", "sub")),
        Finished(ScriptedAdapter(say("Done.")).evaluate(Prompt(name="p", sections=[]), Session()), **common),
    ]
    lines = "".join(event.to_json() + "\n" for event in events)
    assert lines == (Path(__file__).parent / "data" / "events.jsonl").read_text()


async def chunks(stream: EventStream[Any], **options: Any) -> list[str]:
    return [chunk.decode() async for chunk in sse(stream, **options)]


def test_server_sent_events_carry_name_data_and_step(tmp_path: Path) -> None:
    """One block for each event; the id is the step of a run on record."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        found = asyncio.run(chunks(Desk(runs=store, record_types=(Note,)).stream("tea")))
    assert all(chunk.endswith("\n\n") and "\n\n" not in chunk[:-2] for chunk in found)
    fields = [dict(line.split(": ", 1) for line in chunk.strip().split("\n")) for chunk in found]
    assert [field["event"] for field in fields][:3] == ["run_started", "turn_started", "text_delta"]
    assert fields[-1]["event"] == "finished"
    assert json.loads(fields[-1]["data"])["text"] == "Done."
    assert fields[-1]["id"] == str(json.loads(fields[-1]["data"])["step"])
    assert "id" not in fields[0]


def test_text_with_line_breaks_stays_one_event() -> None:
    """A line break in the data would end it."""
    found = asyncio.run(chunks(Desk(say("one\n\nevent: forged\ndata: x\r\u2028")).stream("tea")))
    assert [chunk.splitlines()[0] for chunk in found] == [
        "event: run_started", "event: turn_started", "event: text_delta", "event: finished",
    ]  # fmt: skip
    assert all(len(chunk.split("\n")) == 4 for chunk in found)


def test_a_failure_is_told_to_the_page_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    """The last event says so, and the log has it; the response ends as it should."""

    class Broken(ScriptedAdapter):
        def ask(self, request: Any) -> Any:
            raise ValueError("no route, password=hunter2xyz")

    prompt, session = Desk().prepare("tea")
    found = asyncio.run(chunks(Broken().stream(prompt, session)))
    assert found[-1].startswith("event: failed\ndata: ")
    assert "no route" in found[-1]
    assert "hunter2xyz" not in "".join(found)
    assert "A run that is streamed failed" in caplog.text


def test_a_quiet_run_keeps_its_connection() -> None:
    """A comment is sent while nothing happens."""
    desk = Desk()
    desk.hold.set()

    async def main() -> list[str]:
        found: list[str] = []
        async for chunk in sse(desk.stream("tea"), keep_alive=0.02):
            found.append(chunk.decode())
            if chunk.startswith(b":"):
                desk.hold.clear()
        return found

    found = asyncio.run(main())
    assert ": the run goes on\n\n" in found
    assert found[-1].startswith("event: finished")


@pytest.mark.parametrize("leave", ["close", "cancel"])
def test_a_reader_that_goes_away_cancels_the_run(leave: str) -> None:
    """Frameworks close or cancel the generator; the call is undone by then."""
    desk = Desk(is_async=True)
    desk.hold.set()

    async def main() -> None:
        generator: Any = sse(desk.stream("tea"))

        async def follow() -> None:
            async for chunk in generator:
                if b"call_started" in chunk and leave == "close":
                    await asyncio.to_thread(desk.held.wait, WAIT)
                    return

        task = asyncio.create_task(follow())
        if leave == "cancel":
            await asyncio.to_thread(desk.held.wait, WAIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task
            await generator.aclose()
        assert not desk.files.exists("tea.txt")

    asyncio.run(main())


def test_streams_of_many_requests_do_not_disturb_each_other() -> None:
    """Each has its own events."""

    async def one(number: int) -> list[Any]:
        return await read(Desk().stream("tea", run_context=RunContext(run_id=f"r-{number}")))

    async def main() -> list[list[Any]]:
        return await asyncio.gather(*map(one, range(20)))

    for number, events in enumerate(asyncio.run(main())):
        assert_expected(events)
        assert {event.run_id for event in events} == {f"r-{number}"}


def test_leaving_a_run_on_record_leaves_it_to_be_resumed(tmp_path: Path) -> None:
    """A page that is closed interrupts the run; it goes on where it was."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        desk = Desk(runs=store, record_types=(Note,))

        async def leave() -> None:
            async with desk.stream("tea", run_id="r-1") as events:
                async for event in events:
                    if isinstance(event, CallFinished):
                        break

        asyncio.run(leave())
        assert [info.run_id for info in store.interrupted()] == ["r-1"]
        script: list[Any] = [call("order", item="cup"), say("Done.")]
        answered = sum(step.kind == "turn" for step in store.open("r-1").steps())
        rest = Desk(*script[answered - 1 :], runs=store, record_types=(Note,))
        rest.files = desk.files
        response, session = rest.execute("tea", run_id="r-1")
        assert response.text == "Done."
        assert [note.text for note in session[Note].all()] == ["tea", "cup"]


@pytest.mark.parametrize("kind", get_args(ProgressEvent), ids=lambda kind: kind.__name__)
def test_fields_with_defaults_may_be_left_out_of_an_event(kind: type[Any]) -> None:
    """Of every kind, however it is made."""
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.name not in {"run_id", "step"}]
    made = unfrozen(kind)("r-1", 2, 3, 4.0, (), *needed)
    made.__class__ = kind
    assert made == kind(*needed, run_id="r-1", step=2, turn=3, at=4.0)


def test_told_events_are_like_those_that_a_program_makes() -> None:
    """They are made in another way than by their constructors, and nothing shows it: they cannot be set, either."""
    task: Any = MarkdownSection[Order](title="Task", template="Look for ${item}.")
    helper = subagent(
        name="helper", description="Helps.", prompt=PromptTemplate(ns="n", key="helper", sections=[task]), params=Order
    )
    prompt: Any = Prompt(name="desk", sections=[MarkdownSection(title="Task", template="Go.", tools=[helper])])
    heard: list[Any] = []
    model = ScriptedAdapter(call("helper", item="tea"), say("Here."), say("Done."))
    before = time.time()
    model.evaluate(prompt, Session(), on_event=heard.append, run_context=RunContext(run_id="r-1"))
    names = [
        "turn_started",
        "call_started",
        "turn_started",
        "text_delta",
        "call_finished",
        "turn_started",
        "text_delta",
    ]
    assert [event.name() for event in heard] == names
    assert [event.path for event in heard] == [(), (), ("helper",), ("helper",), (), (), ()]
    assert [event.turn for event in heard] == [1, 1, 1, 1, 1, 2, 2]
    for event in heard:
        values = {each.name: getattr(event, each.name) for each in fields(event)}
        made = type(event)(**values)
        assert type(event) in {TurnStarted, TextDelta, CallStarted, CallFinished}
        assert before <= event.at <= time.time()
        assert (event.run_id, event.step) == ("r-1", None)
        for same in (made, replace(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
            assert type(same) is type(event)
            assert (same, hash(same), repr(same)) == (event, hash(event), repr(event))
            assert same.to_json() == event.to_json()
            assert {name: getattr(same, name) for name in values} == values
        for name in values:
            with pytest.raises(FrozenInstanceError):
                setattr(event, name, None)
            with pytest.raises(FrozenInstanceError):
                delattr(event, name)
