"""What the stores in databases share: each operation is one transaction on the same tables."""
# ruff: noqa: S608 - statements are put together from the constants below; whatever comes from outside is a value

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Literal, Self, TypeVar, cast
from uuid import uuid4

from ...errors import RecordError
from ...filesystem.protocol import LargeFile
from ..ledger.protocol import Ledger
from ..ledger.sql import SqlTransaction
from .files import FilesToKeep, World
from .protocol import HeldRun
from .reading import RecordedRun
from .rows import (
    Content,
    FileStep,
    FrameStep,
    NewRows,
    NewRun,
    RunInfo,
    RunStatus,
    Step,
    StepKind,
    awaits_message,
    digest_of,
    size_of,
    whole,
)
from .runs import RunRecord
from .seals import PlainForm, RowForm
from .statements import (
    FILES,
    LAST_FILES,
    OVER,
    RUN,
    RUN_ROWS,
    STEP,
    begin_run,
    busy,
    frames_until,
    info_of,
    insert_content,
    inserts_of,
    is_over,
    plain_text,
    step_of,
    stored_text,
    take_token,
)
from .upkeep import remove_content, remove_run, unused_content
from .verification import Used, problems_of_blobs, problems_of_run

T = TypeVar("T")

_HELD = "run_id = :run_id AND token = :token"
_TOUCH = f"UPDATE wink_runs SET updated = {{now}} WHERE {_HELD}"
_END = f"UPDATE wink_runs SET updated = {{now}}, status = :status WHERE {_HELD}"
_FIRST = 1
"""The token of the process that began a run; it takes it from 0."""
MAX_FILE = 256 * 1024 * 1024
"""Bytes of the largest content that is recorded, unless the store is told otherwise."""
_CHOSEN = 512
"""So many steps are chosen by their numbers at once."""
_PAGE = 1000
"""So many rows are read at once."""
_MAX_ID = 200


class SqlRunStore(ABC):
    """The operations of a `RunStore` on a database; subclasses know how to reach it, and which process is alive."""

    blocks = True
    _max_file: int = MAX_FILE
    _form: RowForm = PlainForm()
    _KNOWN_CONTENT = "DO NOTHING"
    """What an append does about a row of content that is there already."""
    _HAS_LEASE = "0"
    """In a query of `wink_runs`: whether a process has the run according to the database."""

    @abstractmethod
    def _read(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run queries, again if need be; `RecordError` when the database cannot be read."""

    @abstractmethod
    def _write(self, run: Callable[[SqlTransaction], T]) -> T:
        """Run one transaction that lasts when this returns, again if need be; `RecordError` when it cannot be.

        `run` may be called several times, so it must end the same when an earlier try went through unnoticed.
        """

    @abstractmethod
    def _hold(self, info: RunInfo, number: int, /) -> bool:
        """Make the run this process's, so that others see it; False when another process has it."""

    @abstractmethod
    def _let_go(self, info: RunInfo, number: int, /) -> None:
        """Let others have the run."""

    @abstractmethod
    def _is_alive(self, number: int, *, has_lease: bool) -> bool:
        """Whether a process has the run; `has_lease` is what `_HAS_LEASE` gave in its row."""

    @abstractmethod
    def _owner(self) -> str:
        """What this process is called in messages to others."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """As `RunStore.ledger`."""

    @abstractmethod
    def close(self) -> None:
        """As `RunStore.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def max_file(self) -> int:
        """As `RunStore.max_file`."""
        return self._max_file

    # Writing.

    def take(self, run_id: str, new: NewRun | None = None, /, *, retry: bool = False) -> HeldRun:
        """As `RunStore.take`."""
        check_id(run_id)
        if new is not None:
            row = self._form.run(new)
            self._write(lambda transaction: begin_run(transaction, run_id, row, self._owner()))
        found = self._find(run_id)
        if found is None:
            raise RecordError(f"There is no run {run_id!r} in this store.")
        info, number = found
        if is_over(info, retry):
            return _Held(self, info, number, is_new=False)
        if not self._hold(info, number):
            raise busy(info, self._owner())
        try:
            info = self._form.info(self._write(lambda transaction: self._take(transaction, info, retry)))
        except BaseException:
            self._let_go(info, number)
            raise
        return _Held(self, info, number, is_new=info.token == _FIRST)

    def _take(self, transaction: SqlTransaction, info: RunInfo, retry: bool) -> RunInfo:  # noqa: ARG002 - for those who look again
        """Give the run a new token, in the transaction that takes it; `RunBusyError` when another process did."""
        return take_token(transaction, info, self._owner())

    def append(self, info: RunInfo, rows: NewRows) -> None:
        """Add rows to a run that is held; see `HeldRun.append`."""
        self._check_sizes(rows)
        if rows.blobs:
            rows = rows._replace(blobs={name: _checked(name, data) for name, data in rows.blobs.items()})
        rows = self._form.rows(rows)
        self._prepare(rows)
        inserts = inserts_of(info.run_id, rows)

        def run(transaction: SqlTransaction) -> bool:
            # Without the status where it stays: SQLite checks that it is a known one for every row that sets it.
            if rows.status is None:
                fits = transaction.change(_TOUCH, run_id=info.run_id, token=info.token)
            else:
                fits = transaction.change(_END, run_id=info.run_id, token=info.token, status=rows.status)
            if fits:
                insert_content(transaction, rows.blobs, self._in_table, self._KNOWN_CONTENT)
                for statement, values in inserts:
                    transaction.change_all(statement, values)
            return bool(fits)

        if not self._write(run):
            now = self.info(info.run_id)
            raise busy(info if now is None else now, self._owner())

    def _check_sizes(self, rows: NewRows) -> None:
        for size in map(size_of, rows.blobs.values()):
            if size > self._max_file:
                raise RecordError(
                    f"A file of {size:,} bytes cannot be recorded, since max_file of the run store is "
                    f"{self._max_file:,}: a call that could not be made again is not kept. Write smaller files, or "
                    "pass a larger max_file to the store."
                )

    def _prepare(self, rows: NewRows) -> None:
        """Do what takes long, before the transaction that adds the rows."""
        del rows

    def _in_table(self, _digest: str, content: Content, /) -> bytes:
        """In that transaction: what of the content stands in the table."""
        return whole(content)

    def _from_elsewhere(self, _digest: str, /) -> bytes | None:
        """The content that does not stand in the table."""
        return None

    def fork(
        self, run_id: str, /, *, at: int, new_id: str | None = None, effects: Literal["shared", "fresh"] = "shared"
    ) -> str:
        """As `RunStore.fork`."""
        new_id = uuid4().hex if new_id is None else new_id
        check_id(new_id)
        last = list(self.steps(run_id, after=at - 1, until=at))
        if not last:
            raise RecordError(f"The run {run_id!r} has no step {at}.")
        info = self.info(run_id)
        is_waiting = info is not None and info.is_conversation and awaits_message(last[0])
        values = {
            "run_id": run_id, "new_id": new_id, "at": at, "owner": self._owner(),
            "fresh": uuid4().hex if effects == "fresh" else None, "status": "paused" if is_waiting else "running",
        }  # fmt: skip
        columns = "loop, request, request_digest, tags"

        def run(transaction: SqlTransaction) -> None:
            # Held until the fork is there: a run that is removed meanwhile would take content with it.
            if not transaction.rows("SELECT 1 FROM wink_runs WHERE run_id = :run_id{for_update}", **values):
                raise RecordError(f"There is no run {run_id!r} in this store.")
            made = transaction.change(
                "INSERT INTO wink_runs (run_id, parent, forked_at, session_id, lineage, status, owner, token, created, "
                f"updated, {columns}) SELECT :new_id, run_id, :at, COALESCE(CAST(:fresh AS TEXT), session_id), "
                f"COALESCE(CAST(:fresh AS TEXT), lineage), :status, :owner, 1, {{now}}, {{now}}, {columns} "
                "FROM wink_runs WHERE run_id = :run_id ON CONFLICT (run_id) DO NOTHING", **values
            )  # fmt: skip
            if not made:  # before the rows: those that the other run does not have would become its own
                raise RecordError(f"There is a run {new_id!r} already.")
            for table, names in RUN_ROWS:
                transaction.change(
                    f"INSERT INTO {table} (run_id, {names}) SELECT :new_id, {names} FROM {table} "
                    "WHERE run_id = :run_id AND seq <= :at", **values
                )  # fmt: skip

        self._write(run)
        return new_id

    # Upkeep.

    def prune(self, older_than: timedelta, *, interrupted: bool = False, dry_run: bool = False) -> Sequence[RunInfo]:
        """As `RunStore.prune`."""
        statement = (
            f"SELECT number, {self._HAS_LEASE}, {RUN} FROM wink_runs WHERE updated < {{now}} - :seconds ORDER BY number"
        )
        seconds = older_than.total_seconds()
        rows = self._read(lambda transaction: transaction.rows(statement, seconds=seconds))
        found = [
            (info, number) for info, number in map(self._seen, rows) if self._is_past(info, interrupted=interrupted)
        ]
        if dry_run:
            return [info for info, _ in found]
        removed = [info for info, number in found if self._remove(info.run_id, number)]
        self._remove_unused()
        self._write(self._remove_files)
        return removed

    def _is_past(self, info: RunInfo, *, interrupted: bool) -> bool:
        """Whether no process can go on with it. A run inside a call may be needed until the run around it is over."""
        around = self.info(info.parent) if info.is_inside and info.parent is not None else None
        if around is not None:
            return not info.alive and self._is_past(around, interrupted=interrupted)
        if info.status == "paused":  # for a decision, which may come at any time; a conversation, for a message
            return info.is_conversation and not info.alive
        return info.status in OVER or (interrupted and info.interrupted)

    def _remove(self, run_id: str, number: int) -> bool:
        try:
            info = self.take(run_id).info
        except RecordError:  # taken or removed meanwhile
            return False
        if info.status in OVER and not self._hold(info, number):  # it has ended, but its process is not done with it
            return False
        removed = False
        try:
            removed = self._write(lambda transaction: self._forget(transaction, info, number))
        finally:
            if not removed:
                self._let_go(info, number)
        return removed

    def _forget(self, transaction: SqlTransaction, info: RunInfo, number: int, /) -> bool:  # noqa: ARG002 - subclasses
        """Remove the rows of a run, and let go of it with them."""
        return remove_run(transaction, info.run_id, info.token)

    def _remove_unused(self) -> None:
        """Remove what belongs to no run; no other transaction adds content meanwhile."""
        self._write(lambda transaction: remove_content(transaction, unused_content(transaction, self._form)))

    def _remove_files(self, transaction: SqlTransaction) -> None:
        """Remove content beside the database, once it is certain that no row names it."""
        del transaction

    def verify(self) -> Sequence[str]:
        """As `RunStore.verify`."""
        problems = list(self._problems_of_database())
        used: Used = {}
        for info in self._infos("number", None, None):
            problems.extend(problems_of_run(self._read, info.run_id, self._form, self._content, used))
        names = self._read(lambda transaction: transaction.rows("SELECT hash FROM wink_blobs ORDER BY hash"))
        problems.extend(problems_of_blobs((row[0] for row in names), used, self._content))
        return problems

    def _problems_of_database(self) -> Iterable[str]:
        """What the database itself finds wrong."""
        return ()

    # Reading.

    def run(
        self,
        run_id: str,
        /,
        *,
        types: Iterable[type[Any]] = (),
        world: World = "check",
        retry: bool = False,
        accept_unrecorded: Iterable[str] = (),
        accept_changed: Iterable[str] = (),
        resumable: bool = True,
        files: FilesToKeep = "changed",
    ) -> RunRecord:
        """The run with that id, for `evaluate(record=...)`; it is begun then unless it is there. See `RunRecord`."""
        return RunRecord(
            self, run_id, types=tuple(types), world=world, retry=retry,
            accept_unrecorded=tuple(accept_unrecorded), accept_changed=tuple(accept_changed),
            resumable=resumable, files=files,
        )  # fmt: skip

    def open(self, run_id: str, /, *, types: Iterable[type[Any]] = ()) -> RecordedRun:
        """The run, to be looked at; `types` are the classes of slices for `state_at`."""
        return RecordedRun(self, run_id, types)

    def info(self, run_id: str, /) -> RunInfo | None:
        """As `RunStore.info`."""
        found = self._find(run_id)
        return None if found is None else found[0]

    def infos(self, *, status: RunStatus | None = None, limit: int | None = None) -> Sequence[RunInfo]:
        """As `RunStore.infos`."""
        return self._infos("updated DESC, number DESC", status, limit)

    def interrupted(self) -> Sequence[RunInfo]:
        """As `RunStore.interrupted`."""
        return [info for info in self._infos("number", "running", None) if info.interrupted and not info.is_inside]

    def steps(
        self,
        run_id: str,
        /,
        *,
        after: int = 0,
        until: int | None = None,
        kinds: Collection[StepKind] | None = None,
        seqs: Collection[int] | None = None,
    ) -> Iterator[Step]:
        """As `RunStore.steps`."""
        wanted = "" if kinds is None else f" AND kind IN ({', '.join(f':kind{n}' for n in range(len(kinds)))})"
        named = {f"kind{number}": kind for number, kind in enumerate(kinds or ())}
        if seqs is not None:
            yield from self._chosen_steps(run_id, [seq for seq in sorted(seqs) if after < seq], until, wanted, named)
            return
        statement = (
            f"SELECT {STEP} FROM wink_steps WHERE run_id = :run_id AND seq > :after "
            f"AND (CAST(:until AS BIGINT) IS NULL OR seq <= :until){wanted} ORDER BY seq LIMIT {_PAGE}"
        )
        while True:
            values = {"run_id": run_id, "after": after, "until": until, **named}
            rows = self._read(lambda transaction, values=values: transaction.rows(statement, **values))
            yield from map(self._step, rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def _chosen_steps(
        self, run_id: str, seqs: Sequence[int], until: int | None, wanted: str, named: Mapping[str, object]
    ) -> Iterator[Step]:
        """Without a range in the query: the database would read all of it."""
        for start in range(0, len(seqs), _CHOSEN):
            chosen = seqs[start : start + _CHOSEN]
            size = 1 << (len(chosen) - 1).bit_length()  # of few lengths, since statements are kept
            numbers = {f"seq{n}": chosen[min(n, len(chosen) - 1)] for n in range(size)}
            statement = (
                f"SELECT {STEP} FROM wink_steps WHERE run_id = :run_id "
                f"AND seq IN ({', '.join(f':{name}' for name in numbers)}){wanted} ORDER BY seq"
            )
            values = {"run_id": run_id, **named, **numbers}
            rows = self._read(lambda transaction, of=statement, values=values: transaction.rows(of, **values))
            yield from (self._step(row) for row in rows if until is None or row[0] <= until)

    def _step(self, row: Sequence[Any]) -> Step:
        step = step_of(row)
        body = self._form.body(step.body)
        return step if body is step.body else replace(step, body=body)

    def files(
        self, run_id: str, /, *, until: int | None = None, path: str | None = None, last: bool = False
    ) -> Sequence[FileStep]:
        """As `RunStore.files`."""
        statement, stored = LAST_FILES if last else FILES, stored_text(path)
        rows = self._read(lambda transaction: transaction.rows(statement, run_id=run_id, until=until, path=stored))
        return [
            FileStep(plain_text(path), seq, self._plain(before), self._plain(after))
            for path, seq, before, after in rows
        ]

    def frames(self, run_id: str, /, *, until: int) -> Sequence[FrameStep]:
        """As `RunStore.frames`."""
        frames = self._read(lambda transaction: list(frames_until(transaction, run_id, until)))
        return [FrameStep(plain_text(name), seq, self._plain(blob)) for name, seq, blob in frames]

    def _plain(self, stored: str | None) -> str | None:
        return None if stored is None else self._form.reference(stored)

    def blob(self, digest: str, /) -> bytes:
        """As `RunStore.blob`."""
        return self._content(self._form.name(digest))

    def _content(self, name: str) -> bytes:
        """The content with that name in the table, which is not its digest in a sealed store."""
        statement = "SELECT data, size FROM wink_blobs WHERE hash = :hash"
        rows = self._read(lambda transaction: transaction.rows(statement, hash=name))
        damaged = RecordError(f"The content {name} of the record is damaged. Restore the store from a backup.")
        try:
            stored = None if not rows else bytes(rows[0][0])
            if not stored and rows and rows[0][1] > 0:
                stored = self._from_elsewhere(name)
        except TypeError:  # SQLite keeps any value in any column
            raise damaged from None
        if stored is None:
            raise RecordError(f"The record lacks the content {name}. Was it pruned?")
        content = self._form.content(stored)
        if self._form.name(digest_of(content)) != name:
            raise damaged
        return content

    def _find(self, run_id: str) -> tuple[RunInfo, int] | None:
        statement = f"SELECT number, {self._HAS_LEASE}, {RUN} FROM wink_runs WHERE run_id = :run_id"
        rows = self._read(lambda transaction: transaction.rows(statement, run_id=run_id))
        return self._seen(rows[0]) if rows else None

    def _infos(self, order: str, status: RunStatus | None, limit: int | None) -> list[RunInfo]:
        statement = (
            f"SELECT number, {self._HAS_LEASE}, {RUN} FROM wink_runs "
            "WHERE CAST(:status AS TEXT) IS NULL OR status = :status "
            f"ORDER BY {order}{'' if limit is None else f' LIMIT {int(limit)}'}"
        )
        rows = self._read(lambda transaction: transaction.rows(statement, status=status))
        return [self._seen(row)[0] for row in rows]

    def _seen(self, row: Sequence[Any]) -> tuple[RunInfo, int]:
        number, has_lease, *values = row
        info = self._form.info(info_of(values))
        if info.status in OVER or not self._is_alive(number, has_lease=bool(has_lease)):
            return info, number
        return replace(info, alive=True), number


class _Held:
    """See `HeldRun`."""

    def __init__(self, store: SqlRunStore, info: RunInfo, number: int, *, is_new: bool) -> None:
        self._store = store
        self._number = number
        self._is_released = info.status in OVER
        self.info: RunInfo = info
        self.is_new: bool = is_new

    def append(self, rows: NewRows, /) -> None:
        """As `HeldRun.append`."""
        self._store.append(self.info, rows)

    def release(self) -> None:
        """As `HeldRun.release`."""
        if not self._is_released:
            self._is_released = True
            self._store._let_go(self.info, self._number)  # pyright: ignore[reportPrivateUsage]


def _checked(digest: str, content: Content) -> Content:
    """Content that is sure to have its digest when it has been read; `RecordError` for a file that was changed."""
    if isinstance(content, bytes):
        return content

    def read() -> Iterator[bytes]:
        made = blake2b(digest_size=20)
        try:
            for piece in content.pieces():
                made.update(piece)
                yield piece
        except OSError as error:
            raise RecordError(f"A large file cannot be read to be recorded: {error.strerror or error}.") from error
        if made.hexdigest() != digest:
            raise RecordError("A large file was changed by another program while it was recorded.")

    return LargeFile(content.mode, content.size, read)


def check_id(run_id: str) -> None:
    """Refuse what cannot be the id of a run: `TypeError`, or `ValueError`."""
    if not isinstance(run_id, str):
        raise TypeError(f"A run id is a str, got {type(cast('object', run_id)).__name__}.")
    if not run_id or len(run_id) > _MAX_ID or not run_id.isprintable():
        raise ValueError(f"A run id has 1 to {_MAX_ID} printable characters, got {run_id[:50]!r}.")


__all__ = ["MAX_FILE", "SqlRunStore", "check_id"]
