"""Policies are asked while the call holds its locks, may be async, and decide about exactly what then runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.runtime import limits_parts
from tests.runtime.ways import both_ways

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    QuotaPolicy,
    RateLimitPolicy,
    ReadBeforeWritePolicy,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.runtime import PendingToolTracker, Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor


@dataclass(frozen=True)
class Path:
    path: str = "a.txt"


@dataclass(frozen=True)
class Mark:
    text: str


def executor_of(
    handler: Callable[..., Any], policies: Sequence[Any], session: Session | None = None, **tool: Any
) -> ToolExecutor:
    made = limits_parts.make(handler, "act", **tool)
    return limits_parts.executor_of(made, session=session, policies=policies, fs=InMemoryFilesystem())


def together(executor: ToolExecutor, count: int, name: str = "act") -> list[ToolReply]:
    """Make so many calls at the same moment, each in its own thread."""
    barrier = threading.Barrier(count)

    def one(number: int) -> ToolReply:
        barrier.wait(30)
        return executor.execute(ToolCall(f"c{number}", name, f'{{"path": "{number}.txt"}}'))

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def slowly(params: Path, *, context: ToolContext) -> ToolResult[str]:
    threading.Event().wait(0.02)
    return ToolResult.ok("done")


@pytest.mark.parametrize("policy", [QuotaPolicy(max_calls=1), RateLimitPolicy(1)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("read_only", [False, True])
def test_of_eight_threads_one_gets_the_last_of_a_quota(policy: Any, read_only: bool) -> None:
    """However many calls come at once, no more are admitted than the policy allows; also of tools that only read."""
    with executor_of(slowly, [policy], read_only=read_only) as executor:
        replies = together(executor, 8)
    assert sorted(reply.outcome for reply in replies) == ["refused"] * 7 + ["succeeded"]


def test_of_eight_tasks_one_gets_the_last_of_a_quota() -> None:
    """The same in one event loop."""

    async def waits(params: Path, *, context: ToolContext) -> ToolResult[str]:
        await asyncio.sleep(0.01)
        return ToolResult.ok("done")

    async def main() -> list[ToolReply]:
        async with executor_of(waits, [QuotaPolicy(max_calls=1)]) as executor:
            calls = [ToolCall(f"c{number}", "act", f'{{"path": "{number}"}}') for number in range(8)]
            return await asyncio.gather(*map(executor.aexecute, calls))

    replies = asyncio.run(main())
    assert sorted(reply.outcome for reply in replies) == ["refused"] * 7 + ["succeeded"]


def test_what_was_committed_while_a_call_waited_is_not_overwritten() -> None:
    """A file that another session wrote while a call waited for its locks has not been read, so it stays."""
    fs = InMemoryFilesystem()
    first_runs, go = threading.Event(), threading.Event()

    def write(params: Path, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        if not first_runs.is_set():
            first_runs.set()
            go.wait(30)
        context.filesystem.write(params.path, context.call_id or "")
        return ToolResult.ok("written")

    def executor() -> ToolExecutor:
        tool = Tool[Path, str](name="write_file", description="Write.", handler=write)
        section = MarkdownSection(title="T", key="t", template="x", tools=[tool], policies=[ReadBeforeWritePolicy()])
        prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[section])).bind(resources={Filesystem: fs})
        return ToolExecutor(prompt=prompt, session=Session())

    replies: dict[str, ToolReply] = {}
    with executor() as one, executor() as two:
        first = threading.Thread(target=lambda: replies.update(a=one.execute(ToolCall("a", "write_file", "{}"))))
        first.start()
        assert first_runs.wait(30)
        second = threading.Thread(target=lambda: replies.update(b=two.execute(ToolCall("b", "write_file", "{}"))))
        second.start()
        second.join(0.1)
        go.set()
        first.join(30)
        second.join(30)
    assert replies["a"].success
    assert replies["b"].outcome == "refused"
    assert fs.read("a.txt") == "a"


# Async.


class Asks:
    """A policy that asks a service."""

    def __init__(self, verdict: str | None, *, fail_on_result: bool = False) -> None:
        self.verdict = verdict
        self.fail_on_result = fail_on_result
        self.heard: list[str] = []

    async def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        await asyncio.sleep(0)
        return self.verdict

    async def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        await asyncio.sleep(0)
        context.session.dispatch(Mark("heard"))
        self.heard.append(tool_name)
        if self.fail_on_result:
            raise ValueError("not so")


def ok(params: Path, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok("done")


@both_ways
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_async_check_is_awaited(run: Callable[[ToolExecutor], ToolReply], timeout: float | None) -> None:
    """Its answer counts: a refusal refuses, None admits."""
    assert run(executor_of(ok, [Asks("Not today.")], timeout=timeout)).text == "Not today.\nRefused by Asks."
    assert run(executor_of(ok, [Asks(None)], timeout=timeout)).success


@both_ways
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_async_on_result_is_awaited(run: Callable[[ToolExecutor], ToolReply], timeout: float | None) -> None:
    """It is part of the call: what it writes is kept with it, and when it fails the call is undone."""
    session, policy = Session(), Asks(None)
    assert run(executor_of(ok, [policy], session=session, timeout=timeout)).success
    assert policy.heard == ["act"]
    assert session[Mark].count() == 1
    broken = Asks(None, fail_on_result=True)
    assert run(executor_of(ok, [broken], session=session, timeout=timeout)).outcome == "crashed"
    assert session[Mark].count() == 1


def test_a_policy_that_calls_a_tool_makes_a_nested_call() -> None:
    """A policy is asked inside the call, so a call that it makes uses the locks of that call."""
    session = Session()
    made: list[ToolExecutor] = []

    class Looks:
        def check(self, tool_name: str, params: Path, context: ToolContext) -> str | None:
            if params.path == "inner":
                return None
            reply = made[0].execute(ToolCall("inner", "act", '{"path": "inner"}'))
            return None if reply.success else reply.text

    with executor_of(ok, [Looks()], session=session) as executor:
        made.append(executor)
        assert executor.execute(ToolCall("outer", "act", "{}")).success
    assert [event.call_id for event in session[ToolInvoked].all()] == ["inner", "outer"]


def test_a_refusal_leaves_no_lock_and_nothing_changed() -> None:
    """A call that is refused under its locks lets go of them; the next one runs."""
    policy = Asks("No.")
    session = Session()
    with executor_of(ok, [policy], session=session) as executor:
        assert executor.execute(ToolCall("1", "act", "{}")).outcome == "refused"
        policy.verdict = None
        assert executor.execute(ToolCall("2", "act", "{}")).success
    first, second = session[ToolInvoked].all()
    assert (first.outcome, first.changes) == ("refused", type(first.changes)())
    assert second.success


def test_native_tools_are_asked_about_one_at_a_time() -> None:
    """Two native tools that only read do not overlap under a policy that counts."""
    session = Session()
    tracker = PendingToolTracker(session=session, policies=[QuotaPolicy(max_calls=1)])
    assert tracker.begin_tool_execution(tool_use_id="1", tool_name="Read", read_only=True) is None
    refused = tracker.begin_tool_execution(tool_use_id="2", tool_name="Read", read_only=True)
    assert refused is not None
    assert refused.outcome == "refused"
    assert tracker.end_tool_execution(tool_use_id="1", success=True) is not None
    refused = tracker.begin_tool_execution(tool_use_id="3", tool_name="Read", read_only=True)
    assert refused is not None
    assert "Quota" in refused.text
