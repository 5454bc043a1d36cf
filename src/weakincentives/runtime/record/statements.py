"""The tables of a store of runs, and the statements on their rows, each in a transaction of the caller's."""
# ruff: noqa: S608 - statements are put together from the constants below; whatever comes from outside is a value

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...errors import RecordError, RunBusyError
from ..ledger.sql import SqlTransaction
from .rows import VERSION, Content, FrameStep, NewRows, NewRun, RunInfo, RunStatus, Step, size_of

TABLES = {
    "wink_record": """
CREATE TABLE wink_record (
    version       INTEGER NOT NULL    -- of the format of the tables below
)""",
    "wink_meta": """
CREATE TABLE wink_meta (
    key            TEXT PRIMARY KEY,
    value          TEXT NOT NULL      -- of seal: a key that is sealed, or empty in a store without a seal
)""",
    "wink_runs": """
CREATE TABLE wink_runs (
    number         {number},          -- in the order in which runs began
    run_id         TEXT NOT NULL UNIQUE,
    parent         TEXT,              -- the run that this one was forked from,
    forked_at      INTEGER,           -- and the last of its steps that both share
    loop           TEXT NOT NULL,     -- the class of the loop, or the name of the prompt
    session_id     TEXT NOT NULL,
    lineage        TEXT NOT NULL,     -- which session's effects count as its own
    request        TEXT,              -- JSON
    request_digest TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('running', 'paused', 'done', 'failed')),
    owner          TEXT NOT NULL,     -- the process that had it last
    token          BIGINT NOT NULL,   -- fencing: rises whenever a process takes it
    created        DOUBLE PRECISION NOT NULL,
    updated        DOUBLE PRECISION NOT NULL,
    tags           TEXT NOT NULL      -- JSON
)""",
    "wink_steps": """
CREATE TABLE wink_steps (
    run_id         TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    turn           INTEGER NOT NULL,
    parent_seq     INTEGER,           -- the call that this one was made in
    call_id        TEXT,
    tool           TEXT,
    outcome        TEXT,
    started        DOUBLE PRECISION NOT NULL,
    duration       DOUBLE PRECISION NOT NULL,
    input_tokens   BIGINT NOT NULL,
    output_tokens  BIGINT NOT NULL,
    body           TEXT NOT NULL,     -- JSON
    PRIMARY KEY (run_id, seq)
){without_rowid}""",
    "wink_files": """
CREATE TABLE wink_files (
    run_id         TEXT NOT NULL,
    path           TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    before         TEXT,              -- file:<mode>:<blob>, directory:<mode>, symlink:<blob>; NULL for nothing
    after          TEXT,
    PRIMARY KEY (run_id, path, seq)
){without_rowid}""",
    "wink_frames": """
CREATE TABLE wink_frames (
    run_id         TEXT NOT NULL,
    slice          TEXT NOT NULL,     -- the class of its items, or notes; empty: the rows up to here are all there
    seq            INTEGER NOT NULL,  -- a step that changed it
    blob           TEXT,              -- the whole slice after that step, now and then; NULL for the change alone
    PRIMARY KEY (run_id, slice, seq)
){without_rowid}""",
    "wink_blobs": """
CREATE TABLE wink_blobs (
    hash           TEXT PRIMARY KEY,  -- BLAKE2b, 160 bits, of the content
    size           BIGINT NOT NULL,
    data           {bytes} NOT NULL   -- empty when the content is in a file beside the store
){without_rowid}""",
}
"""Format version 1; documented in docs/record.md."""

RUN = (
    "run_id, loop, session_id, lineage, status, owner, token, created, updated, parent, forked_at, request, "
    "request_digest, tags"
)
STEP = "seq, kind, turn, parent_seq, call_id, tool, outcome, started, duration, input_tokens, output_tokens, body"
OVER: tuple[RunStatus, ...] = ("done", "failed")
"""How a run is that has ended."""
RUN_ROWS = (("wink_steps", STEP), ("wink_files", "path, seq, before, after"), ("wink_frames", "slice, seq, blob"))

_INSERT_STEP = (
    f"INSERT INTO wink_steps (run_id, {STEP}) VALUES (:run_id, :seq, :kind, :turn, :parent_seq, :call_id, :tool, "
    ":outcome, :started, :duration, :input_tokens, :output_tokens, :body) ON CONFLICT (run_id, seq) DO NOTHING"
)
_INSERT_FRAME = (
    "INSERT INTO wink_frames (run_id, slice, seq, blob) VALUES (:run_id, :slice, :seq, :blob) "
    "ON CONFLICT (run_id, slice, seq) DO NOTHING"
)
_INSERT_FILE = (
    "INSERT INTO wink_files (run_id, path, seq, before, after) VALUES (:run_id, :path, :seq, :before, :after) "
    "ON CONFLICT (run_id, path, seq) DO NOTHING"
)
FILES = (
    "SELECT path, seq, before, after FROM wink_files WHERE run_id = :run_id "
    "AND (CAST(:until AS BIGINT) IS NULL OR seq <= :until) "
    "AND (CAST(:path AS TEXT) IS NULL OR path = :path) ORDER BY seq, path"
)
# From path to path by the index: what there is of each in between is not read.
LAST_FILES = """
    WITH RECURSIVE paths (path) AS (
        SELECT min(path) FROM wink_files WHERE run_id = :run_id AND (CAST(:path AS TEXT) IS NULL OR path = :path)
        UNION ALL
        SELECT (SELECT min(f.path) FROM wink_files f WHERE f.run_id = :run_id AND f.path > paths.path)
        FROM paths WHERE paths.path IS NOT NULL AND CAST(:path AS TEXT) IS NULL
    )
    SELECT f.path, f.seq, f.before, f.after FROM paths JOIN wink_files f ON f.run_id = :run_id AND f.path = paths.path
    WHERE f.seq = (
        SELECT max(l.seq) FROM wink_files l
        WHERE l.run_id = :run_id AND l.path = paths.path AND (CAST(:until AS BIGINT) IS NULL OR l.seq <= :until)
    )
    ORDER BY f.seq, f.path
"""


def check_version(rows: Sequence[Sequence[Any]]) -> None:
    """Refuse the tables of a newer version, or of none, by what `wink_record` holds."""
    version = rows[0][0] if rows else 0
    if version < 1:
        raise RecordError("The store does not say which version it has, so it is damaged. Restore it from a backup.")
    if version > VERSION:
        raise RecordError(f"The store has version {version}, but this WINK knows versions up to {VERSION}. Update it.")


def begin_run(transaction: SqlTransaction, run_id: str, new: NewRun, owner: str) -> None:
    """Make the row of the run, unless there is one."""
    values: dict[str, Any] = {**new._asdict(), "lineage": new.lineage or new.session_id}
    values |= {name: stored_text(values[name]) for name in _RUN_TEXTS}
    values["tags"] = json.dumps(dict(new.tags))
    transaction.change(
        "INSERT INTO wink_runs (run_id, parent, forked_at, loop, session_id, lineage, request, request_digest, status, "
        "owner, token, created, updated, tags) VALUES (:run_id, :parent, :forked_at, :loop, :session_id, :lineage, "
        ":request, :request_digest, 'running', :owner, 0, {now}, {now}, :tags) ON CONFLICT (run_id) DO NOTHING",
        **values, run_id=run_id, owner=owner,
    )  # fmt: skip


def take_token(transaction: SqlTransaction, info: RunInfo, owner: str) -> RunInfo:
    """The run with the next token and this owner; `RunBusyError` when its token is not that of `info` any more."""
    changed = transaction.change(
        "UPDATE wink_runs SET token = token + 1, owner = :owner, updated = {now}, "
        "status = CASE status WHEN 'failed' THEN 'running' ELSE status END "
        "WHERE run_id = :run_id AND token = :token",
        run_id=info.run_id, owner=owner, token=info.token,
    )  # fmt: skip
    taken = current(transaction, info.run_id)
    if not changed and (taken.owner, taken.token) != (owner, info.token + 1):
        raise busy(taken, owner)
    return taken


def current(transaction: SqlTransaction, run_id: str) -> RunInfo:
    """The run as it is now, held; `RecordError` when it was removed."""
    rows = transaction.rows(f"SELECT {RUN} FROM wink_runs WHERE run_id = :run_id", run_id=run_id)
    if not rows:
        raise RecordError(f"The run {run_id!r} was removed.")
    return info_of(rows[0], alive=True)


Inserts = Sequence[tuple[str, Sequence[Sequence[object]]]]
"""Statements, each with the values of the rows that it is run for."""


def inserts_of(run_id: str, rows: NewRows) -> Inserts:
    """What adds these rows to a run, apart from their content; rows that are there already stay."""
    return (
        (_INSERT_STEP, [_step_values(run_id, step) for step in rows.steps]),
        (_INSERT_FRAME, [(run_id, stored_text(name), seq, blob) for name, seq, blob in rows.frames]),
        (
            _INSERT_FILE,
            [(run_id, stored_text(file.path), file.seq, file.before, file.after) for file in rows.files],
        ),
    )


def insert_content(
    transaction: SqlTransaction, blobs: Mapping[str, Content], in_table: Callable[[str, Content], bytes], known: str
) -> None:
    """Add content. `in_table` says what of it stands in the table, `known` what to do about a row that is there."""
    for digest, data in sorted(blobs.items(), key=itemgetter(0)):  # in one order, lest two appends wait for each other
        transaction.change(
            f"INSERT INTO wink_blobs (hash, size, data) VALUES (:hash, :size, :data) ON CONFLICT (hash) {known}",
            hash=digest, size=size_of(data), data=in_table(digest, data),
        )  # fmt: skip


def _step_values(run_id: str, step: Step) -> tuple[object, ...]:
    """In the order of `STEP`."""
    return (
        run_id, step.seq, step.kind, step.turn, step.parent_seq, stored_text(step.call_id), stored_text(step.tool),
        step.outcome, step.started, step.duration, step.input_tokens, step.output_tokens, _json(step.body),
    )  # fmt: skip


def frames_until(transaction: SqlTransaction, run_id: str, until: int) -> Iterator[FrameStep]:
    """From slice to slice by the index, up to the last step with a row of the empty name."""
    name = ""
    while True:
        values = {"run_id": run_id, "name": name, "until": until}
        whole = transaction.rows(
            "SELECT seq FROM wink_frames WHERE run_id = :run_id AND slice = :name AND seq <= :until "
            "AND blob IS NOT NULL ORDER BY seq DESC LIMIT 1",
            **values,
        )
        if not name and not whole:
            return
        rows = transaction.rows(
            "SELECT slice, seq, blob FROM wink_frames WHERE run_id = :run_id AND slice = :name AND seq <= :until "
            "AND seq >= :first ORDER BY seq",
            **values, first=whole[0][0] if whole else 0,
        )  # fmt: skip
        yield from (FrameStep(*row) for row in rows)
        if not name:
            until = rows[-1][1]
        slices = transaction.rows(
            "SELECT slice FROM wink_frames WHERE run_id = :run_id AND slice > :name ORDER BY slice LIMIT 1", **values
        )
        if not slices:
            return
        name = slices[0][0]


def info_of(row: Sequence[Any], *, alive: bool = False) -> RunInfo:
    """The run that a row of the columns `RUN` is."""
    names = [name.strip() for name in RUN.split(",")]
    values = dict(zip(names, row, strict=True))
    try:
        texts = {name: plain_text(values[name]) for name in _RUN_TEXTS}
        tags = json.loads(values["tags"])
        values |= {name: float(values[name]) for name in ("created", "updated")}
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise RecordError(
            f"The row of the run {values['run_id']!r} cannot be read: {error}. Restore the store from a backup."
        ) from None
    return RunInfo(**{**values, **texts, "tags": tags}, alive=alive)


def step_of(row: Sequence[Any]) -> Step:
    """The step that a row of the columns `STEP` is."""
    seq, kind, turn, parent, call_id, tool, outcome, started, duration, input_tokens, output_tokens, body = row
    return Step(
        seq=seq, kind=kind, turn=turn, parent_seq=parent, call_id=plain_text(call_id), tool=plain_text(tool),
        outcome=outcome, started=started, duration=duration, input_tokens=input_tokens, output_tokens=output_tokens,
        body=json.loads(body),
    )  # fmt: skip


def is_over(info: RunInfo, retry: bool) -> bool:
    """Whether nothing can be added to the run; one that failed may be retried."""
    return info.status == "done" or (info.status == "failed" and not retry)


def busy(info: RunInfo, me: str) -> RunBusyError:
    """What to raise for a run that another process has, or another thread or task of this one."""
    whose, wait = "another process", "Wait until it has ended, or end that process"
    if info.owner == me:
        whose, wait = "another evaluation in this process", "Wait until that has ended"
    return RunBusyError(
        f"The run {info.run_id!r} belongs to {whose} now: {info.owner}. {wait}; then the run can be continued.",
        run_id=info.run_id,
        owner=info.owner,
    )


def stored_text(text: str | None) -> str | None:
    """The text as it stands in a column: what no database takes, NUL and lone surrogates, is escaped.

    Names of files that are not UTF-8 have surrogates, and so may have whatever a model makes up. An escaped text begins
    as no path and no JSON does, so texts without such characters stay as they are.
    """
    if text is None:
        return None
    is_odd = "\x00" in text or (not text.isascii() and _SURROGATE.search(text))
    return f"/{json.dumps(text)}" if is_odd or text.startswith(_ESCAPED) else text


def plain_text(stored: Any) -> Any:
    """The text that stands in a column, or None."""
    return json.loads(stored[1:]) if stored is not None and stored.startswith(_ESCAPED) else stored


_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = '/"'
_RUN_TEXTS = ("loop", "session_id", "lineage", "request", "request_digest")
"""Columns of a run that hold texts of the program."""

_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode  # a circle is a `RecursionError` then

__all__ = [
    "FILES",
    "LAST_FILES",
    "OVER",
    "RUN",
    "RUN_ROWS",
    "STEP",
    "TABLES",
    "begin_run",
    "busy",
    "check_version",
    "current",
    "frames_until",
    "info_of",
    "insert_content",
    "inserts_of",
    "is_over",
    "plain_text",
    "step_of",
    "stored_text",
    "take_token",
]
