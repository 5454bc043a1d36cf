"""Runs that another program drives: its own tools on record, and its turns laid out for a replay."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives import Session, ToolInvoked
from weakincentives.errors import RecordError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt
from weakincentives.results import ToolResult
from weakincentives.runtime import PendingToolTracker, SqliteRunStore
from weakincentives.runtime.record.rows import Step
from weakincentives.testing.driven_runs import as_our_steps, native_calls


def said(seq: int, turn: int, *calls: str, text: str = "", **more: Any) -> Step:
    listed = [[name, name[0], "{}"] for name in calls]
    body = {"text": text, "calls": listed, "usage": [0, 0, 0, 0], "stop": "tool_use", "native": [], **more}
    return Step(seq=seq, kind="turn", turn=turn, body=body)


def ended(seq: int, turn: int, call_id: str) -> Step:
    body: dict[str, Any] = {"native": True, "state": {"at": seq}} if call_id.startswith("n") else {}
    return Step(seq=seq, kind="call", turn=turn, call_id=call_id, tool=call_id[0], outcome="succeeded", body=body)


def laid_out(*steps: Step) -> list[Any]:
    """The turns with their calls, and the calls."""
    made = as_our_steps([Step(seq=1, kind="begin"), *steps])
    assert [step.seq for step in made] == [1, *(step.seq for step in steps)]
    turns = ("turn", "call")
    return [[item[0] for item in s.body["calls"]] if s.kind == "turn" else s.call_id for s in made if s.kind in turns]


def test_a_turn_ends_where_a_native_call_begins() -> None:
    """Our calls on both sides of a native one are two turns, in the order in which they took effect."""
    first = said(2, 1, "c1", "n1", "c2", text="Hm.")
    assert laid_out(first, ended(3, 1, "c1"), ended(4, 1, "n1"), ended(5, 1, "c2")) == [["c1"], "c1", ["c2"], "c2"]


def test_more_of_a_turn_is_part_of_it() -> None:
    """What was heard later, while a call ran, belongs to the turn that it continues."""
    more = said(4, 1, "c2", continues=True)
    assert laid_out(said(2, 1, "c1"), ended(3, 1, "c1"), more, ended(5, 1, "c2")) == [["c1", "c2"], "c1", "c2"]


def test_a_turn_of_native_calls_alone_is_none() -> None:
    """Our loop would take a turn without calls for the answer."""
    steps = said(2, 1, "n1"), ended(3, 1, "n1"), said(4, 2, text="Done.")
    assert laid_out(*steps) == [[]]
    (answer,) = [step for step in as_our_steps(steps) if step.kind == "turn"]
    assert (answer.body["text"], answer.turn) == ("Done.", 1)


def test_calls_that_had_not_begun_are_in_the_last_turn() -> None:
    """A record that ends in the middle keeps what was asked for."""
    assert laid_out(said(2, 1, "n1", "c1", "c2"), ended(3, 1, "n1"), ended(4, 1, "c1")) == [["c1", "c2"], "c1"]


@given(st.lists(st.lists(st.tuples(st.sampled_from("cn"), st.booleans()), max_size=5), max_size=5))
def test_nothing_is_lost_or_made_up(turns: list[list[tuple[str, bool]]]) -> None:
    """Every call of ours is asked for once, by a turn before it; every step keeps its number and its state."""
    steps: list[Step] = [Step(seq=1, kind="begin")]
    ids: list[str] = []
    for number, calls in enumerate(turns, 1):
        names = [f"{kind}{number}.{at}" for at, (kind, _) in enumerate(calls)]
        ids += [name for name in names if name[0] == "c"]
        late = [name for name, (_, is_late) in zip(names, calls, strict=True) if is_late]
        steps.append(said(len(steps) + 1, number, *(name for name in names if name not in late)))
        for name in names:
            if name in late:
                steps.append(said(len(steps) + 1, number, name, continues=True))
            steps.append(ended(len(steps) + 1, number, name))
    made = as_our_steps(steps)
    assert [step.seq for step in made] == [step.seq for step in steps]
    assert [step.body.get("state") for step in made] == [step.body.get("state") for step in steps]
    asked = [(item[0], step) for step in made if step.kind == "turn" for item in step.body["calls"]]
    assert [call_id for call_id, _ in asked] == ids
    calls_now = {step.call_id: step for step in made if step.kind == "call"}
    assert list(calls_now) == ids
    for call_id, turn in asked:
        assert turn.seq < calls_now[call_id].seq
        assert turn.turn == calls_now[call_id].turn
    natives = [step.seq for step in native_calls(steps)]
    for before, after in pairwise(asked):  # a turn holds no calls with a native one in between
        between = [s for s in natives if calls_now[before[0]].seq < s < calls_now[after[0]].seq]
        assert not between or before[1] is not after[1]


class Harness:
    """A program with tools of its own on a folder, and a run on record."""

    def __init__(self, root: Path, store: SqliteRunStore) -> None:
        self.files = HostFilesystem(root, watch="scan")
        task = MarkdownSection(title="Task", template="Do it.")
        self.prompt = Prompt(name="p", sections=[task]).bind(resources={Filesystem: self.files})
        self.session = Session()
        self.recorder = store.run("r").open(self.session, "p", (), not_resumable="its loop is another program's")
        self.prompt.resources.__enter__()
        self.recorder.rows.watch(self.files)
        self.tracker = PendingToolTracker(
            self.session, self.prompt.resources, prompt=self.prompt, recorder=self.recorder
        )

    def close(self) -> None:
        self.prompt.resources.__exit__(None, None, None)
        self.recorder.rows.release()
        self.files.close()


def test_native_tools_write_rows_like_ours(tmp_path: Path) -> None:
    """Kept, undone and refused ones, marked; one that could leave the machine is on record before it runs."""
    root = tmp_path / "project"
    root.mkdir()
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        harness = Harness(root, store)
        tracker = harness.tracker
        assert tracker.begin_tool_execution(tool_use_id="n1", tool_name="Write", open_world=False) is None
        (root / "a.txt").write_text("one")
        tracker.end_tool_execution(tool_use_id="n1", success=True)
        assert tracker.begin_tool_execution(tool_use_id="n2", tool_name="Bash") is None
        (root / "b.txt").write_text("two")
        tracker.end_tool_execution(tool_use_id="n2", success=False, result=ToolResult.error("no"))
        assert tracker.begin_tool_execution(tool_use_id="n3", tool_name="Read", read_only=True) is None
        tracker.end_tool_execution(tool_use_id="n3", success=True)
        tracker.refuse(tool_use_id="n4", tool_name="Bash", text="Not here.")
        harness.close()
        run = store.open("r")
        assert [(step.kind, step.call_id, step.outcome) for step in run.steps()] == [
            ("begin", None, None),
            ("call", "n1", "succeeded"),
            ("started", "n2", None),
            ("call", "n2", "failed"),
            ("call", "n3", "succeeded"),
            ("call", "n4", "refused"),
        ]
        assert all(step.body["native"] for step in run.calls())
        fs = run.files_at(6)
        assert (fs.read("a.txt"), fs.exists("b.txt")) == ("one", False)
        assert run.info.interrupted


def test_a_native_tool_that_cannot_be_recorded_did_not_happen(tmp_path: Path) -> None:
    """Another process has taken the run: nothing runs any more, and what ran is undone."""
    root = tmp_path / "project"
    root.mkdir()
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        harness = Harness(root, store)
        tracker = harness.tracker
        assert tracker.begin_tool_execution(tool_use_id="n1", tool_name="Write", open_world=False) is None
        (root / "a.txt").write_text("one")
        harness.recorder.rows.held.release()
        store.take("r").release()
        with pytest.raises(RecordError):
            tracker.end_tool_execution(tool_use_id="n1", success=True)
        assert list(root.glob("*.txt")) == []
        assert [event.outcome for event in harness.session[ToolInvoked].all()] == ["undone"]
        assert [step.kind for step in store.open("r").steps()] == ["begin"]
        harness.close()


def test_a_native_tool_whose_beginning_cannot_be_recorded_does_not_run(tmp_path: Path) -> None:
    """The row that says that it began comes first; without it the harness must not run the tool."""
    root = tmp_path / "project"
    root.mkdir()
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        harness = Harness(root, store)
        harness.recorder.rows.held.release()
        store.take("r").release()
        with pytest.raises(RecordError):
            harness.tracker.begin_tool_execution(tool_use_id="n1", tool_name="Bash")
        assert harness.tracker.pending == ()
        assert [event.outcome for event in harness.session[ToolInvoked].all()] == ["cancelled"]
        harness.close()
