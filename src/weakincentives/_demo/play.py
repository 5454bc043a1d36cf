"""Playing the demonstration: set up the project, let the agent work, and check what it left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..adapters import CallFinished, CallStarted, ProgressEvent
from ..budget import TokenUsage
from ..contrib.files.diffs import unified
from ..contrib.tools import Plan, PlanningStrategy, PlanningToolsSection, VfsConfig, VfsToolsSection
from ..errors import PromptEvaluationError, ToolValidationError
from ..filesystem import Filesystem, HostFilesystem
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolAnnotations, ToolContext, ToolResult
from ..runtime import MainLoop, MainLoopConfig, Session, SqliteRunStore, ToolInvoked
from ..testing import ScriptedAdapter, call, say
from .project import (
    BROKEN,
    IN_ORDER,
    NOTED,
    TWO_EDITS,
    WHOLE_CENTS,
    TestReport,
    files_in,
    repaired,
    run_project_tests,
    write_project,
)

RUN_ID = "demo"
"""The name of the run, where it is recorded."""


@dataclass(frozen=True, slots=True)
class MaintenanceJob:
    """What is wanted."""

    goal: str


@dataclass(frozen=True, slots=True)
class ProjectFolder:
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
    return ToolResult.ok(run_project_tests(context.resources.get(ProjectFolder).root), message="The tests have run.")


def _patch_and_test(params: PatchParams, *, context: ToolContext) -> ToolResult[Patched]:
    files = context.resources.get(Filesystem)
    before = {edit.path: files.read(edit.path) for edit in params.edits}
    for edit in params.edits:
        text = files.read(edit.path)
        if text.count(edit.old_text) != 1:
            raise ToolValidationError(f"{edit.path}: old_text is there {text.count(edit.old_text)} times, not once.")
        files.write(edit.path, text.replace(edit.old_text, edit.new_text))
    # The files are changed on the disk by now. A failed result is all it takes to restore them.
    report = run_project_tests(context.resources.get(ProjectFolder).root)
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
        MarkdownSection[MaintenanceJob](
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
            template="Change code with `patch_and_test` only: what does not pass the tests is undone as a whole.",
            tools=[run_tests, patch_and_test],
        ),
    ],
)


class MaintenanceLoop(MainLoop[MaintenanceJob, str]):
    """A job in, a repaired project out."""

    def prepare(self, request: MaintenanceJob) -> tuple[Prompt[str], Session]:
        """A fresh session for each job."""
        return Prompt(TEMPLATE).bind(request), Session(bus=self.bus)


def _edits(*edits: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"path": path, "old_text": old, "new_text": new} for path, old, new in edits]


def scripted_model() -> ScriptedAdapter:
    """Ten turns: a refusal, a change that is rolled back, and a project that is repaired."""
    return ScriptedAdapter(
        [
            say("First a plan."),
            call(
                "planning_setup_plan",
                objective="Make the tests of the tea shop pass",
                initial_steps=["See what fails", "Read the code", "Repair it", "Note it in the changelog"],
            ),
        ],
        [call("run_tests"), call("planning_update_step", step_id=1, status="done")],
        [
            say("I know this kind of code; I will just write it anew."),
            call("write_file", path="shop/discounts.py", content="def discount(count):\n    return 10\n"),
        ],
        [
            say("Fair enough. I read it first."),
            call("read_file", path="shop/discounts.py"),
            call("read_file", path="shop/cart.py"),
            call("planning_update_step", step_id=2, status="done"),
        ],
        [
            say("The comparisons are off by one, and the total is a float."),
            call("patch_and_test", edits=_edits(*TWO_EDITS, *WHOLE_CENTS)),
        ],
        [
            say("Both files are as they were. What did I miss?"),
            call("planning_update_step", step_id=3, note="The larger discount must be asked for first."),
        ],
        [call("patch_and_test", edits=_edits(*IN_ORDER, *WHOLE_CENTS))],
        [call("planning_update_step", step_id=3, status="done"), call("read_file", path="CHANGELOG.md")],
        [
            call("write_file", path="CHANGELOG.md", content=NOTED),
            call("planning_update_step", step_id=4, status="done"),
        ],
        say("All tests pass: discounts begin at 5 and 10 pieces, and totals are whole cents."),
    )


OnEvent = Callable[[ProgressEvent], object]

GOAL = "Its tests fail. Repair the code so that they pass, and note in CHANGELOG.md what you did."


@dataclass
class Played:
    """How it went.

    Attributes:
        checks: what was verified, and whether it holds.
        error: why the agent did not come to an end, if it did not.
    """

    checks: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - immutable
    turns: int = 0
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return self.error is None and all(ok for _, ok in self.checks)


def play(
    adapter: Any, on_event: OnEvent, workspace: Path | None = None, *, record: SqliteRunStore | None = None
) -> Played:
    """Let a model repair the project, the scripted one when `adapter` is None; the folder is thrown away or given.

    With a store the run is on record there, as `demo`.
    """
    model = scripted_model() if adapter is None else adapter
    place: AbstractContextManager[Any] = nullcontext(workspace)
    if workspace is None:
        place = TemporaryDirectory(prefix="wink-demo-")
    with place as folder:
        root = Path(folder, "tea-shop")
        write_project(root)
        return _play(model, on_event, root, record)


def _play(model: Any, on_event: OnEvent, root: Path, record: SqliteRunStore | None) -> Played:
    watch = _Watch(root, on_event)
    sessions: list[Session] = []

    class Watched(MaintenanceLoop):
        """Keeps the session also when the agent does not come to an end."""

        def prepare(self, request: MaintenanceJob) -> Any:
            prepared = super().prepare(request)
            sessions.append(prepared[1])
            return prepared

    played = Played()
    before = run_project_tests(root)
    with HostFilesystem(root) as files:
        try:
            response, _ = Watched(adapter=model, config=MainLoopConfig(runs=record)).execute(
                MaintenanceJob(GOAL),
                resources={Filesystem: files, ProjectFolder: ProjectFolder(root)},
                run_id=None if record is None else RUN_ID,
                on_event=watch,
            )
            played.usage, played.turns = response.usage, response.turns
        except PromptEvaluationError as error:
            played.error = str(error)
    played.checks = _checks(root, sessions[0], watch)
    played.checks.insert(0, ("the tests failed at the beginning", not before.green))
    if isinstance(model, ScriptedAdapter):
        played.checks += _scripted_checks(root, sessions[0], model)
    return played


class _Watch:
    """Passes events on, and compares the folder before and after every call that was not kept."""

    def __init__(self, root: Path, on_event: OnEvent) -> None:
        self._root = root
        self._on_event = on_event
        self._before: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.traces: list[str] = []

    def __call__(self, event: ProgressEvent) -> None:
        if isinstance(event, CallStarted):
            self._before = files_in(self._root)
            self.asked[event.tool_name] += 1
        elif isinstance(event, CallFinished) and not event.kept and files_in(self._root) != self._before:
            self.traces.append(event.tool_name)
        self._on_event(event)


def _checks(root: Path, session: Session, watch: _Watch) -> list[tuple[str, bool]]:
    """What holds whichever model it was."""
    left = files_in(root)
    events = session[ToolInvoked].all()
    green = run_project_tests(root)
    told = Counter(event.tool_name for event in events)
    same_tests = all(left.get(path) == text for path, text in BROKEN.items() if path.startswith("tests/"))
    journals = [path.name for path in (*root.iterdir(), *root.parent.iterdir()) if ".wink" in path.name]
    return [
        (f"the tests pass now: {green.render().splitlines()[0]}", green.green),
        ("the tests themselves are untouched", same_tests),
        (f"{watch.asked.total()} calls, one event each", told == watch.asked and len(events) == watch.asked.total()),
        ("calls that were refused or undone left no trace in the files", not watch.traces),
        ("no undo journal is left on the disk", not journals),
    ]


def _scripted_checks(root: Path, session: Session, model: ScriptedAdapter) -> list[tuple[str, bool]]:
    """What the script must lead to, to the byte."""
    plan = session[Plan].latest()
    outcomes = Counter(event.outcome for event in session[ToolInvoked].all())
    undone = [event for event in session[ToolInvoked].all() if event.outcome == "failed" and event.changes]
    try:
        model.assert_complete()
        complete = True
    except AssertionError:
        complete = False
    return [
        ("the plan is completed", plan is not None and plan.status == "completed"),
        ("every file holds exactly what it should", files_in(root) == repaired()),
        ("one call was refused: it would have overwritten an unread file", outcomes["refused"] == 1),
        (
            "one change was rolled back: two files that did not pass the tests",
            len(undone) == 1 and undone[0].changes.files.changed == ("shop/cart.py", "shop/discounts.py"),
        ),
        ("the script was played to its end", complete),
    ]


# The main job in small: an agent that repairs a broken project, and a check that it did.
