"""`wink ledger`: what operators do about calls in doubt."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from weakincentives.cli import main
from weakincentives.results import ToolResult
from weakincentives.runtime.ledger import Claimed, EffectId, Ledger, PostgresEffectLedger, Replay, SqliteEffectLedger

DOUBT = EffectId("session:refund:1", "s-1")


def claim(ledger: Ledger, effect_id: EffectId = DOUBT) -> object:
    return ledger.claim(effect_id, tool_name="refund", params_hash="h", lease=60.0, strict_params=False)


def fill(ledger: Ledger) -> None:
    found = claim(ledger)
    assert isinstance(found, Claimed)
    ledger.doubt(DOUBT, found.token, "the handler raised ConnectionError: dead")
    claim(ledger, EffectId("shop:refund:2"))
    ledger.record(idempotency_key="shop:refund:3", tool_name="refund", params=None, result=ToolResult.ok(7, "Paid."))


@pytest.fixture
def path(tmp_path: Path) -> str:
    with SqliteEffectLedger(tmp_path / "ledger.db") as ledger:
        fill(ledger)
    return str(tmp_path / "ledger.db")


def test_list_shows_what_is_there(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a call: state, time, key, and what is known; then what to do."""
    assert main(["ledger", "list", path]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("unknown    20")
    assert out[0].endswith("  session:refund:1@s-1  (the handler raised ConnectionError: dead)")
    assert "shop:refund:2  (lease: " in out[1]
    assert out[2].endswith("shop:refund:3  Paid.")
    assert out[3:] == [
        "3 calls, 1 unknown.",
        "Find out what happened, then: wink ledger resolve FILE KEY --done | --absent",
    ]


def test_list_can_be_narrowed_and_read_by_programs(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON, one object a line."""
    assert main(["ledger", "list", path, "--state", "succeeded", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert {"key": "shop:refund:3", "state": "succeeded", "value": 7, "message": "Paid."}.items() <= json.loads(
        line
    ).items()


def test_a_doubt_is_settled_as_done(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The next call is answered with it."""
    arguments = ["--done", "--message", "Paid by hand.", "--value", '{"id": 7}']
    assert main(["ledger", "resolve", path, "session:refund:1@s-1", *arguments]) == 0
    assert capsys.readouterr().out == "session:refund:1@s-1: recorded as done.\n"
    with SqliteEffectLedger(path) as ledger:
        found = claim(ledger)
    assert isinstance(found, Replay)
    assert (found.effect.result_message, found.effect.result_value) == ("Paid by hand.", {"id": 7})


def test_a_doubt_is_settled_as_absent(path: str) -> None:
    """The next call runs; the session may be left out where it is clear."""
    assert main(["ledger", "resolve", path, "session:refund:1", "--absent"]) == 0
    with SqliteEffectLedger(path) as ledger:
        assert isinstance(claim(ledger), Claimed)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing", "--absent"], 2, "there is no call nothing"),
        (["shop:refund:2", "--absent"], 1, "may still be running"),
        (["shop:refund:3", "--absent"], 1, "succeeded already"),
        (["session:refund:1", "--done", "--value", "{"], 2, "--value is not valid JSON"),
    ],
)
def test_what_cannot_be_settled_says_why(
    path: str, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is changed; the exit code is 2 where the command line is wrong, and 1 where the ledger says no."""
    assert main(["ledger", "resolve", path, *arguments]) == code
    assert message in capsys.readouterr().err
    with SqliteEffectLedger(path) as ledger:
        assert [entry.state for entry in ledger.entries()] == ["unknown", "started", "succeeded"]


def test_force_settles_a_running_call(path: str) -> None:
    """For an operator who knows that its process is gone."""
    assert main(["ledger", "resolve", path, "shop:refund:2", "--absent", "--force"]) == 0


def test_a_key_of_several_sessions_must_be_named(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Guessing would settle the wrong one."""
    with SqliteEffectLedger(path) as ledger:
        claim(ledger, EffectId(DOUBT.key, "s-2"))
    assert main(["ledger", "resolve", path, DOUBT.key, "--absent"]) == 2
    assert "name one: session:refund:1@s-1, session:refund:1@s-2" in capsys.readouterr().err


def test_a_missing_file_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A typo in the name would show an empty ledger."""
    assert main(["ledger", "list", str(tmp_path / "typo.db")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_have_an_equals_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only what begins with a name and `=` is a connection string."""
    folder = tmp_path / "run=7"
    folder.mkdir()
    with SqliteEffectLedger(folder / "ledger.db") as ledger:
        fill(ledger)
    assert main(["ledger", "list", str(folder / "ledger.db")]) == 0
    assert "unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, not an effect ledger"),
        (b"Dear diary, " * 99, "is not a SQLite database"),
        (None, "is a directory"),
    ],
)
def test_a_file_that_is_not_a_ledger_is_wrong_use(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a file that is not there; it stays as it is."""
    file = tmp_path / "other.db"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    for command in (["list", str(file)], ["resolve", str(file), "key", "--done"]):
        assert main(["ledger", *command]) == 2
        assert message in capsys.readouterr().err
    assert content is None or file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_a_database_of_another_program_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tables are not touched."""
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE users (id)")
        database.commit()
        assert main(["ledger", "list", str(file)]) == 2
        assert "is a SQLite database, but not an effect ledger" in capsys.readouterr().err
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("users",)]


def test_it_reads_postgresql_as_well(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A DSN in the place of the file."""
    with PostgresEffectLedger(postgres) as ledger:
        fill(ledger)
    assert main(["ledger", "resolve", postgres, DOUBT.text, "--absent"]) == 0
    assert main(["ledger", "list", postgres]) == 0
    assert "2 calls, 0 unknown." in capsys.readouterr().out
