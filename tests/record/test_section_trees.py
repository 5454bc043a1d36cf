"""Rows of prompts have the tree of their sections."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives import Session
from weakincentives.cli import main
from weakincentives.errors import RunFormatError
from weakincentives.prompt import MarkdownSection, Prompt, SectionVisibility, Tool, ToolResult
from weakincentives.prompt.outline import SectionOutline, outline_from
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record.rows import NewRows, Step
from weakincentives.testing import ScriptedAdapter, call, say

KEPT = Path(__file__).parent / "data" / "runs-1.db"


@dataclass(frozen=True)
class Nothing:
    pass


def tool(name: str) -> Tool[Any, Any]:
    return Tool[Nothing, str](name=name, description=name, handler=lambda params: ToolResult.ok("Done."))


def prompt() -> Prompt[str]:
    """Four sections, one of them off, one a summary with another below it."""
    page = MarkdownSection(title="Page one", key="page", template="Dig deep.", tools=[tool("dig")])
    manual = MarkdownSection(
        title="Manual", template="All.", summary="A manual.", visibility=SectionVisibility.SUMMARY, children=[page]
    )
    off = MarkdownSection(title="Off", template="Not there.", enabled=False)
    return Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do.", tools=[tool("do")]), manual, off])


TREE = (
    SectionOutline("task", "Task", "full", ("do",)),
    SectionOutline(
        "manual", "Manual", "summary", (), (SectionOutline("page", "Page one", "hidden", ("dig",)),)
    ),
    SectionOutline("off", "Off", "hidden"),
)  # fmt: skip
OPENED = (
    TREE[0],
    SectionOutline("manual", "Manual", "full", (), (SectionOutline("page", "Page one", "full", ("dig",)),)),
    TREE[2],
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as opened:
        yield opened


def test_a_prompt_on_record_has_its_sections(store: SqliteRunStore) -> None:
    """As they were shown at each step; a row is written only when that differs."""
    opening = call("open_sections", section_keys=["manual"], reason="to read")
    model = ScriptedAdapter(call("do"), opening, call("dig"), say("Done."))
    model.evaluate(prompt(), Session(), record=store.run("r"))
    run = store.open("r")
    prompts = [step.seq for step in run.steps() if step.kind == "prompt"]
    assert len(prompts) == 2
    first, second = map(run.prompt_at, prompts)
    assert first is not None
    assert second is not None
    assert (first.sections, second.sections) == (TREE, OPENED)
    assert "Dig deep." in second
    assert first.tools == ("do", "open_sections", "read_section")
    assert prompt().render().sections == TREE


def test_a_step_shows_its_sections(store: SqliteRunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each on a line, those below others further to the right."""
    ScriptedAdapter(say("Done.")).evaluate(prompt(), Session(), record=store.run("r"))
    assert main(["show", str(tmp_path / "runs.db"), "r", "2"]) == 0
    shown = capsys.readouterr().out
    assert "  section task (Task), full: do\n  section manual (Manual), summary\n" in shown
    assert "    section page (Page one), hidden: dig\n" in shown


def test_a_prompt_without_its_sections_has_none(tmp_path: Path) -> None:
    """In a record that was kept from before; nothing else is missing."""
    shutil.copy(KEPT, tmp_path / "runs.db")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        told = store.open("kept").prompt_at(3)
        assert told is not None
        assert told.sections == ()
        assert told.tools


DAMAGED: list[Any] = [
    7, {"a": 1}, [7], [{"key": "a"}], [{"key": "a", "title": "A", "visibility": "odd"}],
    [{"key": "a", "title": "A", "visibility": []}],
    [{"key": "a", "title": "A", "visibility": "full", "tools": "do"}],
    [{"key": "a", "title": "A", "visibility": "full", "children": [1]}],
]  # fmt: skip


@pytest.mark.parametrize("sections", DAMAGED)
def test_damaged_sections_are_said_to_be_so(store: SqliteRunStore, sections: Any) -> None:
    """With the step."""
    ScriptedAdapter(say("Done.")).evaluate(prompt(), Session(), record=store.run("r"))
    forked = store.fork("r", at=1)
    info = store.open(forked).info
    held = store.take(forked, None)  # pyright: ignore[reportArgumentType] - it is there
    held.append(NewRows([Step(seq=2, kind="prompt", body={"text": "x", "tools": [], "sections": sections})]))
    held.release()
    with pytest.raises(RunFormatError, match=r"Step 2 of"):
        store.open(info.run_id).prompt_at(2)


def test_sections_are_not_read_deeper_than_any_prompt_is() -> None:
    """A record that nests them for ever is refused."""
    data: list[Any] = []
    for _ in range(5_000):
        data = [{"key": "a", "title": "A", "visibility": "full", "children": data}]
    with pytest.raises(ValueError, match="nested"):
        outline_from(data)
