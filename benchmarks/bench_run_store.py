"""Looking at a late step of a long run: that must not take as long as the run is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from weakincentives.runtime import Session, SqliteRunStore
from weakincentives.runtime.record import FileStep, NewRows, NewRun, Step
from weakincentives.runtime.record.frames import FrameWriter
from weakincentives.runtime.record.large_items import LargeItems
from weakincentives.runtime.record.rows import FrameStep, digest_of
from weakincentives.session.deltas import dump_delta, type_finder

from .harness import Row, interleave

STEPS = 100_000
BATCH = 2000


@dataclass(frozen=True)
class Progress:
    done: int
    title: str = "Move the settings of each service into one file"


@dataclass(frozen=True)
class Finding:
    number: int
    text: str = "The service reads its settings twice, once before they are complete."


def record_long_run(store: SqliteRunStore) -> None:
    """Each step replaces an item, each hundredth adds one to a slice of a thousand, each tenth writes a file."""
    find, session = type_finder((Progress, Finding)), Session()
    frames, large, since = FrameWriter(find), LargeItems(), None
    held = store.take("long", NewRun("bench", "a session"))
    last: dict[str, str] = {}
    for start in range(1, STEPS + 1, BATCH):
        steps, files, contents, changed = list[Step](), list[FileStep](), dict[str, bytes](), list[FrameStep]()
        for seq in range(start, start + BATCH):
            session[Progress].seed([Progress(seq)])
            if seq % 100 == 0:
                session[Finding].append(Finding(seq))
            state, _, since = dump_delta(session, since, find)
            state, large = large.write(state)
            marks, blobs = frames.frames(seq, state, since, large)
            frames.wrote(marks)
            body = {"text": "The settings of this service are in one file now; on to the next one.", "state": state}
            steps.append(Step(seq=seq, kind="begin" if seq == 1 else "call", tool="write_file", body=body))
            changed.extend(marks)
            contents.update(blobs)
            if seq % 10 == 0:
                path, content = f"services/{seq % 500}.toml", f"settings = {seq}\n".encode()
                node = f"file:644:{digest_of(content)}"
                contents[digest_of(content)] = content
                files.append(FileStep(path, seq, last.get(path), node))
                last[path] = node
        held.append(NewRows(steps, files, contents, None, changed))
    held.release()


def run() -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder, SqliteRunStore(Path(folder) / "runs.db", durable=False) as store:
        record_long_run(store)
        long = store.open("long", types=(Progress, Finding))
        state, files, late = interleave(
            lambda: long.state_at(STEPS), lambda: long.files_at(STEPS), lambda: long.state_at(STEPS - 777), rounds=5
        )
        size = (Path(folder) / "runs.db").stat().st_size / STEPS
    note = f"a run of {STEPS:,} steps; CPU"
    yield Row("state_at, the last step", 1000 * min(state), 50, "ms", note)
    yield Row("state_at, any step", 1000 * min(late), 50, "ms", note)
    yield Row("files_at, 50 files", 1000 * min(files), 50, "ms", note)
    yield Row("bytes per step", size, 1000, "bytes", "340 of them are what changed and was said, 100 where")
