"""`wink prune` and `wink verify` on a real store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from weakincentives.cli import main
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import NewRows, NewRun, RunStatus, Step
from weakincentives.runtime.record.rows import digest_of
from weakincentives.testing import FakeClock

from ..record.sealing import SEAL


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with an old run, an old one that was interrupted, and a new one."""
    made = str(tmp_path / "runs.db")
    clock = FakeClock()
    text = b"kept beside the row"
    ends: list[tuple[str, RunStatus | None]] = [("old", "done"), ("left", None)]
    for run_id, status in ends:
        with SqliteRunStore(made, clock=clock) as store:
            held = store.take(run_id, NewRun("Desk", "s"))
            body = {"text": {"blob": digest_of(text)}}
            held.append(NewRows([Step(seq=1, kind="begin", body=body)], blobs={digest_of(text): text}, status=status))
            held.release()
    with SqliteRunStore(made) as store:
        held = store.take("new", NewRun("Desk", "s"))
        held.append(NewRows([Step(seq=1, kind="begin")], status="done"))
        held.release()
    return made


def runs(path: str) -> set[str]:
    with SqliteRunStore(path) as store:
        return {info.run_id for info in store.infos()}


def test_old_runs_are_removed(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """First only told, then removed; interrupted ones only when that is asked for."""
    assert main(["prune", path, "--older-than", "30d", "--dry-run"]) == 0
    assert capsys.readouterr().out == "old  Desk\n1 run would be removed.\n"
    assert runs(path) == {"old", "left", "new"}
    assert main(["prune", path, "--older-than", "30d"]) == 0
    assert capsys.readouterr().out == "old  Desk\nRemoved 1 run.\n"
    assert main(["prune", path, "--older-than", "4w", "--interrupted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": ["left"], "dry_run": False}
    assert runs(path) == {"new"}


@pytest.mark.parametrize("age", ["30", "d", "1.5d", "-1d", "30 days"])
def test_an_age_that_is_none_is_a_mistake(path: str, age: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says how it is written."""
    assert main(["prune", path, f"--older-than={age}"]) == 2
    assert "such as 30d" in capsys.readouterr().err
    assert runs(path) == {"old", "left", "new"}


def test_a_sound_store_is_told(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of its runs."""
    assert main(["verify", path]) == 0
    assert capsys.readouterr().out == "3 runs, nothing wrong.\n"


def test_damage_is_told_and_is_a_failure(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each problem on a line."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE wink_blobs SET data = ?", (b"something else",))
    assert main(["verify", path]) == 1
    out = capsys.readouterr().out
    assert "damaged" in out
    assert out.endswith("3 runs, 1 problem.\n")
    assert main(["verify", path, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


@pytest.mark.parametrize("command", [["verify"], ["prune", "--older-than", "1d"]])
def test_a_store_that_is_not_there_is_not_made(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says that it was used wrongly."""
    missing = tmp_path / "none.db"
    assert main([command[0], str(missing), *command[1:]]) == 2
    assert "none.db" in capsys.readouterr().err
    assert not missing.exists()


@pytest.fixture
def sealed(tmp_path: Path) -> str:
    """A sealed store with one run, and the program that has its seal."""
    program = (Path(__file__).parents[1] / "record" / "sealing.py").read_text()
    (tmp_path / "keys.py").write_text(program)
    made = str(tmp_path / "sealed.db")
    with SqliteRunStore(made, seal=SEAL) as store:
        held = store.take("r", NewRun("Desk", "s", '{"ticket": 1}', "digest"))
        body: dict[str, object] = {"text": "said in secret", "calls": []}
        held.append(NewRows([Step(seq=1, kind="begin"), Step(seq=2, kind="turn", body=body)], status="done"))
        held.release()
    return made


def test_a_sealed_store_is_opened_with_the_seal_that_is_named(sealed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By every command that looks at a store; without it, the message says so."""
    seal = ["--seal", f"{Path(sealed).parent / 'keys.py'}:SEAL"]
    assert main(["show", sealed, "r"]) == 1
    assert "--seal" in capsys.readouterr().err
    assert main(["show", sealed, "r", *seal]) == 0
    assert "said in secret" in capsys.readouterr().out
    assert main(["runs", sealed, "--json", *seal]) == 0
    assert json.loads(capsys.readouterr().out)["request"] == {"ticket": 1}
    assert main(["diff", sealed, "r", "1", "2", *seal]) == 0
    assert main(["fork", sealed, "r", "1", *seal]) == 0
    assert main(["verify", sealed, *seal]) == 0
    capsys.readouterr()
    exported = str(Path(sealed).with_name("r.wink"))
    assert main(["export", sealed, "r", "-o", exported, *seal]) == 0
    assert "The file is not sealed" in capsys.readouterr().out
    assert main(["show", exported, "r"]) == 0
    assert "said in secret" in capsys.readouterr().out
    assert main(["prune", sealed, "--older-than", "0s", *seal]) == 0


@pytest.mark.parametrize("name", ["keys.py", "keys.py:HmacSeal", "keys.py:os", "keys.py:NOTHING", "no.py:SEAL"])
def test_what_is_not_a_seal_is_a_mistake(sealed: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what is missing."""
    assert main(["show", sealed, "r", "--seal", str(Path(sealed).parent / name)]) == 2
    assert capsys.readouterr().err
