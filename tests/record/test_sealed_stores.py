"""Stores with a seal: the same contract, and nothing that was said can be read in them without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, Session
from weakincentives.errors import RecordError, RunConflictError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import MainLoopConfig, PostgresRunStore, SqliteRunStore
from weakincentives.runtime.record import FileStep, NewRows, NewRun, Seal, Step, export_run
from weakincentives.runtime.record.rows import FrameStep, digest_of
from weakincentives.runtime.record.sql import SqlRunStore
from weakincentives.testing import RunStoreContract, ScriptedAdapter, call, say

from .sealing import SEAL, HmacSeal

NEW = NewRun("Desk", "a session")
LARGE = b"secret-in-a-large-file " * 50_000


class TestSealedSqliteRunStore(RunStoreContract):
    """The contract, on a sealed file."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    def make_store(self) -> SqliteRunStore:
        return SqliteRunStore(self.path, seal=SEAL)


class TestSealedPostgresRunStore(RunStoreContract):
    """The contract, on a server that cannot read what it keeps."""

    @pytest.fixture(autouse=True)
    def _place(self, postgres: str) -> None:
        self.dsn = postgres

    def make_store(self) -> PostgresRunStore:
        return PostgresRunStore(self.dsn, seal=SEAL)


Open = Callable[..., SqlRunStore]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store again and again."""
    if request.param == "sqlite":
        return partial(SqliteRunStore, tmp_path / "runs.db")
    return partial(PostgresRunStore, request.getfixturevalue("postgres"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@dataclass(frozen=True)
class Ticket:
    text: str


@dataclass(frozen=True)
class Write:
    path: str
    content: str


def write(params: Write, *, context: ToolContext) -> ToolResult[Write]:
    context.session[Write].append(params)
    context.session.note("seen", params.content)
    assert context.filesystem is not None
    context.filesystem.write(params.path, params.content)
    return ToolResult.ok(params, message=f"Wrote secret-in-reply {params.content}")


class Desk(MainLoop[Ticket, str]):
    def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
        tool = Tool[Write, Write](name="write", description="Write a file.", handler=write)
        task = MarkdownSection(title="Task", template=f"secret-in-prompt {request.text}", tools=[tool])
        files = ResourceRegistry.build({Filesystem: InMemoryFilesystem()})
        return Prompt(name="desk", sections=[task]).bind(resources=files), Session(bus=self.bus)


SCRIPT = (
    call("write", path="a.txt", content="secret-in-arguments"),
    call("write", path="big.txt", content=LARGE.decode()),
    say("secret-in-answer"),
)


def stored(path: Path) -> Iterator[bytes]:
    """All bytes that belong to a store."""
    for file in path.parent.rglob("*"):
        if file.is_file():
            yield file.read_bytes()


@pytest.mark.slow
def test_nothing_that_was_said_or_written_stands_in_a_sealed_store(path: Path) -> None:
    """A run with everything in it: request, prompt, arguments, replies, state, notes, files; nor digests."""
    with SqliteRunStore(path, seal=SEAL) as store:
        desk = Desk(ScriptedAdapter(*SCRIPT), config=MainLoopConfig(runs=store))
        desk.execute(Ticket("secret-in-request"), run_id="r")
        run = store.open("r", types=[Write])
        assert run.info.request is not None
        assert "secret-in-request" in run.info.request
        last = run.steps()[-1].seq
        assert run.state_at(last)[Write].all()[0].content == "secret-in-arguments"
        assert run.files_at(last).read("a.txt") == "secret-in-arguments"
        assert run.files_at(last).read_bytes("big.txt") == LARGE
        digests = {node.rpartition(":")[2] for file in store.files("r") for node in (file.before, file.after) if node}
        assert digest_of(LARGE) in digests
        assert store.verify() == []
        readable = b"\0".join(stored(path))
        assert b"secret-in" not in readable
        for digest in {*digests, run.info.request_digest}:
            assert digest.encode() not in readable
        for known in (b"Desk", b"write", b"succeeded", b"a.txt", b"big.txt"):
            assert known in readable  # what the documentation says
        again, _ = desk.execute(Ticket("secret-in-request"), run_id="r")
        assert again.text == "secret-in-answer"
        with pytest.raises(RunConflictError):
            desk.execute(Ticket("another"), run_id="r")


def test_an_unsealed_store_shows_what_the_test_looks_for(path: Path) -> None:
    """Or the test above would prove nothing."""
    with SqliteRunStore(path) as store:
        Desk(ScriptedAdapter(*SCRIPT), config=MainLoopConfig(runs=store)).execute(Ticket("secret-in-request"))
        readable = b"\0".join(stored(path))
    for place in ("request", "prompt", "arguments", "reply", "answer", "a-large"):
        assert f"secret-in-{place}".encode() in readable
    assert digest_of(LARGE).encode() in readable


class Careless:
    """A seal that opens anything, and gives nonsense."""

    def seal(self, content: bytes, /) -> bytes:
        return content[::-1]

    def open(self, sealed: bytes, /) -> bytes:
        return sealed[::-1]


@pytest.mark.parametrize("wrong", [None, HmacSeal(b"another key"), Careless()])
def test_a_sealed_store_opens_with_its_seal_alone(open_store: Open, wrong: Seal | None) -> None:
    """Before anything is written; the error names the fix."""
    with open_store(seal=SEAL) as store:
        store.take("r", NEW).append(NewRows([Step(seq=1, kind="begin", body={"text": "said"})]))
    with pytest.raises(RecordError, match="seal="):
        open_store(seal=wrong)
    with open_store(seal=SEAL) as store:
        assert [step.body for step in store.steps("r")] == [{"text": "said"}]


def test_a_store_without_a_seal_is_not_sealed_later(open_store: Open) -> None:
    """Half of it would be readable, against what the program was told."""
    open_store().close()
    with pytest.raises(RecordError, match="made without a seal"):
        open_store(seal=SEAL)
    with open_store() as store:
        store.take("r", NEW).release()
        assert store.verify() == []


def test_a_store_from_before_the_seals_is_one_without(path: Path, postgres: str) -> None:
    """It gets the table that it lacks."""
    SqliteRunStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE wink_meta")
    import psycopg

    PostgresRunStore(postgres).close()
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("DROP TABLE wink_meta")
    makers: list[Open] = [partial(SqliteRunStore, path), partial(PostgresRunStore, postgres)]
    for make in makers:
        with pytest.raises(RecordError, match="made without a seal"):
            make(seal=SEAL)
        with make() as store:
            store.take("r", NEW).release()
            assert store.verify() == []


def test_the_same_content_is_kept_once(open_store: Open) -> None:
    """Its name is made of the content and a key of the store, so another store has another name for it."""
    with open_store(seal=SEAL) as store:
        name = digest_of(b"content")
        held = store.take("r", NEW)
        for seq in (1, 2):
            held.append(NewRows([Step(seq=seq, kind="turn")], [FileStep("a", seq, None, f"file:644:{name}")],
                                {name: b"content"}))  # fmt: skip
        rows = store._read(lambda transaction: transaction.rows("SELECT hash FROM wink_blobs"))
        assert len(rows) == 1
        assert rows[0][0] not in (name, HmacSeal(b"x").seal(b""))
        assert store.blob(name) == b"content"


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        ('UPDATE wink_steps SET body = \'{"text":"forged"}\' WHERE seq = 2', "step 2"),
        ('UPDATE wink_steps SET body = \'{"sealed":"AAAA"}\' WHERE seq = 2', "step 2"),
        ("UPDATE wink_steps SET body = '{\"sealed\":7}' WHERE seq = 2", "step 2"),
        ("UPDATE wink_blobs SET data = X'00'", "step 2, a"),
        ("UPDATE wink_blobs SET data = X'0000000141'", "step 2, a"),
        ("DELETE FROM wink_blobs", "step 2, a"),
        ("UPDATE wink_files SET after = 'file:644:' || (SELECT hash FROM wink_blobs)", "step 2, a"),
    ],
)
def test_what_was_changed_in_a_sealed_store_is_noticed(path: Path, damage: str, where: str) -> None:
    """When it is read, and by `verify`: what is not sealed was not written by the program."""
    with SqliteRunStore(path, seal=SEAL) as store:
        name = digest_of(b"content")
        held = store.take("r", NEW)
        node = f"file:644:{name}"
        steps = [Step(seq=1, kind="begin"), Step(seq=2, kind="turn", body={"text": "said"})]
        held.append(NewRows(steps, [FileStep("a", 2, None, node)], {name: b"content"}))
        assert store.verify() == []
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(damage)
        problems = store.verify()
        assert [problem.split(":")[0] for problem in problems] == [f"Run 'r', {where}"], problems

        def read() -> Any:
            return list(store.steps("r")), store.files("r"), store.blob(name)

        with pytest.raises(RecordError):
            read()


class Failing:
    """A seal whose service is down now and then."""

    def __init__(self) -> None:
        self.is_down = False

    def seal(self, content: bytes, /) -> bytes:
        if self.is_down:
            raise ConnectionError("no route")
        return SEAL.seal(content)

    def open(self, sealed: bytes, /) -> bytes:
        return SEAL.open(sealed)


def test_a_seal_that_fails_undoes_the_call(path: Path) -> None:
    """As any record that cannot be written; nothing of it is there."""
    seal = Failing()
    with SqliteRunStore(path, seal=seal) as store:
        held = store.take("r", NEW)
        seal.is_down = True
        with pytest.raises(RecordError, match="ConnectionError"):
            held.append(NewRows([Step(seq=1, kind="begin")]))
        seal.is_down = False
        assert list(store.steps("r")) == []
        held.append(NewRows([Step(seq=1, kind="begin")]))
        held.release()


def test_pruning_finds_what_sealed_bodies_refer_to(open_store: Open) -> None:
    """Content of removed runs goes, and what is used in a body, a file or a frame stays."""
    names = {text: digest_of(text.encode()) for text in ("body", "file", "frame", "gone")}
    with open_store(seal=SEAL) as store:
        held = store.take("kept", NEW)
        held.append(NewRows(
            [Step(seq=1, kind="begin", body={"text": {"blob": names["body"]}})],
            [FileStep("a", 1, None, f"file:644:{names['file']}")],
            {names[text]: text.encode() for text in ("body", "file", "frame")},
            frames=[FrameStep("s", 1, names["frame"])],
        ))  # fmt: skip
        other = store.take("old", NEW)
        body = {"text": {"blob": names["gone"]}}
        other.append(NewRows([Step(seq=1, kind="end", body=body)], blobs={names["gone"]: b"gone"}, status="done"))
        other.release()
        assert [info.run_id for info in store.prune(timedelta(0))] == ["old"]
        assert [store.blob(names[text]) for text in ("body", "file", "frame")] == [b"body", b"file", b"frame"]
        with pytest.raises(RecordError, match="lacks"):
            store.blob(names["gone"])
        assert store.verify() == []
        held.release()


@pytest.mark.slow
def test_an_exported_run_is_not_sealed_unless_it_gets_a_seal(path: Path) -> None:
    """The file is for somebody else, who does not have the key: masked, or sealed for them."""
    with SqliteRunStore(path, seal=SEAL) as store:
        desk = Desk(ScriptedAdapter(*SCRIPT), config=MainLoopConfig(runs=store))
        desk.execute(Ticket("secret-in-request"), run_id="r")
        plain = export_run(store, "r", path.with_name("plain.wink"))
        theirs = HmacSeal(b"their key")
        sealed = export_run(store, "r", path.with_name("sealed.wink"), seal=theirs)
        assert b"secret-in-answer" in plain.read_bytes()
        assert b"secret-in" not in sealed.read_bytes()
        with SqliteRunStore(plain) as one, SqliteRunStore(sealed, seal=theirs) as other:
            assert one.verify() == other.verify() == []
            assert list(one.steps("r")) == list(other.steps("r"))
            assert one.files("r") == other.files("r") == store.files("r")
            info = other.info("r")
            assert info is not None
            assert dict(info.tags) == {"wink.masked": "0"}
