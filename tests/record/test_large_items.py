"""Large items on record: a small change of one is a small row, and every way of reading it gives the whole item."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives import Session
from weakincentives.errors import RecordError, RunFormatError
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import HeldRun, NewRows, NewRun, RecordedRun, export_run
from weakincentives.runtime.record.large_items import LargeItems, is_whole
from weakincentives.runtime.record.recorder import Recorder

from ..conftest import examples

NEW = NewRun("Desk", "a session")
TOKEN = "ghp_" + "a1B2c3D4e5" * 4
ITEM = "m:Plan"


@dataclass(frozen=True)
class Job:
    title: str
    status: str = "open"


@dataclass(frozen=True)
class Plan:
    jobs: tuple[Job, ...]
    tags: frozenset[str] = frozenset()
    marks: dict[str, float] = field(default_factory=dict)
    more: Any = None


def plan(count: int = 100) -> Plan:
    return Plan(tuple(Job(f"job {number}, which has a title of some length") for number in range(count)))


class Program:
    """Writes to a session and records a row after each change, remembering what was there."""

    def __init__(self, store: SqliteRunStore, run_id: str = "r") -> None:
        self.store, self.run_id = store, run_id
        self.seen: dict[int, list[Plan]] = {}
        self.begin()

    def begin(self) -> None:
        self.session = Session(session_id="a session")
        self.held: HeldRun = self.store.take(self.run_id, NEW)
        self.recorder = Recorder(self.store, self.held, [Plan, Job])
        self.recorder.open(self.session, ())
        self.look()

    def restart(self) -> None:
        """As another process goes on."""
        self.held.release()
        self.begin()
        while self.recorder.serving:
            self.recorder._serve()
        self.look()

    def step(self, change: Callable[[list[Plan]], list[Plan]]) -> None:
        self.session[Plan].seed(change(list(self.session[Plan].all())))
        self.record()

    def record(self) -> None:
        self.recorder._write("turn", body={"text": "said"})
        self.look()

    def look(self) -> None:
        self.seen[self.recorder._seq] = list(self.session[Plan].all())

    def change_job(self, number: int, status: str, at: int = 0) -> None:
        self.step(lambda plans: changed(plans, at, lambda one: with_job(one, number, status)))


def changed(plans: list[Plan], at: int, change: Callable[[Plan], Plan]) -> list[Plan]:
    return [change(one) if index == at else one for index, one in enumerate(plans)]


def with_job(one: Plan, number: int, status: str) -> Plan:
    jobs = list(one.jobs)
    jobs[number] = replace(jobs[number], status=status)
    return replace(one, jobs=tuple(jobs))


def slices_of(store: SqliteRunStore, seq: int, run_id: str = "r") -> list[Any]:
    return store.open(run_id).step(seq).body["state"]["slices"]


def random_change(program: Program, what: str, number: int) -> None:
    plans = list(program.session[Plan].all())
    at = number % len(plans) if plans else 0
    one = plans[at] if plans else plan()
    place = number % max(1, len(one.jobs))
    new: Plan
    match what:
        case "status" if one.jobs:
            new = with_job(one, place, f"done {number}")
        case "insert":
            new = replace(one, jobs=(*one.jobs[:place], Job(f"new {number}"), *one.jobs[place:]))
        case "remove":
            new = replace(one, jobs=(*one.jobs[:place], *one.jobs[place + 1 :]))
        case "tag":
            new = replace(one, tags=one.tags ^ {f"tag {number}"})
        case "mark":
            new = replace(one, marks={**one.marks, f"mark {number % 5}": float(number)})
        case "unmark":
            new = replace(one, marks=dict(list(one.marks.items())[1:]))
        case "more":  # a value of a class of its own in an open field
            new = replace(one, more=Job(f"more {number}") if number % 2 else [number, number % 3 == 0])
        case "small":
            new = plan(1)
        case _:
            program.session[Plan].seed(plans[1:] if what == "first" else [*plans, plan(90 + number % 20)])
            program.record()
            return
    program.step(lambda plans: changed(plans, at, lambda _: new) if plans else [new])


KINDS = st.sampled_from(
    ("status", "status", "insert", "remove", "tag", "mark", "unmark", "more", "small", "first", "add")
)


@settings(max_examples=examples(25))
@given(
    changes=st.lists(st.tuples(KINDS, st.integers(0, 200)), min_size=1, max_size=40),
    restarts=st.sets(st.integers(0, 40), max_size=3),
    fork=st.integers(1, 40),
)
def test_all_ways_of_reading_give_what_was_there(changes: list[tuple[str, int]], restarts: set[int], fork: int) -> None:
    """After every step of a random program that was restarted, in a fork of it, and in an exported file."""
    with TemporaryDirectory() as folder, SqliteRunStore(Path(folder) / "runs.db", durable=False) as store:
        program = Program(store)
        for position, (what, number) in enumerate(changes):
            if position in restarts:
                program.restart()
            random_change(program, what, number)
        check(store, "r", program.seen)
        at = min(fork, max(program.seen))
        store.open("r").fork(at=at, new_id="f")
        forked = Program(store, "f")
        forked.restart()
        assert list(forked.session[Plan].all()) == program.seen[at]
        forked.step(lambda _: [plan(95)])
        forked.change_job(3, "in the fork")
        check(store, "f", {seq: seen for seq, seen in program.seen.items() if seq <= at} | forked.seen)
        made = export_run(store, "r", Path(folder) / "r.wink")
        with SqliteRunStore(made) as copy:
            check(copy, "r", program.seen)


def check(store: SqliteRunStore, run_id: str, seen: dict[int, list[Plan]]) -> None:
    run = RecordedRun(store, run_id, [Plan, Job])
    for seq, plans in seen.items():
        assert list(run.state_at(seq)[Plan].all()) == plans, seq
        items = [item for items in run.data_at(seq).values() for item in items]
        assert [len(item["jobs"]) for item in items] == [len(one.jobs) for one in plans]
    assert list(store.verify()) == []


@pytest.mark.slow
def test_a_change_of_one_job_is_a_small_row(tmp_path: Path) -> None:
    """The store grows with what changed, not with the plan: no more than three times the plan and its changes."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        program.step(lambda _: [plan(1_000)])
        for number in range(1_000):
            program.change_job(number, "done")
        sizes = [len(json.dumps(step.body)) for step in store.open("r").steps()]
        plan_size = len(json.dumps(slices_of(store, 2)))
        assert sum(sizes) <= 3 * (plan_size + 1_000 * len('["job","done"]'))
        run = RecordedRun(store, "r", [Plan, Job])
        assert [job.status for job in run.state_at(502)[Plan].all()[0].jobs] == ["done"] * 500 + ["open"] * 500
        assert list(store.verify()) == []
    assert (tmp_path / "runs.db").stat().st_size <= 6 * plan_size  # with the pages of the database and one frame or two


def test_a_small_item_is_written_whole(tmp_path: Path) -> None:
    with SqliteRunStore(tmp_path / "runs.db") as store:
        program = Program(store)
        program.step(lambda _: [plan(2)])
        program.change_job(1, "done")
        [[_, _, [keep, replaced, added]]] = slices_of(store, 3)
        assert (keep, added) == (1, [])
        assert replaced["0"][0]["jobs"][1]["status"] == "done"


def test_a_patch_is_made_to_what_is_on_record(tmp_path: Path) -> None:
    """Not to what the present object is written as: a set has another order after a restart, and objects change."""
    tags = frozenset(f"tag number {number}" for number in range(300))
    with SqliteRunStore(tmp_path / "runs.db") as store:
        program = Program(store)
        more = ["a list that is changed in place"]
        program.step(lambda _: [replace(plan(), tags=tags, more=more)])
        more.append("afterwards")  # which no row has
        program.step(lambda plans: [replace(plans[0], more="replaced")])
        program.restart()
        program.step(lambda plans: [replace(plans[0], tags=plans[0].tags - {"tag number 7"})])
        program.restart()
        [last] = program.session[Plan].all()
        assert last == replace(plan(), tags=tags - {"tag number 7"}, more="replaced")
        assert last == store.open("r", types=[Plan, Job]).state_at(4)[Plan].all()[0]


def test_a_frame_has_large_items_as_they_are_on_record(tmp_path: Path) -> None:
    """What follows it are changes of those."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        more = ["a list that is changed in place"]
        program.step(lambda _: [replace(plan(), more=more)])
        more.append("afterwards")
        for number in range(120):
            program.change_job(number % 3, f"{number}" * 500)
        assert any(frame.blob for frame in store.frames("r", until=122))
        assert list(store.verify()) == []
        program.restart()
        assert [store.open("r", types=[Plan, Job]).state_at(122)[Plan].all()[0]] == list(program.session[Plan].all())


def test_a_row_that_was_not_written_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is a change of the last row that is on record."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        program = Program(store)
        program.step(lambda _: [plan()])

        def interrupted(rows: NewRows) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(program.held, "append", interrupted, raising=False)
            with pytest.raises(KeyboardInterrupt):
                program.change_job(5, "lost")
        program.change_job(6, "done")
        [last] = store.open("r", types=[Plan, Job]).state_at(3)[Plan].all()
        assert [last.jobs[5].status, last.jobs[6].status] == ["lost", "done"]


def test_a_masked_file_has_no_secret_in_a_patch(tmp_path: Path) -> None:
    """A token that came with one change, stayed through another, and was taken away again."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        program = Program(store)
        program.step(lambda _: [plan()])
        program.change_job(5, f"used {TOKEN}")
        program.change_job(6, "done")
        program.change_job(5, "forgotten")
        made = export_run(store, "r", tmp_path / "r.wink")
        assert TOKEN.encode() not in made.read_bytes()
        with SqliteRunStore(made) as copy:
            run = RecordedRun(copy, "r", [Plan, Job])
            [masked], [last] = run.state_at(4)[Plan].all(), run.state_at(5)[Plan].all()
            assert masked.jobs[5].status.startswith("used ")
            assert masked.jobs[6].status == "done"
            assert last == program.seen[5][0]
            assert "patch" in slices_of(copy, 5)[0][2][1]["0"]


DAMAGED: list[Any] = [
    {"patch": [[[0, "jobs", 2000, "status"], "done"]]},
    {"patch": [[[0, "jobs"], 90, 20, []]]},
    {"patch": [[[0, "nothing"]]]},
    {"patch": [[[0, "jobs", 1, "status", "x"], "done"]]},
    {"patch": [[[], 1, 2, 3, 4]]},
    {"patch": 7},
    {"patch": [7]},
    {"other": 1},
    {"whole": [{"jobs": 3}]},
    "text",
    None,
    5,
]


@pytest.mark.parametrize("item", DAMAGED, ids=str)
def test_damaged_rows_are_named(item: Any, tmp_path: Path) -> None:
    """By all that reads them: none of them fails with an error of Python's, or shows something else."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        program = Program(store)
        program.step(lambda _: [plan()])
        program.change_job(5, "done")
        program.held.release()
        step = store.open("r").step(3)
        [[name, policy, _]] = step.body["state"]["slices"]
        change: list[Any] = [1, {"0": item}, []]
        state: Any = {"slices": [[name, policy, change]]}
        text = json.dumps({**step.body, "state": state})
        with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
            connection.execute("UPDATE wink_steps SET body = ? WHERE seq = 3", (text,))
        with pytest.raises(RunFormatError, match="3"):
            store.open("r", types=[Plan, Job]).state_at(3)
        with pytest.raises(RecordError, match="3"):
            program.restart()
        assert any("step 3" in problem for problem in store.verify()) or item == {"whole": [{"jobs": 3}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.sampled_from(("", "a", "b")),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=25,
)
HEAVY = "x" * 5000


@settings(max_examples=examples(300))
@given(st.lists(JSON, min_size=2, max_size=5))
def test_patches_give_the_same_text(values: list[Any]) -> None:
    """Equal is not enough: 1, 1.0 and true are equal in Python, and so are objects with their keys in another order."""
    writer = reader = LargeItems()
    for at, value in enumerate(values):
        item = [{"text": HEAVY, "value": value}]
        change: list[Any] = [0, {}, [item]] if at == 0 else [1, {"0": item}, []]
        row, writer = writer.write({"slices": [[ITEM, "state", change]]})
        assert is_whole(row["slices"][0][2]) == (at == 0)
        row = json.loads(json.dumps(row))
        assert len(json.dumps(row)) < 2500 or at == 0
        read, reader = reader.read(row)
        assert json.dumps(read) == json.dumps({"slices": [[ITEM, "state", change]]})


def test_what_is_changed_in_place_after_a_restart_is_on_record(tmp_path: Path) -> None:
    """What a program does to a value that was read from the record does not reach what patches are made to."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        program.step(lambda _: [replace(plan(), more={"notes": ["a"]})])
        program.restart()
        program.session[Plan].all()[0].more["notes"].append("b")
        program.change_job(3, "done")
        last = store.open("r", types=[Plan, Job]).state_at(3)[Plan].all()[0]
        assert (last.more, last.jobs[3].status) == ({"notes": ["a", "b"]}, "done")
        assert list(store.verify()) == []


def test_values_inside_values_of_open_fields_stay_data(tmp_path: Path) -> None:
    """Also after a restart, and in the whole slice that is written then."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        program.step(lambda _: [replace(plan(), more=Plan((Job("inner"),), more=Plan((), more=Job("innermost"))))])
        program.restart()
        for number in range(120):
            program.change_job(number % 3, f"{number}" * 500)
        program.restart()
        assert any(frame.blob for frame in store.frames("r", until=122))
        check(store, "r", program.seen)


def deep(levels: int, leaf: str) -> Plan:
    """A plan that holds a plan, and so on."""
    made = Plan((), more=leaf)
    for _ in range(levels):
        made = Plan((), more=made)
    return replace(plan(), more=made)


def test_what_is_nested_too_deep_for_a_patch_is_written_whole(tmp_path: Path) -> None:
    """As deep as a value can be saved at all."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        depth = 0
        for depth in range(260, 0, -5):
            with suppress(RecordError, RecursionError, ValueError):
                program.step(lambda _, depth=depth: [deep(depth, "a")])
                break
        program.step(lambda _, depth=depth: [deep(depth, "b")])
        last = store.open("r", types=[Plan, Job]).data_at(3)
        assert len(last) == 1


MOVES: dict[str, Callable[[list[Job], int], list[Job]]] = {
    "one done, one added": lambda jobs, n: [
        *jobs[:n], Job(jobs[n].title, "done"), *jobs[n + 1 :], Job(f"added {n}")
    ],
    "a queue": lambda jobs, n: [*jobs[1:], Job(f"added {n}")],
    "the first comes last": lambda jobs, n: [*jobs[1:], jobs[0]],
    "the last comes first": lambda jobs, n: [jobs[-1], *jobs[:-1]],
    "two in different places": lambda jobs, n: [
        *jobs[:n], *jobs[n + 1 : 600], Job(f"added {n}"), *jobs[600:]
    ],
    "one changed, another gone": lambda jobs, n: [Job("changed", str(n)), *jobs[1:-2], jobs[-1]],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changes", [100, pytest.param(300, marks=pytest.mark.torture)])
@pytest.mark.parametrize("move", MOVES)
def test_moved_jobs_are_not_written_again(move: str, changes: int, tmp_path: Path) -> None:
    """A change of a plan of 1,000 jobs takes no more than a 150th of the plan and three times what was changed."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        program.step(lambda _: [plan(1_000)])
        for number in range(changes):
            program.step(lambda plans, n=number: [replace(plans[0], jobs=tuple(MOVES[move]([*plans[0].jobs], n)))])
        sizes = [len(json.dumps(step.body)) for step in store.open("r").steps()]
        plan_size = len(json.dumps(slices_of(store, 2)))
        job_size = len('{"title":"job 100, which has a title","status":"open"}')
        assert sum(sizes) <= plan_size + changes * (plan_size / 150 + 3 * job_size)
        check(store, "r", {seq: seen for seq, seen in program.seen.items() if seq % 50 == 0})
