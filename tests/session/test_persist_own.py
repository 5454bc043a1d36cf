"""WINK's own classes need not be named to load a session."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.contrib.tools import (
    AstevalSection,
    Plan,
    PlanningToolsSection,
    PodmanSandboxSection,
    PythonSection,
    VfsToolsSection,
)
from weakincentives.errors import SessionFormatError
from weakincentives.prompt import Prompt, PromptExecuted, PromptTemplate, ToolInvoked, set_visibility
from weakincentives.prompt.read_before_write import SeenFiles
from weakincentives.prompt.render import disclosure_tools
from weakincentives.prompt.visibility import VisibilityOverrides
from weakincentives.session import Session
from weakincentives.session.encoding import type_name
from weakincentives.session.saved import own_type
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Verdict:
    passed: bool


def worked() -> Session:
    """A session in which tools of two suites have run, and a prompt has given a typed answer."""
    session = Session()
    sections = [VfsToolsSection(), PlanningToolsSection()]
    prompt = Prompt(PromptTemplate[Verdict](ns="t", key="own", sections=sections))
    adapter = ScriptedAdapter(
        call("write_file", path="a.txt", content="alpha"),
        call("read_file", path="a.txt"),
        call("read_file", path="missing.txt"),
        call("no_such_tool"),
        call("planning_setup_plan", objective="Ship", initial_steps=["Build"]),
        say('{"passed": true}'),
    )
    adapter.evaluate(prompt, session)
    set_visibility(session, ["planning"])
    return session


def test_a_session_that_worked_is_loaded_without_naming_our_classes() -> None:
    """Events, plans, opened sections and what was read come back; only the application's own class is named."""
    session = worked()
    assert [event.outcome for event in session[ToolInvoked].all()] == [
        "succeeded", "succeeded", "failed", "unknown_tool", "succeeded"
    ]  # fmt: skip
    loaded = Session.from_json(session.to_json(), types=[Verdict])
    for kind in (ToolInvoked, PromptExecuted, Plan, SeenFiles, VisibilityOverrides):
        assert loaded[kind].all() == session[kind].all()
        assert loaded[kind].count() > 0
    assert loaded[PromptExecuted].all()[0].output == Verdict(True)


def test_classes_of_the_application_must_still_be_named() -> None:
    """Nothing else is imported by name."""
    with pytest.raises(SessionFormatError, match="Verdict, which is not in types="):
        Session.from_json(worked().to_json())


@pytest.mark.slow  # an interpreter
def test_a_process_that_knows_only_sessions_can_load_one() -> None:
    """What a session holds is imported when it is needed."""
    session = Session()
    for event in worked()[ToolInvoked].all():
        session.record(event)
    program = (
        "import sys; from weakincentives.session import Session; assert 'weakincentives.prompt' not in sys.modules; "
        "print(Session.from_json(sys.stdin.read()).to_json())"
    )
    text = session.to_json()
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == text, done.stderr


def own_classes() -> Iterator[type[Any]]:
    below = ("session", "prompt", "runtime", "contrib")
    for name in below:
        package = importlib.import_module(f"weakincentives.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                module = importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                continue
            members: list[object] = list(vars(module).values())
            yield from (cls for cls in members if isinstance(cls, type) and cls.__module__ == found.name)


def test_all_of_our_events_are_known() -> None:
    """A class of ours that says what kind of slice it has is one that sessions hold."""
    events = {cls for cls in own_classes() if is_dataclass(cls) and "slice_policy" in vars(cls)}
    assert len(events) >= 4
    assert {cls for cls in events if own_type(type_name(cls)) is not cls} == set()


def test_what_our_tools_take_and_give_is_known() -> None:
    """Params and values of all suites come back from their events."""
    sections = [AstevalSection(), PlanningToolsSection(), PodmanSandboxSection(), PythonSection(), VfsToolsSection()]
    tools = [tool for section in sections for tool in section.tools]
    tools += [bound.tool for bound in disclosure_tools()]
    kinds = {kind for tool in tools for kind in (tool.params_type, tool.result_type)}
    kinds = {kind for kind in kinds if isinstance(kind, type) and kind.__module__.startswith("weakincentives")}
    assert len(kinds) > 20
    assert {kind for kind in kinds if own_type(type_name(kind)) is not kind} == set()


@pytest.mark.parametrize(
    "name",
    [
        "weakincentives.loop.main_loop:MainLoopConfig",
        "weakincentives.prompt.events:SlicePolicy",
        "weakincentives.prompt.events:",
        "weakincentives.prompt.events",
        "prompt.events:ToolInvoked",
        "weakincentives.results:ToolResult.error",
        "weakincentives.contrib.files.reading:ReadFileParams FileContent",
        "os:system",
        "",
    ],
)
def test_nothing_else_is_known_by_its_name(name: str) -> None:
    """A saved text cannot make us import or build what is not on the list."""
    assert own_type(name) is None


@given(st.text())
def test_any_name_is_looked_up_without_harm(name: str) -> None:
    """Whatever a damaged text has in the place of a name."""
    assert own_type(name) is None
    assert own_type(f"weakincentives.prompt:{name}") is None
