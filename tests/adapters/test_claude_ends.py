"""How an evaluation with Claude Code ends a native tool under way; a stand-in for the SDK's client sets the order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from tests.conftest import needs

from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.budget import Budget, BudgetTracker
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import Session, ToolInvoked
from weakincentives.testing import FakeClock

Script = Callable[["StandIn"], AsyncIterator[Any]]
Step = Callable[["StandIn"], Awaitable[None]]

_HANGING = 300.0


class StandIn:
    """A client whose messages a test writes. It can have the hooks called, as Claude Code does."""

    def __init__(self, options: Any, sdk: Any, root: Path, script: Script, stopped: Step, closed: Step) -> None:
        self.sdk, self.root = sdk, root
        self._hooks, self._script, self._stopped, self._closed = options.hooks, script, stopped, closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._closed(self)

    async def query(self, text: str) -> None:
        assert text

    async def interrupt(self) -> None:
        await self._stopped(self)

    def receive_response(self) -> AsyncIterator[Any]:
        return self._script(self)

    def progress(self) -> Any:
        """A message that says nothing."""
        return self.sdk.SystemMessage(subtype="progress", data={})

    async def hook(self, event: str, **data: Any) -> dict[str, Any]:
        """Call a hook of the tool `n1`."""
        (matcher,) = self._hooks[event]
        given = {"tool_name": "Write", "tool_use_id": "n1", "tool_input": {"file_path": "b.txt"}, **data}
        return await matcher.hooks[0](given, "n1", None)

    async def begin_tool(self) -> None:
        """A native tool begins and has written something."""
        answer = await self.hook("PreToolUse")
        assert answer["hookSpecificOutput"]["permissionDecision"] == "allow"
        (self.root / "b.txt").write_text("two\n")


async def _nothing(client: StandIn) -> None:
    return


async def _hang(client: StandIn) -> AsyncIterator[Any]:
    """A tool begins and nothing more is heard."""
    await client.begin_tool()
    await asyncio.sleep(_HANGING)
    yield client.progress()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def files(root: Path) -> Iterator[HostFilesystem]:
    needs(
        "claude-cli",
        present=find_spec("claude_agent_sdk") is not None and find_spec("mcp") is not None,
        install="pip install 'weakincentives[claude-agent-sdk]'",
    )
    with HostFilesystem(root, watch="scan") as made:
        yield made


def _adapter(root: Path, script: Script, *, stopped: Step = _nothing, closed: Step = _nothing) -> ClaudeAgentSDKAdapter:
    adapter = ClaudeAgentSDKAdapter(native_tools=["Write"], cli_path="/bin/false")
    sdk = adapter.sdk

    def client(options: Any) -> StandIn:
        return StandIn(options, sdk, root, script, stopped, closed)

    adapter.sdk = SimpleNamespace(**{**vars(sdk), "ClaudeSDKClient": client})
    return adapter


def _prompt(files: HostFilesystem) -> Prompt[Any]:
    section = MarkdownSection(title="Task", template="Do it.")
    prompt = Prompt(PromptTemplate(ns="t", key="claude-ends", sections=[section]))
    return prompt.bind(resources={Filesystem: files})


def _ended(session: Session, root: Path) -> str:
    """The outcome of the one tool, which is undone."""
    (event,) = session[ToolInvoked].all()
    assert (event.call_id, event.tool_name) == ("n1", "Write")
    assert [item.name for item in root.iterdir()] == ["a.txt"]
    return event.outcome


def _evaluate_until_late(evaluate: Callable[[Deadline, Session], object], root: Path) -> None:
    """Evaluate with a deadline that passes while the tool is under way, and look how both ended."""
    for seconds in (1, 5, 20, 60):  # a busy machine may not come to the tool in time; then there is nothing to see yet
        session, begun = Session(), time.monotonic()
        with pytest.raises(PromptEvaluationError) as caught:
            evaluate(Deadline.after(timedelta(seconds=seconds)), session)
        assert caught.value.phase == "deadline"
        if session[ToolInvoked].count():
            break
    assert _ended(session, root) == "deadline"
    assert time.monotonic() - begun < _HANGING


def test_a_message_that_comes_after_the_deadline_ends_the_tool_for_its_sake(root: Path, files: HostFilesystem) -> None:
    """On a busy machine a message may be seen to be late before the timer is; the outcome is the same."""
    clock, session = FakeClock(), Session()

    async def script(client: StandIn) -> AsyncIterator[Any]:
        await client.begin_tool()
        clock.advance(timedelta(seconds=60))
        yield client.progress()

    deadline = Deadline.after(timedelta(seconds=60), clock=clock)
    with pytest.raises(PromptEvaluationError) as caught:
        _adapter(root, script).evaluate(_prompt(files), session, deadline=deadline)
    assert caught.value.phase == "deadline"
    assert _ended(session, root) == "deadline"


@pytest.mark.slow
def test_an_sdk_that_fails_when_the_deadline_ends_it_changes_nothing(root: Path, files: HostFilesystem) -> None:
    """The process may break while it is stopped. What stopped it was the deadline."""

    async def closed(client: StandIn) -> None:
        raise client.sdk.ProcessError("killed", exit_code=137)

    adapter = _adapter(root, _hang, closed=closed)
    _evaluate_until_late(lambda deadline, session: adapter.evaluate(_prompt(files), session, deadline=deadline), root)


@pytest.mark.slow
def test_a_tool_that_says_it_was_interrupted_by_the_deadline_has_that_outcome(
    root: Path, files: HostFilesystem
) -> None:
    """Told to stop, Claude Code may report its tool as failed before the evaluation has ended."""

    async def stopped(client: StandIn) -> None:
        await client.hook("PostToolUseFailure", error="Interrupted", is_interrupt=True)

    adapter = _adapter(root, _hang, stopped=stopped)
    _evaluate_until_late(lambda deadline, session: adapter.evaluate(_prompt(files), session, deadline=deadline), root)


@pytest.mark.slow
def test_the_deadline_of_a_bound_tracker_ends_the_tool(root: Path, files: HostFilesystem) -> None:
    """A budget among the resources may have a deadline; it does not wait for the next message."""

    def evaluate(deadline: Deadline, session: Session) -> None:
        tracker = BudgetTracker(Budget(deadline=deadline))
        _adapter(root, _hang).evaluate(_prompt(files).bind(resources={BudgetTracker: tracker}), session)

    _evaluate_until_late(evaluate, root)


def test_what_is_not_the_deadline_cancels_the_tool(root: Path, files: HostFilesystem) -> None:
    """A process that breaks, a deadline of another evaluation and a cancellation leave a tool that was cancelled."""

    async def broken(client: StandIn) -> AsyncIterator[Any]:
        await client.begin_tool()
        yield client.progress()
        raise client.sdk.ProcessError("killed", exit_code=137)

    async def inner(client: StandIn) -> AsyncIterator[Any]:
        await client.begin_tool()
        yield client.progress()
        raise PromptEvaluationError("An inner one was late.", prompt_name="inner", phase="deadline")

    deadline = Deadline.after(timedelta(seconds=_HANGING))
    for script, phase in ((broken, "request"), (inner, "deadline")):
        session = Session()
        with pytest.raises(PromptEvaluationError) as caught:
            _adapter(root, script).evaluate(_prompt(files), session, deadline=deadline)
        assert caught.value.phase == phase
        assert _ended(session, root) == "cancelled"

    async def cancelled(session: Session) -> None:
        begun = asyncio.Event()

        async def script(client: StandIn) -> AsyncIterator[Any]:
            await client.begin_tool()
            begun.set()
            await asyncio.sleep(_HANGING)
            yield client.progress()

        task = asyncio.create_task(_adapter(root, script).aevaluate(_prompt(files), session, deadline=deadline))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    session = Session()
    asyncio.run(cancelled(session))
    assert _ended(session, root) == "cancelled"
