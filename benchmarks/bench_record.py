"""Runs on record: what a recorded step costs beside the bare insert, how large it is, how fast a long run goes on."""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any

from weakincentives import ToolInvoked
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import JsonlLog, Session, SqliteRunStore
from weakincentives.runtime.record import NewRows, NewRun, Step
from weakincentives.testing import ScriptedAdapter, call, say

from .harness import Row, ratio

TURNS = 200


@dataclass(frozen=True)
class Entry:
    number: int
    text: str


def nothing() -> None:
    """Takes the place of a commit where there is none."""


def prompt(commit: Callable[[], object] = nothing) -> Prompt[Any]:
    """One tool, which commits where a record does: before the call, and after it."""

    def add(params: Entry, *, context: ToolContext) -> ToolResult[Entry]:
        commit()
        context.session[Entry].append(params)
        commit()
        return ToolResult.ok(params, f"Entry {params.number} was added.")

    tool = Tool[Entry, Entry](
        name="add", description="Add.", handler=add, annotations=ToolAnnotations(open_world=False), max_repeats=None
    )
    return Prompt(name="bench", sections=[MarkdownSection(title="Task", template="Add entries.", tools=[tool])])


def converse(turns: int, record: Any = None, begin: int = 0, commit: Callable[[], object] = nothing) -> float:
    """The CPU seconds of a conversation with a call in each turn."""
    script = [call("add", number=n, text="an entry of ordinary length") for n in range(begin, turns)]
    adapter = ScriptedAdapter(*script, say("Done."), max_turns=turns + 1)
    subject, session = prompt(commit), Session()
    start = process_time()
    adapter.evaluate(subject, session, record=record)
    return process_time() - start


@contextmanager
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class BareCommits:
    """Writes the rows of a store again, each in the transaction that it was in, with nothing around it.

    The tables, the rows and the number of transactions are the same; so is the update of the run's own row.
    """

    def __init__(self, store: Path, path: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={synchronous}")
        with closing(sqlite3.connect(store)) as recorded:
            for (table,) in recorded.execute("SELECT sql FROM sqlite_master WHERE name LIKE 'wink_%'").fetchall():
                self._connection.execute(table)
            for run in recorded.execute("SELECT * FROM wink_runs").fetchall():
                self._connection.execute(_insert("wink_runs", run), run)
            steps = recorded.execute("SELECT * FROM wink_steps ORDER BY seq").fetchall()
            frames = recorded.execute("SELECT * FROM wink_frames ORDER BY seq").fetchall()
        written = [frame[2] for frame in frames if not frame[1]]  # those up to such a step were written with it
        batches: dict[int, list[tuple[Any, ...]]] = {seq: [] for seq in written}
        for frame in frames:
            batches[next(seq for seq in written if seq >= frame[2])].append(frame)
        self._transactions = iter([(step, batches.get(step[1], [])) for step in steps])
        self._step, self._frame = _insert("wink_steps", steps[0]), _insert("wink_frames", ("",) * 4)

    def commit(self) -> bool:
        """The next transaction; False when there are no more."""
        step, frames = next(self._transactions, (None, ()))
        if step is None:
            return False
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("UPDATE wink_runs SET updated = ? WHERE run_id = ? AND token = ?", (time(), step[0], 1))
        execute(self._step, step)
        for frame in frames:
            execute(self._frame, frame)
        execute("COMMIT")
        return True

    def close(self) -> None:
        self._connection.close()


def _insert(table: str, row: tuple[Any, ...]) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})"


def recorded_against_bare() -> Iterator[Row]:
    """What recording adds to a conversation, against what bare commits add to it in the same places.

    In a loop of their own they take a fifth to a third less: the processor has nothing else in its caches then.
    """
    ratios: list[float] = []
    for n in range(9):
        with folder() as here, SqliteRunStore(here / "runs.db", durable=False) as store:
            plain = converse(TURNS)
            recorded = converse(TURNS, store.run("r", types=[Entry]))
            with closing(BareCommits(here / "runs.db", here / "bare.db", "NORMAL")) as bare:
                committed = converse(TURNS, commit=bare.commit)
                start = process_time()
                while bare.commit():  # what there is before the first call, and after the last
                    pass
                committed += process_time() - start
            if n:  # the first has the imports
                ratios.append((recorded - plain) / (committed - plain))
    yield Row(
        "what recording adds to a step / what a bare NORMAL commit of the same rows adds",
        statistics.median(ratios),
        3.0,
    )


def durable_against_bare() -> Iterator[Row]:
    """How long the commit of a row takes that survives a power cut: nearly all of it is the disk."""
    ratios: list[float] = []
    for _ in range(5):
        with folder() as here, SqliteRunStore(here / "runs.db") as store:
            held = store.take("r", NewRun("bench", "s"))
            steps = [Step(seq=n, kind="turn", body={"text": "x" * 300}) for n in range(1, 201)]
            start = perf_counter()
            for step in steps:
                held.append(NewRows([step]))
            ours = perf_counter() - start
            held.release()
            with closing(BareCommits(here / "runs.db", here / "bare.db", "FULL")) as bare:
                start = perf_counter()
                while bare.commit():
                    pass
                ratios.append(ours / (perf_counter() - start))
    yield Row("a durable append, elapsed / a bare FULL commit of the same rows", statistics.median(ratios), 1.3)


def fast_forward() -> Iterator[Row]:
    """A run of 1,000 turns goes on at its end: everything before it is served."""
    turns = 1_000
    with folder() as here, SqliteRunStore(here / "runs.db", durable=False) as store:
        converse(turns, store.run("r", types=[Entry]))
        calls = [step.seq for step in store.steps("r", kinds=["call"])]
        spent = [
            converse(turns, store.run(store.fork("r", at=calls[-1]), types=[Entry]), begin=turns) for _ in range(5)
        ]
        plain = [converse(turns) for _ in range(5)]
    yield Row("1,000 turns served from the record", statistics.median(spent), 0.5, "s", "CPU")
    yield Row("a turn served from the record / a turn", statistics.median(spent) / statistics.median(plain), 3.0)


def begin() -> Iterator[Row]:
    """A run begins with a session that holds much: all of it is proved to come back, and written."""
    items = [Entry(number, "an entry of ordinary length") for number in range(100_000)]
    data = [{"number": item.number, "text": item.text} for item in items]
    ratios: list[float] = []
    for _ in range(5):
        with folder() as here, SqliteRunStore(here / "runs.db", durable=False) as store:
            session = Session()
            session[Entry].seed(items)
            start = process_time()
            ScriptedAdapter(say("Done.")).evaluate(prompt(), session, record=store.run("r", types=[Entry]))
            begun = process_time()
            json.dumps(data)
            ratios.append((begun - start) / (process_time() - begun))
    yield Row("begin a run with 100,000 items / json.dumps of them", statistics.median(ratios), 2.0)


def size() -> Iterator[Row]:
    """How large the record of many small calls on much state becomes."""
    calls, state = 10_000, [Entry(number, "x" * 1000) for number in range(10_000)]
    with folder() as here, SqliteRunStore(here / "runs.db", durable=False) as store:
        session = Session()
        session[Entry].seed(state)
        script = [call("add", number=n, text="an entry of ordinary length") for n in range(calls)]
        adapter = ScriptedAdapter(*script, say("Done."), max_turns=calls + 1)
        adapter.evaluate(prompt(), session, record=store.run("r", types=[Entry]))
        held = len(json.dumps([vars(item) for item in session[Entry].all()]))
        said = sum(len(str(step.body["calls"])) for step in store.steps("r", kinds=["turn"]))
        store.close()
        taken = sum(file.stat().st_size for file in here.rglob("*") if file.is_file())
    note = f"{taken / 1e6:.1f} MB for {held / 1e6:.1f} MB of state and {said / 1e6:.1f} MB said in {calls:,} calls"
    yield Row("size of a record / state and what was said", taken / (held + said), 3.0, "x", note)


def log_on_disk() -> Iterator[Row]:
    """The line of a call in a `JsonlLog`, nearly all of which is masking, against its JSON."""
    session = Session()
    script = [call("add", number=1, text="an entry of ordinary length"), say("Done.")]
    ScriptedAdapter(*script).evaluate(prompt(), session)
    event = session[ToolInvoked].latest()
    with folder() as here, JsonlLog(here / "calls.jsonl") as log:
        log(event)
        data = next(iter(JsonlLog.read(log.path)))
        yield ratio(
            "the line of a call in the log on disk / json.dumps", lambda: log(event), lambda: json.dumps(data), 40.0
        )


def run() -> Iterator[Row]:
    yield from recorded_against_bare()
    yield from durable_against_bare()
    yield from fast_forward()
    yield from begin()
    yield from size()
    yield from log_on_disk()
