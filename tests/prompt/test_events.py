from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest

from weakincentives.filesystem import FileChanges, Filesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.prompt import Changes, Outcome, PromptExecuted, PromptRendered, ToolInvoked, ToolResult
from weakincentives.prompt.changes import NO_CHANGES, SliceDelta
from weakincentives.session import Session, SlicePolicy


@dataclass(frozen=True)
class Params:
    query: str


@dataclass(frozen=True)
class WorkspaceDigest:
    text: str


def test_events_are_log_entries() -> None:
    """A restore does not take them back."""
    session = Session()
    before = session.snapshot()
    for event in (ToolInvoked(tool_name="a"), PromptRendered(prompt_name="p"), PromptExecuted(prompt_name="p")):
        session.dispatch(event)
        session.restore(before)
        assert session[type(event)].policy is SlicePolicy.LOG
        assert session[type(event)].count() == 1


@pytest.mark.parametrize(
    ("given", "success", "outcome"),
    [
        ({}, True, "succeeded"),
        ({"success": False}, False, "failed"),
        ({"result": ToolResult.error("no")}, False, "failed"),
        ({"result": ToolResult.ok(1)}, True, "succeeded"),
        ({"outcome": "refused"}, False, "refused"),
        ({"outcome": "replayed"}, True, "replayed"),
        ({"result": ToolResult.ok(1), "success": False, "outcome": "undone"}, False, "undone"),
    ],
)
def test_success_and_outcome_follow_from_what_is_known(given: Any, success: bool, outcome: str) -> None:
    """What is not said is derived from the result and the outcome."""
    event = ToolInvoked(tool_name="a", **given)
    assert (event.success, event.outcome) == (success, outcome)


def test_every_event_has_an_id_of_its_own() -> None:
    """Ids differ, and stay with a changed copy."""
    one, two = ToolInvoked(tool_name="a"), ToolInvoked(tool_name="a")
    assert len({one.event_id, two.event_id, PromptRendered(prompt_name="p").event_id}) == 3
    assert replace(one, outcome="undone").event_id == one.event_id


@pytest.mark.slow  # an interpreter
def test_a_forked_process_makes_other_ids() -> None:
    """The child of a fork goes on counting from the same number, so it needs a name of its own."""
    code = (
        "import os\n"
        "from weakincentives.prompt.events import new_event_id\n"
        "child = os.fork()\n"
        "os.write(1, f'{new_event_id()} '.encode())\n"
        "child and os.waitpid(child, 0)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(found) == len(set(found)) == 2


def test_events_are_immutable_and_comparable() -> None:
    """They are frozen dataclasses, though filled by hand."""
    event: Any = ToolInvoked(tool_name="a", params=Params("q"))
    with pytest.raises(AttributeError):
        event.success = False
    assert copy.copy(event) == event == pickle.loads(pickle.dumps(event))
    assert event != replace(event, duration=1.0)
    assert "tool_name='a'" in repr(event)


def test_events_are_saved_with_their_session() -> None:
    """Params, results and changes come back typed."""
    session = Session()
    changes = Changes((SliceDelta("Plan", 1),), FileChanges(added=("a.txt",)))
    event = ToolInvoked(tool_name="a", params=Params("q"), result=ToolResult.ok(Params("r")), changes=changes)
    session.dispatch(event)
    loaded = Session.from_json(session.to_json(), types=[ToolInvoked, ToolResult, Params])
    assert loaded[ToolInvoked].latest() == event


def test_admitted_calls_are_those_that_passed_the_gate() -> None:
    """Refusals of any kind are not admitted, nor is a deadline before the handler began; all else is."""
    not_admitted = {
        outcome for outcome in get_args(Outcome) if not ToolInvoked(tool_name="a", outcome=outcome).admitted
    }
    assert not_admitted == {"unknown_tool", "invalid", "refused", "conflict", "deadline"}
    assert ToolInvoked(tool_name="a", outcome="deadline", duration=0.1).admitted


def test_changes_are_what_session_and_files_say() -> None:
    """`Changes.of` keeps names and counts; without changes it is one shared, false object."""
    session, fs = Session(), InMemoryFilesystem()
    assert isinstance(fs, Filesystem)
    here, there = session.snapshot(), fs.snapshot()
    assert Changes.of(session.changes(here), fs.changes(there)) is NO_CHANGES
    session.dispatch(WorkspaceDigest("x"))
    fs.write("a.txt", "x")
    changes = Changes.of(session.changes(here), fs.changes(there))
    assert changes.slices == (SliceDelta("WorkspaceDigest", 1),)
    assert changes.files.added == ("a.txt",)
    assert changes
    assert not NO_CHANGES


def slices(*names: str) -> tuple[SliceDelta, ...]:
    return tuple(SliceDelta(name) for name in names)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (Changes(slices("Plan")), "the Plan state"),
        (Changes((), FileChanges(changed=("a",))), "1 file"),
        (Changes((), FileChanges(added=("a", "d/"), removed=("b",))), "2 files and 1 directory"),
        (Changes((), FileChanges(added=("c/", "d/"))), "2 directories"),
        (Changes(slices("Plan"), FileChanges(added=("a", "b"))), "2 files and the Plan state"),
        (Changes(slices("WorkspaceDigest", "HTTPState")), "the WorkspaceDigest state and the HTTP state"),
        (Changes(slices("State")), "the state"),
        (Changes(slices("A", "B", "C", "D")), "4 slices"),
        (Changes(slices("A", "B", "C")), "the A state, the B state and the C state"),
    ],
)  # fmt: skip
def test_what_was_undone_reads_as_a_sentence(changes: Changes, text: str) -> None:
    """Counts of files and names of slices, then that nothing was changed."""
    assert changes.describe_undone() == f"Rolled back: {text}. Nothing was changed."
    assert Changes().describe_undone() == "Nothing was changed."
