"""One run as one file: whole or not there, for its owner's eyes, and masked."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from weakincentives import Session
from weakincentives.contrib.tools import VfsToolsSection
from weakincentives.errors import RecordError
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import FileStep, NewRows, NewRun, Step, compare, export_run
from weakincentives.runtime.record.rows import digest_of
from weakincentives.runtime.record.secret_arguments import SecretArguments
from weakincentives.testing import ScriptedAdapter, call, say

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@dataclass(frozen=True)
class Login:
    user: str
    pin: SecretStr


@dataclass(frozen=True)
class Seen:
    text: str


def login(params: Login, *, context: ToolContext) -> ToolResult[str]:
    context.session[Seen].append(Seen(f"token {TOKEN}"))
    context.session.note(f"seen {TOKEN}", TOKEN)
    return ToolResult.ok("in", message=f"Used {TOKEN}.")


LOGIN = Tool[Login, str](
    name="login", description="Log in.", handler=login, annotations=ToolAnnotations(open_world=False)
)


def record(store: SqliteRunStore, run_id: str, *turns: Any) -> None:
    session = Session()
    task = MarkdownSection(title="Task", template="Do it.", tools=[LOGIN])
    prompt = Prompt(name="agent", sections=[task, VfsToolsSection(session=session)])
    script = turns or (
        call("login", user="amy", pin="7291-x-4410"),
        call("write_file", path="secret.txt", content=f"key {TOKEN}"),
        say("Done." + "." * 20_000),
    )
    ScriptedAdapter(*script).evaluate(prompt, session, record=store.run(run_id, types=[Seen]))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db") as store:
        record(store, "one")
        record(store, "two", call("write_file", path="other.txt", content="only in two"), say("Two."))
        yield store


def test_a_file_has_exactly_one_run(store: SqliteRunStore, tmp_path: Path) -> None:
    """With its rows, files and content, and nothing of another run; there is no other file beside it."""
    folder = tmp_path / "out"
    folder.mkdir()
    made = export_run(store, "one", folder / "one.wink", masked=False)
    assert [path.name for path in folder.iterdir()] == ["one.wink"]
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert b"only in two" not in made.read_bytes()
    with SqliteRunStore(made) as copy:
        assert [info.run_id for info in copy.infos()] == ["one"]
        ours, theirs = store.open("one", types=[Seen]), copy.open("one", types=[Seen])
        assert ours.steps() == theirs.steps()
        last = ours.steps()[-1].seq
        assert theirs.files_at(last).read("secret.txt") == f"key {TOKEN}"
        assert theirs.state_at(last)[Seen].all() == ours.state_at(last)[Seen].all()
        assert (theirs.info.status, theirs.info.created, theirs.info.owner) == ("done", ours.info.created, "")
        assert compare(ours, theirs).parted is None


def test_what_leaves_is_masked(store: SqliteRunStore, tmp_path: Path) -> None:
    """Arguments, replies, results, state and files; a secret field is masked by its type where the tool is given."""
    made = export_run(store, "one", tmp_path / "one.wink", tools=[LOGIN])
    content = made.read_bytes()
    assert TOKEN.encode() not in content
    assert b"7291-x-4410" not in content
    with SqliteRunStore(made) as copy:
        run = copy.open("one", types=[Seen])
        last = run.steps()[-1].seq
        assert run.files_at(last).read("secret.txt") == "key [masked]"
        assert run.state_at(last)[Seen].all() == [Seen("token [masked]")]
        turn = next(step for step in run.steps() if step.kind == "turn")
        assert json.loads(turn.body["calls"][0][2]) == {"user": "amy", "pin": "[masked]"}
        assert int(run.info.tags["wink.masked"]) > 0
        assert run.text(run.steps()[-1].body["text"]).startswith("Done.")


def test_the_record_says_which_arguments_are_secret(store: SqliteRunStore, tmp_path: Path) -> None:
    """It has the schemas of its tools, so no program is needed; also in what the provider sent beside the calls."""
    assert b"7291-x-4410" not in export_run(store, "one", tmp_path / "one.wink").read_bytes()
    turn = next(step for step in store.open("one").steps() if step.kind == "turn")
    arguments = {"user": "amy", "pin": "7291-x-4410"}
    native = [
        {"type": "function_call", "name": "login", "arguments": json.dumps(arguments)},
        {"content": [{"type": "tool_use", "name": "login", "input": arguments}]},
        {"type": "reasoning", "name": "other", "arguments": "kept"},
    ]
    begin = store.open("one").steps()[0]
    held = store.take("sent", NewRun("agent", "s"))
    schemas = store.open("one").text(begin.body["schemas"])
    held.append(NewRows([
        Step(seq=1, kind="begin", body={"schemas": schemas}),
        Step(seq=2, kind="turn", turn=1, body={**turn.body, "native": native}),
    ], status="done"))  # fmt: skip
    held.release()
    made = export_run(store, "sent", tmp_path / "sent.wink")
    assert b"7291-x-4410" not in made.read_bytes()
    with SqliteRunStore(made) as copy:
        first, second, third = copy.open("sent").step(2).body["native"]
    assert json.loads(first["arguments"]) == {"user": "amy", "pin": "[masked]"}
    assert second["content"][0]["input"] == {"user": "amy", "pin": "[masked]"}
    assert third == native[2]


def test_a_schema_that_cannot_be_read_hides_all_arguments(store: SqliteRunStore, tmp_path: Path) -> None:
    """A record that another program wrote: what is secret cannot be told, so everything may be."""
    turn = next(step for step in store.open("one").steps() if step.kind == "turn")
    for number, schema in enumerate(({"$ref": "#/$defs/gone"}, "nothing", {"properties": 7})):
        held = store.take(f"odd-{number}", NewRun("agent", "s"))
        begin = Step(seq=1, kind="begin", body={"schemas": json.dumps({"login": {"params": schema}})})
        held.append(NewRows([begin, Step(seq=2, kind="turn", turn=1, body=turn.body)], status="done"))
        held.release()
        assert b"7291-x-4410" not in export_run(store, f"odd-{number}", tmp_path / f"{number}.wink").read_bytes()
    native = [{"name": "login", "input": {"pin": "7291-x-4410"}}]
    for number, schemas in enumerate(("[", "[]", '{"login": 7}', {"blob": "0" * 40}, {"other": 1})):
        held = store.take(f"damaged-{number}", NewRun("agent", "s"))
        begin = Step(seq=1, kind="begin", body={"schemas": schemas})
        said = Step(seq=2, kind="turn", turn=1, body={**turn.body, "native": native})
        held.append(NewRows([begin, said], status="done"))
        held.release()
        run = store.open(f"damaged-{number}")
        assert "7291-x-4410" not in str(SecretArguments(run).masked(run.step(2)))


@pytest.mark.parametrize("masked", [True, False])
def test_large_content_is_in_the_file_too(store: SqliteRunStore, tmp_path: Path, masked: bool) -> None:
    """A store keeps it in a directory beside its file; what is exported is one file."""
    large = "a line of a large file\n" * 100_000
    (tmp_path / "out").mkdir()
    held = store.take("written", NewRun("agent", "s"))
    name = digest_of(large.encode())
    file = FileStep("large.txt", 1, None, f"file:644:{name}")
    held.append(NewRows([Step(seq=1, kind="begin")], [file], {name: large.encode()}, status="done"))
    held.release()
    assert list(Path(f"{store.path}.blobs").rglob("*"))
    made = export_run(store, "written", tmp_path / "out" / "large.wink", masked=masked)
    assert [path.name for path in made.parent.iterdir()] == ["large.wink"]
    with SqliteRunStore(made) as copy:
        assert copy.open("written").files_at(1).read("large.txt") == large
        assert copy.verify() == []


def test_a_file_that_is_there_is_kept(store: SqliteRunStore, tmp_path: Path) -> None:
    """Unless it is to be replaced; a run that is not there leaves nothing behind."""
    target = tmp_path / "one.wink"
    target.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_run(store, "one", target)
    assert target.read_text() == "mine"
    export_run(store, "one", target, overwrite=True)
    with sqlite3.connect(target) as connection:
        assert connection.execute("SELECT run_id, status FROM wink_runs").fetchall() == [("one", "done")]
    connection.close()
    with pytest.raises(RecordError, match="no run 'three'"):
        export_run(store, "three", tmp_path / "three.wink")
    assert sorted(path.name for path in tmp_path.iterdir() if "wink" in path.name) == ["one.wink"]


def test_a_store_is_not_replaced(store: SqliteRunStore, tmp_path: Path) -> None:
    """Neither the one that the run is in, nor one that is open: its log would be taken for that of the new file."""
    with pytest.raises(RecordError, match="the store that the run is in"):
        export_run(store, "one", tmp_path / "runs.db", overwrite=True)
    with SqliteRunStore(tmp_path / "other.db") as other:
        record(other, "three", say("Three."))
        with pytest.raises(RecordError, match="is open"):
            export_run(store, "one", tmp_path / "other.db", overwrite=True)
        assert [info.run_id for info in other.infos()] == ["three"]
    assert {info.run_id for info in store.infos()} == {"one", "two"}


def test_two_runs_are_compared(store: SqliteRunStore) -> None:
    """Calls are aligned by tool and arguments, however the JSON is written; the first that differs is named."""
    record(store, "three", call("write_file", content="only in two", path="other.txt"),
           call("write_file", path="more.txt", content="more"), say("Two."))  # fmt: skip
    found = compare(store.open("two"), store.open("three"))
    assert [call.is_same for call in found.calls] == [True, False]
    assert found.parted is not None
    assert (found.parted.first, found.parted.tool) == (None, "write_file")
    assert found.same_answer
    assert "1 of 2 calls are the same" in str(found)
    assert not compare(store.open("one"), store.open("two")).same_answer


def test_long_runs_of_calls_that_are_alike_are_compared_quickly(store: SqliteRunStore) -> None:
    """A run that polled, and its fork: what both began with is not compared call by call with all others."""
    held = store.take("polling", NewRun("agent", "s"))
    calls = [Step(seq=n, kind="call", tool="poll", outcome="succeeded", body={"text": "Wait."}) for n in range(1, 8001)]
    held.append(NewRows(calls, status="done"))
    held.release()
    shorter = store.fork("polling", at=7000)
    began = time.process_time()
    found = compare(store.open("polling"), store.open(shorter))
    assert time.process_time() - began < 6  # 0.7 s; 9 s when all are compared with all
    assert found.parted is not None
    assert found.parted.first is not None
    assert (found.parted.first.seq, len(found.calls)) == (7001, 8000)


def test_what_two_runs_are_compared_by_is_masked(store: SqliteRunStore) -> None:
    """Secret fields and credentials do not stand in what is printed, nor does text that acts on a terminal."""
    name = f"no\x1b[2J\nsuch {TOKEN}"
    record(store, "odd", call("login", user="amy", pin="8302-x-5521"), call(name, text="\u202e"), say("Odd."))
    printed = str(compare(store.open("one"), store.open("odd")))
    assert printed.count('"pin": "[masked]"') == 2
    assert TOKEN not in printed
    assert len(printed.splitlines()) == 5
    assert all(line.isprintable() for line in printed.splitlines())
