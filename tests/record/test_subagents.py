"""Sub-agents of a run on record: each call of one is a run of its own, which goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.record import delegating_program
from tests.record.delegating_program import CLOSED, SCRIPTS, Counted, Model, Note, Report, World

from weakincentives import MainLoop, Session
from weakincentives.adapters import CallFinished, ModelRequest, ModelTurn
from weakincentives.errors import NotResumableError
from weakincentives.prompt import Prompt, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.testing import replay


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


def emptied(root: Path) -> Path:
    for path in root.iterdir():
        path.unlink()
    return root


@pytest.mark.parametrize("session", ["fork", "shared"])
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_run_with_sub_agents_goes_on_from_every_step(
    store: SqliteRunStore, root: Path, in_loop: bool, session: str
) -> None:
    """Served calls of sub-agents leave the same log, state and files; the others are made."""
    with World(root, session) as world:
        response = world.run(store, "whole", Model(SCRIPTS), in_loop=in_loop)
        whole = world.seen()
    assert response.text == "done"
    assert [event[4] for event in whole["events"]].count("failed") == 2
    steps = list(store.steps("whole"))
    for step in steps:
        run_id = store.fork("whole", at=step.seq)
        with World(emptied(root), session) as again:
            model = Model(SCRIPTS)
            continued = again.run(store, run_id, model, in_loop=in_loop)
            if step.kind == "started":
                continue
            assert continued.text == response.text, step
            assert again.seen() == whole, step
            assert continued.history == response.history, step
            turns = sum(seen.kind == "turn" and seen.seq <= step.seq for seen in steps)
            assert [asked for asked in model.asked if asked.startswith("outer")] == [
                f"outer{n}" for n in range(turns, 5)
            ]


@pytest.mark.parametrize("session", ["fork", "shared"])
def test_the_runs_of_sub_agents_are_on_record_below_their_run(store: SqliteRunStore, root: Path, session: str) -> None:
    """Each can be looked at; a program that goes on with what was interrupted does not see them."""
    with World(root, session) as world:
        world.run(store, "r", Model(SCRIPTS))
    infos = {info.run_id: info for info in store.infos()}
    assert set(infos) == {"r", "r/outer1", "r/outer1/firstx1", "r/outer3", "r/outer3/firsty1"}
    assert (infos["r/outer1"].parent, infos["r/outer1"].loop, infos["r/outer1"].status) == ("r", "first", "done")
    assert not infos["r"].is_inside
    run = store.open("r/outer1/firstx1", types=[Note, Counted])
    assert [step.tool for step in run.steps() if step.kind == "call"] == ["note", "mail", "note"]
    assert run.files_at(run.steps()[-1].seq).read("c.txt") == "c\nc\n"
    noted = [note.text for note in run.state_at(run.steps()[-1].seq)[Note].all()]
    assert noted == ["o", "a", "c", "m", "c"]
    last = store.open("r", types=[Note, Report, Counted])
    assert last.state_at(last.steps()[-1].seq)[Note].all() == world.session[Note].all()
    finished = [event for event in last.events() if isinstance(event, CallFinished)]
    assert [(event.path, event.tool_name) for event in finished[:4]] == [
        ((), "note"), (("first",), "note"), (("first", "second"), "note"), (("first", "second"), "mail"),
    ]  # fmt: skip
    assert store.verify() == []
    assert {info.run_id for info in store.prune(older_than=timedelta(0))} == set(infos)


def questions(told: list[str]) -> list[str]:
    """What the model was asked."""
    return [one for one in told if one.startswith("asked")]


def without_mails(notes: list[str]) -> list[str]:
    """Those of the calls whose outcome is known however the run was interrupted."""
    return [note for note in notes if note != "Note(text='m')"]


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("session", ["fork", "shared"])
@pytest.mark.parametrize(("mode", "how"), [("sync", "after"), ("async", "before")])
def test_a_run_whose_process_ended_at_any_write_goes_on(tmp_path: Path, how: str, mode: str, session: str) -> None:
    """No turn on record is asked again, no mail is sent twice, and state, files and log are as ever."""
    done = subprocess.run(
        [sys.executable, delegating_program.__file__, how, mode, session], cwd=tmp_path, capture_output=True,
        text=True, check=False, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "xdg")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert [end[1] for end in ends] == [9] * (len(ends) - 1) + [0]
    assert len(ends) > 50
    text, whole = json.loads((tmp_path / str(len(ends)) / "seen.txt").read_text())
    assert text == "done"
    outcomes: set[str] = set()
    for at, _, again, turns, first, second, interrupted in ends[:-1]:
        assert again == 0, (at, done.stderr)
        assert interrupted in (["r"], []), at  # the runs inside it go on with it
        here = tmp_path / str(at)
        text, seen = json.loads((here / "seen.txt").read_text())
        assert text == "done"
        assert json.loads((here / "problems.txt").read_text()) == []
        asked = questions(first)
        lost = asked[turns:]  # what was asked, and whose answer is not on record
        assert len(lost) <= 1
        assert sorted([*asked, *questions(second)]) == sorted([*questions(ends[-1][4]), *lost]), at
        unknown = [event for event in seen["events"] if event[4] == "unknown"]
        assert all(event[3] == "mail" for event in unknown)
        sent = [*first, *second].count("mailed")
        assert 2 - len(unknown) <= sent <= 2, at
        assert seen["files"] == whole["files"], at
        assert seen["reports"] == whole["reports"], at
        assert without_mails(seen["notes"]) == without_mails(whole["notes"]), at
        if session == "shared":  # the mails are in it, too, but for those that may not have been sent
            assert len(whole["notes"]) - len(seen["notes"]) == len(unknown), at
        assert seen["counted"] == whole["counted"], at
        if not unknown:
            assert seen["events"] == whole["events"], at
        outcomes |= {event[4] for event in seen["events"]}
    assert outcomes == {"succeeded", "failed", "unknown"}


def test_the_run_of_a_sub_agent_is_not_resumed_alone(store: SqliteRunStore, root: Path) -> None:
    """The error names the run to resume."""

    class Loop(MainLoop[str, Any]):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            raise NotImplementedError

    with World(root) as world:
        world.run(store, "r", Model(SCRIPTS))
    with pytest.raises(NotResumableError, match="resume 'r'"):
        Loop(Model(SCRIPTS), config=MainLoopConfig(runs=store)).resume("r/outer1")


@pytest.mark.parametrize("session", ["fork", "shared"])
def test_a_call_whose_agent_fails_after_it_was_resumed_is_undone_with_what_was_served(
    store: SqliteRunStore, root: Path, session: str
) -> None:
    """What the record gave the session and the files belongs to the call, as if it had been made."""

    class Failing(Model):
        """The first agent's model fails when it is asked for the last time; Ctrl-C comes before that."""

        def __init__(self, stops: bool) -> None:
            super().__init__(SCRIPTS)
            self.stops = stops

        def ask(self, request: ModelRequest) -> ModelTurn:
            turn = super().ask(request)
            if self.asked[-1] == "firstx3" and self.stops:
                raise KeyboardInterrupt
            if self.asked[-1] == "firstx4":
                raise ConnectionError("the model is gone")
            return turn

    with World(root, session) as world:
        whole_model = Failing(stops=False)
        world.run(store, "whole", whole_model)
        whole = world.seen()
    with World(emptied(root), session) as world, pytest.raises(KeyboardInterrupt):
        world.run(store, "r", Failing(stops=True))
    with World(root, session) as world:
        model = Failing(stops=False)
        world.run(store, "r", model)
        assert model.asked == whole_model.asked[whole_model.asked.index("firstx3") :]
        assert world.seen() == whole
        assert world.session.session_id == "a session"


@pytest.mark.parametrize("session", ["fork", "shared"])
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_loop_goes_on_with_a_run_whose_sub_agent_was_interrupted(
    store: SqliteRunStore, root: Path, in_loop: bool, session: str
) -> None:
    """`execute` with the same id: the sub-agent's own model is not asked again for what it said."""
    worlds: list[World] = []

    class Stopped(Model):
        """Ctrl-C, as the second level is asked for the third time."""

        def ask(self, request: ModelRequest) -> ModelTurn:
            if self.asked[-1:] == ["secondz1"]:
                raise KeyboardInterrupt
            return super().ask(request)

    class Loop(MainLoop[str, Any]):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            worlds.append(World(root, session))
            return worlds[-1].prompt, worlds[-1].session

    def execute(model: Model) -> Any:
        loop = Loop(model, config=MainLoopConfig(runs=store))
        if in_loop:
            return asyncio.run(loop.aexecute("go", run_id="r"))[0]
        return loop.execute("go", run_id="r")[0]

    with pytest.raises(KeyboardInterrupt):
        execute(Stopped(SCRIPTS))
    worlds[-1].fs.close()
    assert [info.run_id for info in store.interrupted()] == ["r"]
    assert {path.name for path in root.iterdir()} == {"o.txt"}
    model = Model(SCRIPTS)
    assert execute(model).text == "done"
    worlds[-1].fs.close()
    assert model.asked[0] == "secondz2"
    assert worlds[-1].did.count("mail") == 1
    assert (root / "c.txt").read_text() == "c\n" * 4


@pytest.mark.parametrize("session", ["fork", "shared"])
def test_a_replay_answers_sub_agents_from_the_record(store: SqliteRunStore, root: Path, session: str) -> None:
    """What their models said is in runs of their own; the outer agent's tools run."""
    with World(root, session) as world:
        world.run(store, "r", Model(SCRIPTS))
    with World(emptied(root), session) as again:
        result = replay(store.open("r"), (again.prompt, again.session))
        result.assert_same()
        assert again.did == ["o", "p"]


@pytest.mark.parametrize(("masked", "session"), [(True, "fork"), (False, "fork"), (True, "shared")])
def test_an_exported_run_has_those_inside_it(
    store: SqliteRunStore, root: Path, tmp_path: Path, masked: bool, session: str
) -> None:
    """They can be shown, verified and replayed from the file as from the store; other runs are not in it."""
    for run_id in ("r", "other"):
        with World(emptied(root), session) as world:
            world.run(store, run_id, Model(SCRIPTS))
    path = export_run(store, "r", tmp_path / "r.wink", masked=masked)
    with World(emptied(root), session) as again:
        replay(path, (again.prompt, again.session)).assert_same()
    with SqliteRunStore(path) as copy:
        assert copy.verify() == []
        ids = [info.run_id for info in copy.infos()]
        assert sorted(ids) == ["r", "r/outer1", "r/outer1/firstx1", "r/outer3", "r/outer3/firsty1"]
        for run_id in ids:
            old, new = store.info(run_id), copy.info(run_id)
            assert old is not None
            assert new is not None
            assert (new.parent, new.status, new.created, new.updated) == (
                old.parent, old.status, old.created, old.updated,
            )  # fmt: skip
            assert [step.kind for step in copy.steps(run_id)] == [step.kind for step in store.steps(run_id)]
        inner = copy.open("r/outer1/firstx1")
        assert inner.files_at(inner.steps()[-1].seq).read("c.txt") == "c\nc\n"


def test_the_run_of_a_sub_agent_is_exported_alone(store: SqliteRunStore, root: Path, tmp_path: Path) -> None:
    """With those inside it."""
    with World(root) as world:
        world.run(store, "r", Model(SCRIPTS))
    with SqliteRunStore(export_run(store, "r/outer1", tmp_path / "first.wink")) as copy:
        assert sorted(info.run_id for info in copy.infos()) == ["r/outer1", "r/outer1/firstx1"]


def test_a_file_that_a_replay_updates_keeps_the_runs_inside(store: SqliteRunStore, root: Path, tmp_path: Path) -> None:
    """Their turns are served, so they are those of the record."""
    with World(root) as world:
        world.run(store, "r", Model(SCRIPTS))
    path = export_run(store, "r", tmp_path / "r.wink")

    def other(params: Note) -> ToolResult[Note]:
        return ToolResult.ok(params, message="Noted otherwise.")

    with World(emptied(root)) as again:
        note = again.tool("note", other, CLOSED)
        prompt = again.prompt.substituting({"note": note})
        assert replay(path, (prompt, again.session), update=True).updated
    with SqliteRunStore(path) as copy:
        assert copy.verify() == []
        assert len(copy.infos()) == 5
