"""`wink runs` and `wink show` on a real store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from weakincentives.cli.main import main

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
    assert main(["show", store, "other"]) == 1
    assert "There is no run 'other'" in capsys.readouterr().err
    assert main(["show", store, "kept", "99"]) == 1
    assert "has no step 99" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "missing.db")]) == 2
    (tmp_path / "empty.db").touch()
    assert main(["runs", str(tmp_path / "empty.db")]) == 2
    assert (tmp_path / "empty.db").stat().st_size == 0
