"""A run that goes on with files that another program changed: the model is told once, and that is on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.wires import connected

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import AnswerMessage, ModelMessage, ModelRequest, ModelTurn, TurnAdapter, UserMessage
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import MarkdownSection, Prompt
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import CallMessage
from weakincentives.testing import call, replay, say


class Model(TurnAdapter):
    """Says what its script has at this point of the conversation; remembers what it was asked."""

    def __init__(self, *script: Any) -> None:
        super().__init__()
        self.script = script
        self.requests: list[list[Any]] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        self.requests.append(list(request.messages))
        turn = self.script[at]
        if isinstance(turn, BaseException):
            raise turn
        return turn


def turn(number: int, *parts: tuple[str, str]) -> ModelTurn:
    """A turn that writes these files."""
    calls = tuple(
        CallMessage(f"t{number}c{n}", "write_file", f'{{"path": "{path}", "content": "{text}", "overwrite": true}}')
        for n, (path, text) in enumerate(parts)
    )
    return ModelTurn("", calls, stop_reason="tool_use")


class Desk(MainLoop[str, Any]):
    folder: Path
    stop_at: str = ""

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        session = Session(bus=self.bus)

        def stop(event: ToolInvoked) -> None:
            if event.call_id == self.stop_at:
                raise KeyboardInterrupt

        session.dispatcher.subscribe(ToolInvoked, stop)
        files = VfsToolsSection(session=session, config=VfsConfig(root=self.folder))
        return Prompt(name="desk", sections=[MarkdownSection(title="Task", template=request), files]), session


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


@pytest.fixture
def desk(store: SqliteRunStore, tmp_path: Path) -> Callable[..., Desk]:
    (tmp_path / "root").mkdir()

    def make(model: Any, stop_at: str = "") -> Desk:
        made = Desk(model, config=MainLoopConfig(runs=store))
        made.folder, made.stop_at = tmp_path / "root", stop_at
        return made

    return make


SCRIPT = (
    turn(0, ("a.txt", "one"), ("gone.txt", "x"), ("gone.txt", "y")),
    turn(1, ("b.txt", "b"), ("c.txt", "c")),
    turn(2, ("d.txt", "d")),
    ModelTurn("done"),
)


def told(messages: Any) -> list[str]:
    """The messages that say so."""
    return [item.text for item in messages if isinstance(item, UserMessage) and "another program" in item.text]


def lay_out(folder: Path, files: Filesystem) -> None:
    """Have these files in the folder, and no others."""
    for path in folder.glob("*.txt"):
        path.unlink()
    for path in files.search("txt"):
        (folder / path).write_text(files.read(path))


@pytest.mark.parametrize("stop_at", ["t1c0", "t1c1", "t2c0"])
def test_the_model_is_told_of_files_that_were_kept(
    store: SqliteRunStore, desk: Callable[..., Desk], tmp_path: Path, stop_at: str
) -> None:
    """Once, after the answers to the turn's calls, wherever the record ended; a later attempt says it again."""
    with pytest.raises(KeyboardInterrupt):
        desk(Model(*SCRIPT), stop_at).execute("Go.", run_id="r")
    (tmp_path / "root" / "a.txt").write_text("edited")
    (tmp_path / "root" / "gone.txt").unlink()
    model = Model(*SCRIPT)
    response, _ = desk(model).resume("r", world="keep")
    assert response.text == "done"
    (text,) = told(response.history.messages)
    assert "- a.txt\n- gone.txt (removed)\n" in text
    assert [len(told(request)) for request in model.requests] == [1] * len(model.requests)
    at = response.history.messages.index(UserMessage(text))
    assert isinstance(response.history.messages[at - 1], AnswerMessage)
    assert isinstance(response.history.messages[at + 1], ModelMessage)
    (said,) = [step for step in store.open("r").steps() if step.kind == "message"]
    files = {file.path: file for file in store.files("r") if file.seq == said.seq}
    assert set(files) == {"a.txt", "gone.txt"}
    assert store.open("r").files_at(said.seq).read("a.txt") == "edited"
    for step in store.open("r").steps():
        if step.seq >= said.seq:
            lay_out(tmp_path / "root", store.open("r").files_at(step.seq))
            continued, _ = desk(Model(*SCRIPT)).resume(store.fork("r", at=step.seq))  # and nothing to object to
            assert continued.history == response.history, step
    assert store.verify() == []


def test_an_attempt_that_fails_after_it_was_told_tells_it_once(
    store: SqliteRunStore, desk: Callable[..., Desk], tmp_path: Path
) -> None:
    """The request failed, was interrupted, and is made again: the message is there already."""
    with pytest.raises(KeyboardInterrupt):
        desk(Model(*SCRIPT), "t1c0").execute("Go.", run_id="r")
    (tmp_path / "root" / "a.txt").write_text("edited")
    with pytest.raises(KeyboardInterrupt):
        desk(Model(*SCRIPT[:2], KeyboardInterrupt())).resume("r", world="keep")
    model = Model(*SCRIPT)
    response, _ = asyncio.run(desk(model).aexecute("Go.", run_id="r"))
    assert len(told(response.history.messages)) == 1
    assert [len(told(request)) for request in model.requests] == [1, 1]
    (tmp_path / "root" / "b.txt").write_text("another edit")
    forked = store.fork("r", at=store.open("r").steps()[-2].seq)
    second, _ = desk(Model(*SCRIPT[:3], ModelTurn("end"))).resume(forked, world="keep")
    assert len(told(second.history.messages)) == 1  # nothing was asked any more
    forked = store.fork("r", at=store.open("r").calls()[-1].seq)
    second, _ = desk(Model(*SCRIPT[:3], ModelTurn("end"))).resume(forked, world="keep")
    assert ["b.txt" in text for text in told(second.history.messages)] == [False, True]


def test_files_that_are_as_they_were_are_no_news(store: SqliteRunStore, desk: Callable[..., Desk]) -> None:
    """Nothing was changed: `world="keep"` says nothing."""
    with pytest.raises(KeyboardInterrupt):
        desk(Model(*SCRIPT), "t1c0").execute("Go.", run_id="r")
    response, _ = desk(Model(*SCRIPT)).resume("r", world="keep")
    assert told(response.history.messages) == []
    assert all(step.kind != "message" for step in store.open("r").steps())


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_every_provider_reads_it(desk: Callable[..., Desk], tmp_path: Path, wire: str) -> None:
    """As a message of the user after the answers to the calls."""
    writes = [call("write_file", path=f"{name}.txt", content=name) for name in "ab"]
    with connected(wire, writes, writes) as (adapter, _), pytest.raises(KeyboardInterrupt):
        desk(adapter, "call_2").execute("Go.", run_id="r")
    (tmp_path / "root" / "a.txt").write_text("edited")
    with connected(wire, say("Done.")) as (adapter, server):
        response, _ = desk(adapter).resume("r", world="keep")
        assert response.text == "Done."
        sent = str(server.received[-1].body)
        assert sent.count("another program changed these files") == 1


def test_a_replay_has_the_files_that_were_kept(
    store: SqliteRunStore, desk: Callable[..., Desk], tmp_path: Path
) -> None:
    """What another program wrote is part of the world that the later calls were made in."""
    reading = ModelTurn("", (CallMessage("t2c0", "read_file", '{"path": "a.txt"}'),), stop_reason="tool_use")
    script = (SCRIPT[0], SCRIPT[1], reading, ModelTurn("done"))
    with pytest.raises(KeyboardInterrupt):
        desk(Model(*script), "t1c1").execute("Go.", run_id="r")
    (tmp_path / "root" / "a.txt").write_text("edited")
    desk(Model(*script)).resume("r", world="keep")
    run = store.open("r")
    assert "edited" in run.text(run.calls()[-1].body["text"])
    result = replay(run, desk)
    result.assert_same()
    assert result.filesystem is not None
    assert result.filesystem.read("a.txt") == "edited"
