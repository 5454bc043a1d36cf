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
from ..contrib.tools import Plan
from ..errors import PromptEvaluationError
from ..filesystem import Filesystem, HostFilesystem
from ..runtime import Session, ToolInvoked
from ..testing import ScriptedAdapter
from .agent import Job, MaintenanceLoop, Workspace
from .project import BROKEN, files_in, repaired, run_project_tests, write_project
from .script import scripted_model

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


def play(adapter: Any, on_event: OnEvent, workspace: Path | None = None) -> Played:
    """Let a model repair the project, the scripted one when `adapter` is None; the folder is thrown away or given."""
    model = scripted_model() if adapter is None else adapter
    place: AbstractContextManager[Any] = nullcontext(workspace)
    if workspace is None:
        place = TemporaryDirectory(prefix="wink-demo-")
    with place as folder:
        root = Path(folder, "tea-shop")
        write_project(root)
        return _play(model, on_event, root)


def _play(model: Any, on_event: OnEvent, root: Path) -> Played:
    watch = _Watch(root, on_event)
    sessions: list[Session] = []

    class Watched(MaintenanceLoop):
        """Keeps the session also when the agent does not come to an end."""

        def prepare(self, request: Job) -> Any:
            prepared = super().prepare(request)
            sessions.append(prepared[1])
            return prepared

    played = Played()
    before = run_project_tests(root)
    with HostFilesystem(root) as files:
        try:
            response, _ = Watched(adapter=model).execute(
                Job(GOAL), resources={Filesystem: files, Workspace: Workspace(root)}, on_event=watch
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
