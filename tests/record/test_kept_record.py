"""A record of format version 1 can be read for ever; the file in `data/` was written by it, once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from weakincentives import Session, ToolInvoked
from weakincentives.contrib.tools import Plan, PlanningToolsSection, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt
from weakincentives.runtime import SqliteRunStore
from weakincentives.testing import ScriptedAdapter

KEPT = Path(__file__).parent / "data" / "runs-1.db"


def agent() -> tuple[Prompt[Any], Session]:
    """The agent whose run was kept."""
    session = Session()
    task = MarkdownSection(title="Task", template="Plan, then write.")
    sections = [task, PlanningToolsSection(session=session), VfsToolsSection(session=session)]
    return Prompt(name="kept", sections=sections), session


def test_a_kept_run_is_served(tmp_path: Path) -> None:
    """With its answer, its state and its events; no model is asked."""
    shutil.copy(KEPT, tmp_path / "runs.db")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        prompt, session = agent()
        response = ScriptedAdapter().evaluate(prompt, session, record=store.run("kept"))
        assert (response.text, response.turns) == ("Written.", 4)
        plan = session[Plan].latest()
        assert plan is not None
        assert plan.objective == "write a note"
        outcomes = [(event.tool_name, event.outcome) for event in session[ToolInvoked].all()]
        assert outcomes == [("planning_setup_plan", "succeeded"), ("write_file", "succeeded"), ("read_file", "failed")]


def test_a_kept_run_can_be_looked_at(tmp_path: Path) -> None:
    """Every step, with state and files."""
    shutil.copy(KEPT, tmp_path / "runs.db")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        run = store.open("kept")
        kinds = [step.kind for step in run.steps()]
        assert kinds == ["begin", "prompt", "turn", "call", "turn", "call", "turn", "call", "turn", "end"]
        assert run.files_at(10).read("note.txt") == "a note"
        plan = run.state_at(4)[Plan].latest()
        assert plan is not None
        assert plan.objective == "write a note"
        assert run.diff(4, 6).files.added == ("note.txt",)
        prompt = run.prompt_at(3)
        assert prompt is not None
        assert "Plan, then write." in prompt
