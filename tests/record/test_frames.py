"""Whole slices from time to time: what a run held after any step is read right, and without reading all before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives import Session
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import FileStep, HeldRun, NewRows, NewRun, RecordedRun, Step
from weakincentives.runtime.record.recorder import Recorder
from weakincentives.runtime.record.rows import digest_of
from weakincentives.session import Vector
from weakincentives.session.deltas import dump_notes, type_finder

from ..conftest import examples

NEW = NewRun("Desk", "a session")
HEAVY = "x" * 3000


@dataclass(frozen=True)
class Small:
    number: int


@dataclass(frozen=True)
class Large:
    number: int
    text: str = HEAVY


TYPES = (Small, Large)
FIND = type_finder(TYPES)
Seen = tuple[Vector[Small], Vector[Large], list[str]]


class Program:
    """Writes to a session and records a row after each change, remembering what was there."""

    def __init__(self, store: SqliteRunStore, run_id: str = "r") -> None:
        self.store, self.run_id = store, run_id
        self.seen: dict[int, Seen] = {}
        self.begin()

    def begin(self) -> None:
        self.session = Session(session_id="a session")
        self.held: HeldRun = self.store.take(self.run_id, NEW)
        self.recorder = Recorder(self.store, self.held, TYPES)
        self.recorder.open(self.session, ())
        self.look()

    def restart(self) -> None:
        """As another process goes on."""
        self.held.release()
        self.begin()
        while self.recorder.serving:
            self.recorder._serve()

    def step(self, change: Callable[[Session], object]) -> None:
        change(self.session)
        self.recorder._write("turn", body={"text": "said"})
        self.look()

    def look(self) -> None:
        self.seen[self.recorder._seq] = seen_in(self.session)


def seen_in(session: Session) -> Seen:
    return session[Small].all(), session[Large].all(), sorted(map(str, dump_notes(session.snapshot(), FIND)))


def change(session: Session, what: str, number: int) -> None:
    items = session[Large].all()
    match what:
        case "append":
            session[Large].append(Large(number))
        case "small":
            session[Small].append(Small(number))
        case "whole":
            session[Large].seed([Large(number)])
        case "cut":
            session[Large].seed(items[: number % 7])
        case "set":
            session[Large].seed([*items[:number], Large(99), *items[number + 1 :]])
        case "note":
            session.note(f"note {number}", None if number % 5 == 0 else HEAVY + str(number))
        case "clear":
            session[Large].clear()
        case _:
            pass


KINDS = st.sampled_from(("append", "append", "small", "whole", "cut", "set", "set", "note", "clear", "nothing"))
CHANGES = st.lists(st.tuples(KINDS, st.integers(0, 40)), min_size=1, max_size=60)


@settings(max_examples=examples(25))
@given(changes=CHANGES, restart=st.integers(0, 60), fork=st.integers(1, 60))
def test_state_at_is_what_was_there(changes: list[tuple[str, int]], restart: int, fork: int) -> None:
    """After every step of a random program, restarted in the middle, and in a fork of it."""
    with TemporaryDirectory() as folder, SqliteRunStore(Path(folder) / "runs.db", durable=False) as store:
        program = Program(store)
        for position, (what, number) in enumerate(changes):
            if position == restart:
                program.restart()
            program.step(lambda session, what=what, number=number: change(session, what, number))
        forked = store.fork("r", at=min(fork, max(program.seen)))
        assert store.verify() == []
        for run in (store.open("r", types=TYPES), store.open(forked, types=TYPES)):
            for step in run.steps():
                assert seen_in(run.state_at(step.seq)) == program.seen[step.seq]
                data = run.data_at(step.seq)
                small = [item["number"] for item in data.get(f"{__name__}:Small", [])]
                assert small == [item.number for item in program.seen[step.seq][0]]
        assert store.verify() == []
        program.held.release()


def test_a_frame_is_written_when_changes_outweigh_the_slice(tmp_path: Path) -> None:
    """Items that take turns in a slice of a few: reading needs one frame and some changes, not all of them."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        for number in range(200):

            def write(session: Session, number: int = number) -> None:
                items = session[Large].all()
                session[Large].seed([*items, Large(number)] if len(items) < 5 else [*items[:4], Large(number)])

            program.step(write)
        rows = store.frames("r", until=201)
        large = [row for row in rows if row.slice.endswith(":Large")]
        assert large[0].blob
        assert len(large) < 20
        assert seen_in(store.open("r", types=TYPES).state_at(201)) == program.seen[201]
        program.held.release()


def test_a_slice_that_is_replaced_as_a_whole_needs_no_frame(tmp_path: Path) -> None:
    """A plan of one item: each step has all of it already."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        for number in range(50):
            program.step(lambda session, number=number: session[Large].seed([Large(number)]))
        rows = store.frames("r", until=51)
        assert [row.blob for row in rows] == ["", ""]
        assert all(row.seq > 40 for row in rows)
        assert store.open("r", types=TYPES).state_at(51)[Large].all() == [Large(49)]
        program.held.release()


def test_a_record_without_frames_is_read_from_its_beginning(tmp_path: Path) -> None:
    """As those were written that had none; going on with such a run writes none either, since they would mislead."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        for number in range(5):
            program.step(lambda session, number=number: session[Small].append(Small(number)))
        store._write(lambda transaction: transaction.change("DELETE FROM wink_frames"))
        program.restart()
        program.step(lambda session: session[Small].append(Small(5)))
        assert store.frames("r", until=7) == []
        assert store.open("r", types=TYPES).state_at(7)[Small].all() == [Small(n) for n in range(6)]
        program.held.release()


def test_files_at_reads_the_last_row_of_each_path(tmp_path: Path) -> None:
    """Of many rows of a few paths."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        held = store.take("r", NEW)
        steps: list[Step] = []
        files: list[FileStep] = []
        blobs: dict[str, bytes] = {}
        last: dict[str, str | None] = {}
        for seq in range(1, 501):
            path, content = f"f{seq % 7}", f"{seq}".encode()
            name = digest_of(content)
            after = None if seq % 11 == 0 else f"file:644:{name}"
            steps.append(Step(seq=seq, kind="call"))
            files.append(FileStep(path, seq, last.get(path), after))
            last[path] = after
            blobs[name] = content
        held.append(NewRows(steps, files, blobs))
        run: RecordedRun = store.open("r")
        for seq in (1, 5, 11, 250, 500):
            found = store.files("r", until=seq, last=True)
            expected = {file.path: file for file in files if file.seq <= seq}
            assert {file.path: file for file in found} == expected
            fs = run.files_at(seq)
            assert all(fs.exists(path) == (file.after is not None) for path, file in expected.items())
        assert [file.path for file in store.files("r", path="f3", last=True)] == ["f3"]
        assert store.files("unknown", last=True) == []
        held.release()


@pytest.mark.slow  # writes a long run first
def test_a_late_step_of_a_long_run_needs_few_rows(tmp_path: Path) -> None:
    """Whatever changed how often: a rare change of a large slice among many of a small one too."""
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as store:
        program = Program(store)
        program.session[Large].seed([Large(number) for number in range(100)])
        for number in range(5000):

            def write(session: Session, number: int = number) -> None:
                session[Small].seed([Small(number)])
                if number % 100 == 0:
                    session[Large].append(Large(number))

            program.step(write)
        rows = store.frames("r", until=5001)
        assert len(rows) < 150
        assert seen_in(store.open("r", types=TYPES).state_at(5001)) == program.seen[5001]
        program.held.release()
