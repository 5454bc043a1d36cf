"""A run goes on where it was, whatever step its record ends with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from weakincentives import PromptTemplate, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import RecordError, RunFormatError
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    SectionVisibility,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.resources import Binding
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record.rows import NewRows
from weakincentives.runtime.record.runs import RunRecord
from weakincentives.runtime.record.sqlite import SqliteRunStore
from weakincentives.session import SlicePolicy, append_all

CLOSED = ToolAnnotations(open_world=False)


@dataclass(frozen=True)
class Book:
    room: str


@dataclass(frozen=True)
class Booking:
    room: str


@dataclass(frozen=True)
class Seen:
    """What a reducer made of an event."""

    tool: str
    slice_policy = SlicePolicy.STATE


@dataclass(frozen=True)
class Note:
    text: str
    slice_policy = SlicePolicy.LOG


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Answer:
    total: int


class Drawer:
    """A resource that is on record."""

    def __init__(self) -> None:
        self.slips: list[str] = []

    def snapshot(self) -> tuple[str, ...]:
        return tuple(self.slips)

    def restore(self, snapshot: tuple[str, ...], /) -> None:
        self.slips = list(snapshot)

    def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
        known = since or ()
        assert known == tuple(self.slips[: len(known)])
        return None if since == tuple(self.slips) else [since is None, self.slips[len(known) :]]

    def apply(self, delta: Any, /) -> None:
        is_whole, slips = delta
        self.slips = [*slips] if is_whole else [*self.slips, *slips]


class Shelf(Drawer):
    """Another one, built in the first call that asks for it."""


class Model(TurnAdapter):
    """Says what its script has at this point of the conversation; remembers what it was asked."""

    def __init__(self, script: Sequence[Callable[[], ModelTurn]]) -> None:
        super().__init__()
        self.script = script
        self.asked: list[int] = []
        self.requests: list[ModelRequest] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        self.asked.append(at)
        self.requests.append(request)
        return self.script[at]()


def calls(turn: int, *made: tuple[str, dict[str, Any]]) -> Callable[[], ModelTurn]:
    """A turn that makes these calls."""
    messages = tuple(CallMessage(f"t{turn}c{n}", name, json.dumps(args)) for n, (name, args) in enumerate(made))
    return lambda: ModelTurn("", messages, stop_reason="tool_use")


def says(text: str) -> Callable[[], ModelTurn]:
    """A turn that says this."""
    return lambda: ModelTurn(text)


def script() -> list[Callable[[], ModelTurn]]:
    """Everything that a resume could forget."""
    return [
        calls(0, ("read_file", {"path": "a.txt"}), ("read_file", {"path": "b.txt"}), ("long", {})),
        calls(1, ("write_file", {"path": "c.txt", "content": "not read", "overwrite": True})),
        calls(2, ("book", {"room": "one"}), ("write_file", {"path": "new/d.txt", "content": "first"})),
        calls(3, ("crash", {})),
        calls(4, ("no_such_tool", {})),
        calls(5, ("open_sections", {"section_keys": ["manual"], "reason": "to dig"}), ("book", {"room": "lost"})),
        calls(6, ("dig", {}), ("book", {"room": "two"})),
        calls(7, ("read_tool_result", {"call_id": "t0c2", "offset": 20_000})),
        calls(8, ("write_file", {"path": "new/d.txt", "content": "second"}), ("book", {"room": 3})),
        calls(9, ("read_file", {"path": "c.txt"}), ("write_file", {"path": "c.txt", "content": "read"})),
        calls(10, ("mail", {}), ("noted", {})),
        calls(11, ("delete_file", {"path": "a.txt"})),
        says("not json"),
        says('{"total": 2}'),
    ]


class World:
    """A prompt, its session and its tools, as a program makes them anew in every process."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.session = Session(session_id="a session")
        self.session[Seen].register(ToolInvoked, lambda view, event: append_all(view, Seen(event.tool_name)))
        files = VfsToolsSection(session=self.session, config=VfsConfig())
        self.fs = cast("Filesystem", files.resources()[Filesystem])
        for name in "abc":
            self.fs.write(f"{name}.txt", f"this is {name}")
        manual = MarkdownSection(
            title="Manual",
            key="manual",
            template="How to dig.",
            summary="A manual.",
            visibility=SectionVisibility.SUMMARY,
            tools=[self.tool("dig", Nothing, self.dig)],
        )
        task = MarkdownSection(
            title="Task",
            template="Do it.",
            tools=[
                self.tool("book", Book, self.book),
                self.tool("crash", Nothing, self.crash),
                self.tool("long", Nothing, self.long, read_only=True),
                self.tool("mail", Nothing, self.mail, open_world=True),
                self.tool("noted", Nothing, self.noted),
            ],
        )
        template = PromptTemplate[Answer](ns="tests", key="record", sections=[task, manual, files])
        self.drawer = Drawer()
        shelf = Binding(Shelf, lambda _: Shelf())
        self.prompt: Prompt[Answer] = Prompt(template).bind(resources={Drawer: self.drawer, Shelf: shelf})

    def tool(self, name: str, params: type[Any], handler: Any, **hints: bool) -> Tool[Any, Any]:
        return Tool[params, Any](
            name=name, description=name, handler=handler, annotations=ToolAnnotations(**{"open_world": False, **hints})
        )

    def book(self, params: Book, *, context: ToolContext) -> ToolResult[Any]:
        self.ran.append(f"book {params.room}")
        context.session[Booking].append(Booking(params.room))
        context.resources.get(Drawer).slips.append(params.room)
        return ToolResult.ok(Booking(params.room), "Booked.")

    def crash(self, params: Nothing, *, context: ToolContext) -> ToolResult[Any]:
        self.ran.append("crash")
        context.session[Booking].append(Booking("undone"))
        context.resources.get(Drawer).slips.append("undone")
        context.resources.get(Shelf).slips.append("undone")
        context.session.dispatch(Note("a crash"))
        raise LookupError("out of luck")

    def long(self, params: Nothing) -> ToolResult[Any]:
        self.ran.append("long")
        return ToolResult.ok("word " * 10_000)

    def dig(self, params: Nothing, *, context: ToolContext) -> ToolResult[Any]:
        self.ran.append("dig")
        shelf = context.resources.get(Shelf)
        shelf.slips.append("dug")
        return ToolResult.ok(f"dug {shelf.slips}")

    def mail(self, params: Nothing) -> ToolResult[Any]:
        self.ran.append("mail")
        return ToolResult.ok("sent")

    def noted(self, params: Nothing, *, context: ToolContext) -> ToolResult[Any]:
        self.ran.append("noted")
        context.session.dispatch(Note("by a tool"))
        shelf = context.resources.get(Shelf)
        shelf.slips.append("noted")
        return ToolResult.ok(None, f"Noted. {shelf.slips}, {context.resources.get(Drawer).slips}")

    def run(self, store: SqliteRunStore, run_id: str, model: Model, *, in_loop: bool = False) -> Any:
        """Evaluate it on record, in an event loop or not."""
        record = RunRecord(store, run_id, types=(Booking, Seen, Note))
        if in_loop:
            return asyncio.run(model.aevaluate(self.prompt, self.session, record=record))
        return model.evaluate(self.prompt, self.session, record=record)

    def seen(self) -> dict[str, Any]:
        """Everything that must be the same however often the run was interrupted."""
        return {
            "bookings": list(self.session[Booking].all()),
            "seen": list(self.session[Seen].all()),
            "notes": list(self.session[Note].all()),
            "drawer": list(self.drawer.slips),
            "files": {path: self.fs.read(path) for path in self.fs.search("txt")},
            "events": [
                (e.call_id, e.tool_name, e.outcome, e.rendered_output, e.params, e.success, e.changes, e.event_id)
                for e in self.session[ToolInvoked].all()
            ],
        }


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


def without_ids(seen: dict[str, Any]) -> dict[str, Any]:
    """Events of calls that were run again have ids of their own."""
    return {**seen, "events": [event[:-1] for event in seen["events"]]}


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_run_goes_on_from_every_step(store: SqliteRunStore, in_loop: bool) -> None:
    """Its end, its state, its files, its events, its conversation: all as if it had never been interrupted."""
    world, model = World(), Model(script())
    response = world.run(store, "whole", model, in_loop=in_loop)
    assert response.output == Answer(2)
    assert model.asked == list(range(14))
    whole = world.seen()
    outcomes = [event[2] for event in whole["events"]]
    assert {"succeeded", "refused", "crashed", "unknown_tool", "expanded", "cancelled", "invalid"} <= set(outcomes)
    steps = list(store.steps("whole"))
    for step in steps:
        run_id = store.fork("whole", at=step.seq)
        again, other = World(), Model(script())
        continued = again.run(store, run_id, other, in_loop=in_loop)
        if step.kind == "started":  # as after a crash: whether the mail was sent is not known
            assert "mail" not in again.ran
            assert [e.outcome for e in again.session[ToolInvoked].all() if e.tool_name == "mail"] == ["unknown"]
            continue
        assert continued.output == response.output, step
        assert continued.turns == response.turns, step
        assert without_ids(again.seen()) == without_ids(whole), step
        assert continued.history == response.history, step
        done = [seen for seen in steps if seen.seq <= step.seq]
        turns = sum(seen.kind == "turn" for seen in done)
        assert other.asked == list(range(turns, 14)), step
        ended = [seen for seen in done if seen.kind == "call"]
        assert again.seen()["events"][: len(ended)] == whole["events"][: len(ended)], step
        after = [seen for seen in steps if seen.kind == "call" and seen.seq > step.seq]
        assert len(again.ran) == sum(seen.tool in OWN and seen.outcome in ("succeeded", "crashed") for seen in after)


OWN = {"book", "crash", "long", "dig", "mail", "noted"}


def test_a_finished_run_is_served_and_asks_nothing(store: SqliteRunStore) -> None:
    """The recorded answer, with state, files and events as they were."""
    world = World()
    response = world.run(store, "r", Model(script()))
    again, model = World(), Model([])
    served = again.run(store, "r", model)
    assert (model.asked, again.ran) == ([], [])
    assert replace(served, history=response.history) == response
    assert again.seen() == world.seen()
    assert [info.status for info in store.infos()] == ["done"]


def test_every_step_of_a_run_can_be_looked_at(store: SqliteRunStore) -> None:
    """State, files and prompt as of any step, as typed values or as plain data."""
    World().run(store, "r", Model(script()))
    run = store.open("r", types=(Booking, Seen, Note))
    ended = {step.call_id: step.seq for step in run.calls()}
    first, second = ended["t2c1"], ended["t8c0"]
    assert run.state_at(first)[Booking].all() == [Booking("one")]
    assert run.state_at(second)[Booking].all() == [Booking("one"), Booking("two")]
    assert run.files_at(first).read("new/d.txt") == "first"
    assert run.files_at(second).read("new/d.txt") == "second"
    name = next(name for name in run.data_at(second) if name.endswith("Booking"))
    assert run.data_at(second)[name] == [{"room": "one"}, {"room": "two"}]
    difference = run.diff(first, second)
    assert difference.slices[name] == (({"room": "one"},), ({"room": "one"}, {"room": "two"}))
    assert difference.files.changed == ("new/d.txt",)
    last = run.steps()[-1].seq
    assert run.diff(1, last).files.added == ("new", "new/d.txt")
    assert run.diff(1, last).files.removed == ("a.txt",)
    prompts = [run.prompt_at(ended["t0c0"]), run.prompt_at(last)]
    assert prompts[0] is not None
    assert prompts[1] is not None
    assert "How to dig." not in prompts[0]
    assert "How to dig." in prompts[1]
    with pytest.raises(RecordError, match="no step 999"):
        run.state_at(999)
    with pytest.raises(RecordError, match="no run 'other'"):
        store.open("other")
    with pytest.raises(RunFormatError, match="Seen is not among the classes"):
        store.open("r").state_at(last)


def test_a_run_that_cannot_be_recorded_is_undone(store: SqliteRunStore) -> None:
    """What is not on record did not happen: the call is undone, and the run ends."""
    world, model = World(), Model(script())
    append, count = store.append, 0

    def full(info: Any, rows: NewRows) -> None:
        nonlocal count
        if any(step.kind == "call" and step.tool == "book" for step in rows.steps):
            raise OSError(28, "No space left on device")
        append(info, rows)

    store.append = full  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OSError, match="No space left"):
        world.run(store, "r", model)
    assert world.session[Booking].all() == []
    assert [e.outcome for e in world.session[ToolInvoked].all() if e.tool_name == "book"] == ["undone"]
    store.append = append  # pyright: ignore[reportAttributeAccessIssue]
    again, other = World(), Model(script())
    assert again.run(store, "r", other).output == Answer(2)
    assert other.asked == list(range(3, 14))
