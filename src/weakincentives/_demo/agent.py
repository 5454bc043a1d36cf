"""The agent: a plan, files, and two tools of its own, one of which changes files only if the tests then pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contrib.files.diffs import unified
from ..contrib.tools import PlanningStrategy, PlanningToolsSection, VfsConfig, VfsToolsSection
from ..errors import ToolValidationError
from ..filesystem import Filesystem
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolAnnotations, ToolContext, ToolResult
from ..runtime import MainLoop, Session
from .project import TestReport, run_project_tests


@dataclass(frozen=True, slots=True)
class Job:
    """What is wanted."""

    goal: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where the project is, for the tools that start its tests."""

    root: Path


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact piece of text to replace."""

    path: str
    """The file, from the root of the project."""
    old_text: str
    """The text to replace; it must be there exactly once."""
    new_text: str
    """What to put in its place."""


@dataclass(frozen=True, slots=True)
class PatchParams:
    """A change of one or more files that only makes sense as a whole."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Patched:
    """A change that passed the tests."""

    report: TestReport
    diff: str

    def render(self) -> str:
        """The diff."""
        return self.diff


def _run_tests(params: None, *, context: ToolContext) -> ToolResult[TestReport]:
    del params
    return ToolResult.ok(run_project_tests(context.resources.get(Workspace).root), message="The tests have run.")


def _patch_and_test(params: PatchParams, *, context: ToolContext) -> ToolResult[Patched]:
    files = context.resources.get(Filesystem)
    before = {edit.path: files.read(edit.path) for edit in params.edits}
    for edit in params.edits:
        text = files.read(edit.path)
        if text.count(edit.old_text) != 1:
            raise ToolValidationError(f"{edit.path}: old_text is there {text.count(edit.old_text)} times, not once.")
        files.write(edit.path, text.replace(edit.old_text, edit.new_text))
    # The files are changed on the disk by now. A failed result is all it takes to have them back.
    report = run_project_tests(context.resources.get(Workspace).root)
    if not report.green:
        return ToolResult.error(f"Not accepted, because with this change {report.render()}")
    diff = "\n".join(unified(path, text.encode(), files.read(path).encode()) for path, text in before.items())
    return ToolResult.ok(Patched(report, diff), message=f"Accepted: {report.render()}")


run_tests = Tool[None, TestReport](
    name="run_tests",
    description="Run the project's tests and report which fail, and why.",
    handler=_run_tests,
    annotations=ToolAnnotations(read_only=True, open_world=False),
)
patch_and_test = Tool[PatchParams, Patched](
    name="patch_and_test",
    description="Apply edits to one or more files and run the tests. The edits stay only if all tests pass.",
    handler=_patch_and_test,
    annotations=ToolAnnotations(open_world=False),
)

TEMPLATE = PromptTemplate[Any](
    ns="demo",
    key="maintenance",
    sections=[
        MarkdownSection[Job](
            title="Task",
            template="""
            You maintain a small Python project. ${goal}

            Make a plan first, and keep it up to date until every step is done. Do not change the tests.
            """,
        ),
        PlanningToolsSection(strategy=PlanningStrategy.PLAN_ACT_REFLECT),
        VfsToolsSection(config=VfsConfig(shared=True)),
        MarkdownSection(
            title="Tests",
            template="Change code with `patch_and_test` only: what does not pass the tests is taken back as a whole.",
            tools=[run_tests, patch_and_test],
        ),
    ],
)


class MaintenanceLoop(MainLoop[Job, str]):
    """A job in, a repaired project out."""

    def prepare(self, request: Job) -> tuple[Prompt[str], Session]:
        """A fresh session for each job."""
        return Prompt(TEMPLATE).bind(request), Session(bus=self.bus)


__all__ = ["Job", "MaintenanceLoop", "Workspace"]
