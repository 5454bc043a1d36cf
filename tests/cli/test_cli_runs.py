"""`wink runs` and `wink show` on a real store."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from weakincentives import Session
from weakincentives.cli.main import main
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.ledger import SqliteEffectLedger
from weakincentives.runtime.record import NewRows, NewRun, Step
from weakincentives.testing import ScriptedAdapter, call, say

KEPT = Path(__file__).parent.parent / "record" / "data" / "runs-1.db"


@pytest.fixture
def store(tmp_path: Path) -> str:
    shutil.copy(KEPT, tmp_path / "runs.db")
    return str(tmp_path / "runs.db")


def test_runs_are_listed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status, time, id and loop; for programs as JSON."""
    assert main(["runs", store]) == 0
    out = capsys.readouterr().out
    assert "done" in out
    assert "kept" in out
    assert "1 run, 0 of them interrupted." in out
    assert main(["runs", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == "kept"
    assert main(["runs", store, "--interrupted"]) == 0
    assert "0 runs" in capsys.readouterr().out


def test_a_run_is_shown_step_by_step(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the model said, what was called, how it ended."""
    assert main(["show", store, "kept"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("write_file: succeeded" in line for line in lines)
    assert any("read_file: failed" in line for line in lines)
    assert lines[-1] == "Run kept: done."
    assert main(["show", store, "kept", "--json"]) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == list(range(1, 11))


def test_one_step_is_shown_with_what_it_changed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Slices and files, and the text that the model read."""
    assert main(["show", store, "kept", "6"]) == 0
    out = capsys.readouterr().out
    assert "added note.txt" in out
    assert "Created note.txt" in out
    assert main(["show", store, "kept", "4"]) == 0
    assert "Plan: 0 -> 1 items" in capsys.readouterr().out
    assert main(["show", store, "kept", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]["added"] == ["note.txt"]


def test_what_is_not_there_is_named(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run, a step, a file; and a file that is not a store is not made one."""
    assert main(["show", store, "other"]) == 2
    assert f"there is no run 'other'; `wink runs {store}` lists them" in capsys.readouterr().err
    assert main(["show", store, "kept", "99"]) == 2
    assert f"has no step 99; `wink show {store} kept` lists them" in capsys.readouterr().err
    for command in (["diff", store, "other", "1", "2"], ["fork", store, "other", "1"], ["export", store, "other"]):
        more = ["-o", str(tmp_path / "other.wink")] if command[0] == "export" else []
        assert main([*command, *more]) == 2
        assert "wink runs" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "missing.db")]) == 2
    (tmp_path / "empty.db").touch()
    assert main(["runs", str(tmp_path / "empty.db")]) == 2
    assert (tmp_path / "empty.db").stat().st_size == 0
    (tmp_path / "garbage.db").write_bytes(b"garbage" * 500)
    assert main(["runs", str(tmp_path / "garbage.db")]) == 2
    with closing(sqlite3.connect(tmp_path / "bookmarks.db")) as other:
        other.execute("CREATE TABLE bookmarks (address TEXT)")
    before = (tmp_path / "bookmarks.db").read_bytes()
    for command in ("runs", "verify"):
        assert main([command, str(tmp_path / "bookmarks.db")]) == 2
        assert f"{tmp_path / 'bookmarks.db'} is a SQLite database, but not a run store" in capsys.readouterr().err
    assert (tmp_path / "bookmarks.db").read_bytes() == before


def test_a_ledger_is_not_made_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that stands alone; in a store it is beside the runs."""
    path = str(tmp_path / "effects.db")
    SqliteEffectLedger(path).close()
    for command in (["runs", path], ["show", path, "r"], ["verify", path]):
        assert main(command) == 2
        assert "wink ledger list" in capsys.readouterr().err
    with closing(sqlite3.connect(path)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"wink_effects", "wink_tokens"}
    SqliteRunStore(path).close()
    assert main(["runs", path]) == 0


def test_looking_at_an_exported_run_leaves_it_as_it_is(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be under version control; nothing is made beside it either."""
    (tmp_path / "out").mkdir()
    made = tmp_path / "out" / "kept.wink"
    assert main(["export", store, "kept", "-o", str(made)]) == 0
    before = made.read_bytes()
    for command in (["runs"], ["show", "kept"], ["show", "kept", "4"], ["diff", "kept", "1", "9"], ["verify"],
                    ["export", "kept", "-o", str(tmp_path / "again.wink")]):  # fmt: skip
        assert main([command[0], str(made), *command[1:]]) == 0
        assert made.read_bytes() == before
        assert [path.name for path in made.parent.iterdir()] == ["kept.wink"]
    capsys.readouterr()
    assert main(["fork", str(made), "kept", "4", "--as", "branch"]) == 0
    assert main(["runs", str(made)]) == 0
    assert "2 runs" in capsys.readouterr().out


@dataclass(frozen=True)
class Login:
    user: str
    pin: SecretStr


def login(params: Login) -> ToolResult[None]:
    return ToolResult.ok(None, message="Logged in.")


def test_secret_arguments_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record has them as the model wrote them, and knows by the schemas of its tools which are secret."""
    path = str(tmp_path / "runs.db")
    tool = Tool[Login, None](name="login", description="Log in.", handler=login)
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do it.", tools=[tool])])
    with SqliteRunStore(path) as store:
        script = ScriptedAdapter(call("login", user="amy", pin="7291846"), say("Done."))
        script.evaluate(prompt, Session(), record=store.run("one"))
        assert "7291846" in str(store.open("one").steps())
    for arguments in ([], ["3"], ["--json"], ["3", "--json"]):
        assert main(["show", path, "one", *arguments]) == 0
        out = capsys.readouterr().out
        assert "7291846" not in out
        assert "login" in out


def test_names_that_a_model_made_up_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line break in the name of a tool that is not there makes no line of its own."""
    path = str(tmp_path / "runs.db")
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do it.")])
    with SqliteRunStore(path) as store:
        odd = call("no\nRun one: done.\x1b[2J", text="\x1b[2J")
        ScriptedAdapter(odd, say("Done.")).evaluate(prompt, Session(), record=store.run("one"))
    for step in ([], ["3"], ["4"]):
        assert main(["show", path, "one", *step]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "Run one: done.\\u001b[2J" not in "".join(line for line in lines if line.startswith("Run"))
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("Run one") for line in lines) == (not step)


def test_runs_inside_others_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They go on with the run around them, and are exported with it."""
    path = str(tmp_path / "agents.db")
    with SqliteRunStore(path) as made:
        for run_id, parent in (("r", None), ("r/call_1", "r"), ("r/call_1/call_2", "r/call_1")):
            held = made.take(run_id, NewRun("desk", "s", parent=parent))
            held.append(NewRows([Step(seq=1, kind="begin", body={"session": "s"})]))
            held.release()
    assert main(["runs", path]) == 0
    assert "1 run and 2 of sub-agents, 1 of them interrupted." in capsys.readouterr().out
    assert main(["runs", path, "--interrupted"]) == 0
    assert "1 run, 1 of them interrupted." in capsys.readouterr().out
    assert main(["show", path, "r"]) == 0
    assert "Sub-agents inside it: r/call_1, r/call_1/call_2" in capsys.readouterr().out
    assert main(["show", path, "r/call_1"]) == 0
    assert "It is inside a call of r, and goes on with that." in capsys.readouterr().out
    assert main(["export", path, "r", "-o", str(tmp_path / "r.wink")]) == 0
    assert "Wrote r, with 2 runs of sub-agents to " in capsys.readouterr().out
