"""Runs with `resumable=False`: values that could not be read back are on record as their JSON view, to be looked at."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from weakincentives import MainLoop, Session
from weakincentives.cli.main import main
from weakincentives.errors import NotResumableError, PromptEvaluationError, RunFormatError
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore, ToolInvoked
from weakincentives.runtime.record import compare, export_run
from weakincentives.session.json_view import json_view
from weakincentives.testing import ScriptedAdapter, call, replay, say


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Plain:
    name: str


class Connection:
    """Nothing that could be written down."""

    def __repr__(self) -> str:
        return "Connection()"


@dataclass(frozen=True)
class Live:
    """An item with a part that could not be read back."""

    name: str
    password: str = "hunter2"
    connection: Connection = field(default_factory=Connection)


stopped: list[bool] = []
NAME = f"{Live.__module__}:Live"


def add(params: Item, *, context: ToolContext) -> ToolResult[Any]:
    context.session[Live].append(Live(params.name))
    context.session[Plain].append(Plain(params.name))
    context.session.note(("seen", len(params.name)), Connection())
    if params.name == "stop" and not stopped:
        stopped.append(True)
        raise KeyboardInterrupt
    if params.name == "quiet":
        return ToolResult.ok(None)
    return ToolResult.ok(Live(params.name), message="Added.")


class Desk(MainLoop[Item, str]):
    def prepare(self, request: Item) -> tuple[Prompt[str], Session]:
        hints = ToolAnnotations(open_world=False)
        tool = Tool[Item, Any](name="add", description="Add.", handler=add, annotations=hints)
        task = MarkdownSection(title="Task", template=f"Add {request.name}.", tools=[tool])
        return Prompt(name="desk", sections=[task]), Session(bus=self.bus)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    stopped.clear()
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as made:
        yield made


def desk(store: SqliteRunStore, *turns: Any, resumable: bool = False, **options: Any) -> Desk:
    config = MainLoopConfig(runs=store, resumable=resumable, record_types=(Plain, Live))
    return Desk(ScriptedAdapter(*turns, **options), config=config)


def recorded(store: SqliteRunStore, run_id: str = "r", *names: str) -> None:
    turns = [call("add", name=name).with_id(f"c{at}") for at, name in enumerate(names or ("a", "b"))]
    desk(store, *turns, say("Done.")).execute(Item("x"), run_id=run_id)


@pytest.mark.parametrize("name", ["a", "quiet"])
def test_a_value_that_could_not_be_read_back_names_the_option(store: SqliteRunStore, name: str) -> None:
    """Without the option it is refused when it is written, in a result and in a slice; the message names the option."""
    with pytest.raises(RunFormatError, match="resumable=False"):
        desk(store, call("add", name=name), say("Done."), resumable=True).execute(Item("x"), run_id="r")


def test_it_can_be_looked_at(store: SqliteRunStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps, plain data, differences and the command line; `state_at` says which value it cannot give."""
    recorded(store)
    run = store.open("r", types=[Plain, Live])
    last = run.steps()[-1].seq
    assert run.info.status == "done"
    assert "resumable=False" in run.not_resumable
    assert [view["name"] for view in run.data_at(last)[NAME]] == ["a", "b"]
    assert run.data_at(last)[NAME][0]["connection"] == {"type_name": f"{__name__}:Connection"}
    assert [(step.tool, step.outcome) for step in run.calls()] == [("add", "succeeded")] * 2
    assert run.calls()[0].body["view"]["name"] == "a"
    before = run.calls()[1].seq - 1
    assert [len(items) for items in run.diff(before, last).slices[NAME]] == [1, 2]
    with pytest.raises(RunFormatError, match=rf"{NAME} is on record as its JSON view only.*data_at\(\)"):
        run.state_at(last)
    assert run.state_at(1)[Plain].all() == ()
    path = str(store.path)
    assert main(["show", path, "r"]) == 0
    assert main(["show", path, "r", str(run.calls()[0].seq), "--json"]) == 0
    assert "add: succeeded" in capsys.readouterr().out
    assert store.verify() == []


def test_what_could_be_read_back_can_be(store: SqliteRunStore) -> None:
    """Only values that have no other form are views: a record without them has its state."""

    def plain(params: Item, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Plain].append(Plain(params.name))
        return ToolResult.ok(None)

    tool = Tool[Item, Any](name="add", description="Add.", handler=plain)
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Add.", tools=[tool])])
    adapter = ScriptedAdapter(call("add", name="a"), say("Done."))
    adapter.evaluate(prompt, Session(), record=store.run("r", resumable=False))
    run = store.open("r", types=[Plain])
    assert run.state_at(run.steps()[-1].seq)[Plain].all() == (Plain("a"),)


def test_one_that_has_ended_gives_its_answer(store: SqliteRunStore, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is asked or run. The session has its calls and what can be read; what cannot is named in a warning."""
    recorded(store)
    with caplog.at_level(logging.WARNING):
        response, session = desk(store).execute(Item("x"), run_id="r")
    assert response.text == "Done."
    assert [(event.call_id, event.outcome) for event in session[ToolInvoked].all()] == [
        ("c0", "succeeded"),
        ("c1", "succeeded"),
    ]
    assert session[Plain].all() == (Plain("a"), Plain("b"))
    assert session[Live].all() == ()
    assert f"not in the session: notes, {NAME}\n" in caplog.text


def test_one_that_was_interrupted_cannot_go_on(store: SqliteRunStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason and what to do; the record stays as it is, also for a loop that records otherwise, and for a fork."""
    with pytest.raises(KeyboardInterrupt):
        recorded(store, "r", "a", "stop")
    steps = store.open("r").steps()
    for resumable in (False, True):
        with pytest.raises(NotResumableError, match=r"resumable=False.*wink show.*another run_id"):
            desk(store, say("Never."), resumable=resumable).resume("r")
    forked = store.fork("r", at=2)
    with pytest.raises(NotResumableError, match="fork of it cannot go on"):
        desk(store, say("Never.")).execute(Item("x"), run_id=forked)
    assert store.open("r").steps() == steps
    assert main(["fork", str(store.path), "r", "2", "--as", "third"]) == 0
    assert "It cannot go on: it was recorded with resumable=False" in capsys.readouterr().out
    assert [info.run_id for info in store.interrupted()] == ["r", forked, "third"]


def test_one_that_failed_is_not_tried_again(store: SqliteRunStore) -> None:
    """Its error is raised again; `retry=True` is refused before the run counts as running."""
    with pytest.raises(PromptEvaluationError) as caught:
        desk(store, call("add", name="a"), say("Never."), max_turns=1).execute(Item("x"), run_id="r")
    with pytest.raises(NotResumableError, match="resumable=False"):
        desk(store, say("Never.")).resume("r", retry=True)
    assert [info.status for info in store.infos()] == ["failed"]
    with pytest.raises(PromptEvaluationError) as again:
        desk(store, say("Never.")).resume("r")
    assert str(again.value) == str(caught.value)


def test_a_run_that_is_there_stays_what_it_is(store: SqliteRunStore) -> None:
    """The option is for runs that begin: one that was begun to go on does, and refuses what could not be read."""
    with pytest.raises(KeyboardInterrupt):
        desk(store, call("add", name="stop"), resumable=True).execute(Item("x"), run_id="r")
    with pytest.raises(RunFormatError, match="cannot be recorded"):
        desk(store, say("Done.")).execute(Item("x"), run_id="r")


def test_what_leaves_is_masked_and_can_be_opened(store: SqliteRunStore, tmp_path: Path) -> None:
    """An exported run has the views, with credentials masked; two runs are compared as others are."""
    recorded(store)
    key = "sk-ant-api03-" + "Ab3" * 30
    recorded(store, "other", "a", key)
    path = export_run(store, "other", tmp_path / "r.wink")
    with SqliteRunStore(path) as exported:
        run = exported.open("other")
        assert len(run.data_at(run.steps()[-1].seq)[NAME]) == 2
        assert key not in json.dumps([dict(step.body) for step in run.steps()])
    found = compare(store.open("r"), store.open("other"))
    assert [line.is_same for line in found.calls] == [True, False, False]


def test_large_slices_are_read_from_frames(store: SqliteRunStore) -> None:
    """Whole slices are written now and then, as in other runs, also of a class that nothing names."""

    def seed(params: Item, *, context: ToolContext) -> ToolResult[Any]:
        kept = context.session[Live].all()[:15]
        context.session[Live].seed([*kept, *(Live(params.name * 2000) for _ in range(20 - len(kept)))])
        return ToolResult.ok(None)

    tool = Tool[Item, Any](name="seed", description="Seed.", handler=seed)
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Add.", tools=[tool])])
    turns = [call("seed", name=f"{n}") for n in range(12)]
    ScriptedAdapter(*turns, say("Done.")).evaluate(prompt, Session(), record=store.run("r", resumable=False))
    run = store.open("r")
    last = run.steps()[-1].seq
    assert any(frame.blob for frame in store.frames("r", until=last))
    for at, step in enumerate(run.calls()):
        names = [view["name"] for view in run.data_at(step.seq)[NAME]]
        assert [len(names), names[0], names[-1]] == [20, "0" * 2000, f"{at}" * 2000]
    assert store.verify() == []


def test_it_is_replayed(store: SqliteRunStore) -> None:
    """Handlers run, views are compared as views; what cannot be read back is named in the capture report."""
    recorded(store)
    result = replay(store.open("r"), desk(store))
    assert result.divergences == ()
    served = replay(store.open("r"), desk(store), calls="serve")
    assert served.divergences == ()
    assert [step.outcome for step in served.steps if step.kind == "call"] == ["succeeded"] * 2
    assert {NAME, "notes"} <= set(served.capture.unrecorded)
    assert set(served.capture.not_made.values()) == {"succeeded, with a value of which there is only a JSON view"}

    def other(params: Item, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Live].append(Live(params.name, password="other"))
        context.session[Plain].append(Plain(params.name))
        return ToolResult.ok(Live(params.name), message="Added.")

    class Changed(Desk):
        def prepare(self, request: Item) -> tuple[Prompt[str], Session]:
            prompt, session = super().prepare(request)
            (tool,) = prompt.tools()
            return prompt.substituting({"add": tool.replace(handler=other)}), session

    changed = Changed(ScriptedAdapter(), config=desk(store).config)
    result = replay(store.open("r"), changed)
    assert {(item.kind, item.path) for item in result.divergences} == {("state", NAME)}


class Itself:
    """A value that holds itself, and raises when it is looked at."""

    def __init__(self) -> None:
        self.inner = self

    def __repr__(self) -> str:
        raise RuntimeError("do not look")


def test_every_value_has_a_view() -> None:
    """Fields and items as they are, marks for the rest; nothing that a value does makes it fail."""
    loop: list[Any] = []
    loop.append(loop)
    views = [json_view(value) for value in (Itself(), loop, Lock(), {"a": b"\xff"}, {1: Live("x")}, "\udc80", print)]
    assert views[0] == {"type_name": f"{__name__}:Itself"}
    assert views[1] == {"type_name": "builtins:list"}
    assert views[4]["1"]["name"] == "x"
    for view in views:
        json.dumps(view)
