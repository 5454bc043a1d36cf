"""`wink export` and `wink replay` on a real store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from weakincentives.cli.main import main

KEPT = Path(__file__).parent.parent / "record" / "data" / "runs-1.db"
AGENT = """
from weakincentives.contrib.tools import PlanningToolsSection, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt

kept = Prompt(
    name="kept",
    sections=[MarkdownSection(title="Task", template="Plan, then write."), PlanningToolsSection(), VfsToolsSection()],
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(KEPT, tmp_path / "runs.db")
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def test_a_run_is_exported_and_replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing differs; with another prompt it says what does."""
    made, agent = str(folder / "kept.wink"), str(folder / "agent.py")
    assert main(["export", str(folder / "runs.db"), "kept", "-o", made, "--app", agent]) == 0
    assert "with credentials masked" in capsys.readouterr().out
    assert main(["replay", made, agent]) == 0
    assert "The run 'kept' goes as it did." in capsys.readouterr().out
    (folder / "agent.py").write_text(AGENT.replace("Plan, then write.", "Just write."))
    assert main(["replay", made, agent]) == 1
    assert "+Just write." in capsys.readouterr().out
    assert main(["replay", made, agent, "--json"]) == 1
    found, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["kind"], found["tainted"]) == ("prompt", False)
    assert (summary["same"], summary["divergences"]) == (False, 1)
    assert main(["replay", made, agent, "--ignore", "prompt", "--serve"]) == 0
    assert main(["replay", made, agent, "--normalise", "Plan, then write|Just write"]) == 0
    assert main(["replay", made, agent, "--update"]) == 0
    assert "was replaced" in capsys.readouterr().out
    assert main(["replay", made, agent]) == 0


def test_what_is_wrong_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run or a file that is not there, and a file that is there already."""
    store, made, agent = str(folder / "runs.db"), str(folder / "kept.wink"), str(folder / "agent.py")
    assert main(["export", store, "other", "-o", made]) == 2
    assert "no run 'other'" in capsys.readouterr().err
    assert main(["export", store, "kept", "-o", str(folder / "one.wink")]) == 0
    assert main(["replay", str(folder / "one.wink"), agent, "--run", "write_fiel"]) == 2
    assert "wink replay: There is no tool 'write_fiel'" in capsys.readouterr().err
    assert main(["export", store, "kept", "-o", str(folder / "none" / "kept.wink")]) == 2
    assert "there is no directory" in capsys.readouterr().err
    assert main(["export", store, "kept", "-o", str(folder), "--force"]) == 2
    assert "is a directory; name a file" in capsys.readouterr().err
    assert main(["export", str(folder / "none.db"), "kept", "-o", made]) == 2
    assert main(["export", store, "kept", "-o", made, "--unmasked", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["masked"] is False
    assert main(["export", store, "kept", "-o", made]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["export", store, "kept", "-o", made, "--force"]) == 0
    assert main(["replay", str(folder / "none.wink"), agent]) == 2
    (folder / "bad.wink").write_text("not a database, but long enough to look at" * 50)
    assert main(["replay", str(folder / "bad.wink"), agent]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert main(["replay", made, agent, "--normalise", "("]) == 2
    assert "--normalise: '(' is not a regular expression" in capsys.readouterr().err
    assert main(["fork", store, "kept", "4"]) == 0
    assert main(["replay", store, agent]) == 1
    assert "`wink export`" in capsys.readouterr().err


def test_a_store_is_not_replaced_by_one_of_its_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By whatever name it is called, and also with --force."""
    store = str(folder / "runs.db")
    (folder / "link.db").symlink_to(folder / "runs.db")
    assert main(["fork", store, "kept", "4"]) == 0
    for name in ("runs.db", "link.db"):
        assert main(["export", store, "kept", "-o", str(folder / name), "--force"]) == 2
        assert "is the store itself" in capsys.readouterr().err
    assert main(["runs", store]) == 0
    assert "2 runs" in capsys.readouterr().out
