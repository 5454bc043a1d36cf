"""Runs on record: what a recorded step costs beside the bare insert, how large it is, how fast a long run goes on."""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
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


def add(params: Entry, *, context: ToolContext) -> ToolResult[Entry]:
    context.session[Entry].append(params)
    return ToolResult.ok(params, f"Entry {params.number} was added.")


def prompt() -> Prompt[Any]:
    tool = Tool[Entry, Entry](
        name="add", description="Add.", handler=add, annotations=ToolAnnotations(open_world=False), max_repeats=None
    )
    return Prompt(name="bench", sections=[MarkdownSection(title="Task", template="Add entries.", tools=[tool])])


def converse(turns: int, record: Any = None, begin: int = 0) -> float:
    """The CPU seconds of a conversation with a call in each turn."""
    script = [call("add", number=n, text="an entry of ordinary length") for n in range(begin, turns)]
    adapter = ScriptedAdapter(*script, say("Done."), max_turns=turns + 1)
    subject, session = prompt(), Session()
    start = process_time()
    adapter.evaluate(subject, session, record=record)
    return process_time() - start


@contextmanager
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def bare_commits(path: Path, rows: list[tuple[Any, ...]], synchronous: str) -> tuple[float, float]:
    """CPU and elapsed seconds of inserting and committing these rows one by one, with nothing around it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        columns = ", ".join(f"c{n}" for n in range(2, len(rows[0])))
        connection.execute(f"CREATE TABLE s (c0 TEXT, c1 INT, {columns}, PRIMARY KEY (c0, c1)) WITHOUT ROWID")
        statement = f"INSERT INTO s VALUES ({', '.join('?' * len(rows[0]))})"
        cpu, elapsed = process_time(), perf_counter()
        for row in rows:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(statement, row)
            connection.execute("COMMIT")
        return process_time() - cpu, perf_counter() - elapsed


def recorded_against_bare() -> Iterator[Row]:
    """What recording adds to a conversation, for each row, against the bare commit of the same bytes."""
    ratios: list[float] = []
    for n in range(9):
        with folder() as here, SqliteRunStore(here / "runs.db", durable=False) as store:
            plain = converse(TURNS)
            recorded = converse(TURNS, store.run("r", types=[Entry]))
            with closing(sqlite3.connect(here / "runs.db")) as connection:
                rows = connection.execute("SELECT * FROM wink_steps").fetchall()
            bare, _ = bare_commits(here / "bare.db", rows, "NORMAL")
            if n:  # the first has the imports
                ratios.append((recorded - plain) / bare)
    yield Row(
        "a recorded step, beyond the step / a bare NORMAL commit of the same bytes", statistics.median(ratios), 3.0
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
            with closing(sqlite3.connect(here / "runs.db")) as connection:
                rows = connection.execute("SELECT * FROM wink_steps").fetchall()
            _, bare = bare_commits(here / "bare.db", rows, "FULL")
            ratios.append(ours / bare)
    yield Row("a durable append, elapsed / a bare FULL commit of the same bytes", statistics.median(ratios), 1.3)


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
