"""An undo belongs to the call it was begun in: once that call is over, it changes nothing any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make

from weakincentives.errors import ReadOnlyError, StaleCallError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, create_snapshot, release_snapshot, restore_snapshot, transaction
from weakincentives.session import append_all

WAIT = 30.0


@pytest.fixture(params=["memory", "disk", "scan"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return InMemoryFilesystem()
    return HostFilesystem(tmp_path, watch="scan" if request.param == "scan" else None)


def files(context: Any) -> Filesystem:
    found = context.filesystem
    assert found is not None
    return found


def commit(params: Text, *, context: Any) -> ToolResult[str]:
    files(context).write("kept.txt", "kept")
    context.session[Count].append(Count(1))
    return ToolResult.ok("")


def by_transaction(context: Any, go: threading.Event) -> None:
    with transaction(context.session, context.resources):
        files(context).write("mine.txt", "mine")
        context.session[Count].append(Count(100))
        go.wait(WAIT)
        raise ValueError("unwind")


def by_snapshot(context: Any, go: threading.Event) -> None:
    before = create_snapshot(context.session, context.resources)
    files(context).write("mine.txt", "mine")
    context.session[Count].append(Count(100))
    go.wait(WAIT)
    restore_snapshot(context.session, context.resources, before)


@pytest.mark.parametrize("undo", [by_transaction, by_snapshot])
def test_an_undo_after_a_timeout_leaves_committed_work_alone(fs: Any, undo: Callable[..., None]) -> None:
    """A handler that was given up on unwinds when others have committed; their work stays, its own stays undone."""
    go, gone = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def slow(params: Text, *, context: Any) -> ToolResult[str]:
        try:
            undo(context, go)
        except BaseException as error:
            raised.append(error)
        gone.set()
        return ToolResult.ok("")

    session = Session()
    with executor_of(make(slow, timeout=0.2), commit, session=session, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("slow", "1")).outcome == "timeout"
        assert executor.execute(call("commit", "2")).success
        go.set()
        assert gone.wait(WAIT)
        assert executor.execute(call("commit", "3")).success
    assert [item.value for item in session[Count].all()] == [1, 1]
    assert fs.read("kept.txt") == "kept"
    assert not fs.exists("mine.txt")
    assert isinstance(raised[0], ValueError | StaleCallError)


@pytest.mark.parametrize("undo", [by_transaction, by_snapshot])
def test_an_undo_in_the_background_of_a_call_that_succeeded(fs: Any, undo: Callable[..., None]) -> None:
    """What a call committed stays, although a task that it left behind unwinds a block that was begun inside it."""
    go = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def starts(params: Text, *, context: Any) -> ToolResult[str]:
        begun = asyncio.Event()

        async def background() -> None:
            if undo is by_transaction:
                async with transaction(context.session, context.resources):
                    files(context).write("mine.txt", "mine")
                    context.session[Count].append(Count(100))
                    begun.set()
                    await asyncio.to_thread(go.wait, WAIT)
                    raise ValueError("unwind")
            before = create_snapshot(context.session, context.resources)
            files(context).write("mine.txt", "mine")
            context.session[Count].append(Count(100))
            begun.set()
            await asyncio.to_thread(go.wait, WAIT)
            restore_snapshot(context.session, context.resources, before)

        tasks.append(asyncio.create_task(background()))
        await begun.wait()
        return ToolResult.ok("")

    async def main() -> None:
        async with executor_of(starts, commit, session=session, resources={Filesystem: fs}) as executor:
            assert (await executor.aexecute(call("starts", "1"))).success
            assert (await executor.aexecute(call("commit", "2"))).success
            go.set()
            (error,) = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(error, ValueError | StaleCallError)
            assert (await executor.aexecute(call("commit", "3"))).success

    session = Session()
    asyncio.run(main())
    assert [item.value for item in session[Count].all()] == [100, 1, 1]
    assert fs.read("kept.txt") == "kept"
    assert fs.read("mine.txt") == "mine"


KILLED = """
import asyncio, os, sys
from tests.runtime.limits_parts import Text, call, executor_of
from tests.runtime.test_late_undo import commit
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import transaction

fs = HostFilesystem(sys.argv[1], watch=sys.argv[2] or None)
tasks = []

async def starts(params: Text, *, context) -> ToolResult[str]:
    begun = asyncio.Event()
    async def background():
        async with transaction(context.session, context.resources):
            context.filesystem.write("inner.txt", "")
            begun.set()
            await asyncio.sleep(3600)
    tasks.append(asyncio.create_task(background()))
    await begun.wait()
    context.filesystem.write("outer.txt", "")
    return ToolResult.ok("")

async def main():
    async with executor_of(starts, commit, resources={Filesystem: fs}) as executor:
        assert (await executor.aexecute(call("starts", "1"))).success
        assert (await executor.aexecute(call("commit", "2"))).success
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.slow  # a process that is killed
@pytest.mark.parametrize("watch", ["", "scan"])
def test_a_crash_undoes_nothing_of_a_call_that_left_a_block_behind(tmp_path: Path, watch: Any) -> None:
    """A block that is still open when its call has succeeded is part of it: `kill -9` later takes nothing back."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    command = [sys.executable, "-c", KILLED, str(tmp_path), watch]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=60)
    assert done.returncode == -9
    with HostFilesystem(tmp_path, watch=watch or None) as fs:
        assert [entry.path for entry in fs.list(".")] == ["inner.txt", "kept.txt", "outer.txt"]


def test_what_a_block_remembered_is_released_once() -> None:
    """By the block while its call runs, and else by the call."""
    steps: list[str] = []

    class Part:
        def __init__(self) -> None:
            self.number = 0

        def snapshot(self) -> int:
            self.number += 1
            return self.number

        def restore(self, snapshot: int, /) -> None:
            steps.append(f"restore {snapshot}")

        def release(self, snapshot: int, /) -> None:
            steps.append(f"release {snapshot}")

    left: list[Any] = []

    def leaves(params: Text, *, context: Any) -> ToolResult[str]:
        with transaction(context.session, context.resources):
            pass
        block = transaction(context.session, context.resources)
        block.__enter__()
        left.append(block)
        return ToolResult.ok("")

    with executor_of(leaves, resources={Part: Part()}) as executor:
        assert executor.execute(call("leaves", "1")).success
        assert steps == ["release 2", "release 3", "release 1"]
        left[0].__exit__(ValueError, ValueError(), None)
        assert steps == ["release 2", "release 3", "release 1"]


def test_a_late_release_raises_nothing(fs: Any) -> None:
    """A snapshot that outlives its call can still be let go of, without effect."""
    taken: list[Any] = []

    def takes(params: Text, *, context: Any) -> ToolResult[str]:
        taken.append((context, create_snapshot(context.session, context.resources)))
        return ToolResult.ok("")

    session = Session()
    with executor_of(takes, commit, session=session, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("takes", "1")).success
        assert executor.execute(call("commit", "2")).success
        context, before = taken[0]
        with pytest.raises(StaleCallError):
            restore_snapshot(context.session, context.resources, before)
        release_snapshot(context.session, before)
        assert executor.execute(call("commit", "3")).success
    assert fs.read("kept.txt") == "kept"
    assert session[Count].count() == 2


@pytest.mark.parametrize("by_handle", [True, False])
def test_a_block_begun_by_a_handler_that_was_given_up_on(fs: Any, by_handle: bool) -> None:
    """A transaction that begins after its call is over is refused: it would belong to no call."""
    go, gone = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    session = Session()

    def slow(params: Text, *, context: Any) -> ToolResult[str]:
        go.wait(WAIT)
        try:
            with transaction(context.session, context.resources) if by_handle else transaction(session):
                pass
        except BaseException as error:
            raised.append(error)
        gone.set()
        return ToolResult.ok("")

    with executor_of(make(slow, timeout=0.1), session=session, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("slow", "1")).outcome == "timeout"
        go.set()
        assert gone.wait(WAIT)
    assert [type(error) for error in raised] == [StaleCallError]


def test_a_call_begun_by_a_handler_that_was_given_up_on(fs: Any) -> None:
    """It is refused, saying that the call around it is over; calls from elsewhere are not."""
    go, gone = threading.Event(), threading.Event()
    replies: list[Any] = []
    held: list[Any] = []

    def slow(params: Text, *, context: Any) -> ToolResult[str]:
        go.wait(WAIT)
        replies.append(held[0].execute(call("commit", "late")))
        gone.set()
        return ToolResult.ok("")

    session = Session()
    with executor_of(make(slow, timeout=0.1), commit, session=session, resources={Filesystem: fs}) as executor:
        held.append(executor)
        assert executor.execute(call("slow", "1")).outcome == "timeout"
        go.set()
        assert gone.wait(WAIT)
        assert executor.execute(call("commit", "2")).success
    assert [reply.outcome for reply in replies] == ["refused"]
    assert "call around this one is over" in replies[0].text
    assert session[Count].count() == 1


def test_a_block_in_a_thread_that_a_handler_started(fs: Any) -> None:
    """It belongs to the call whose handles it is given, also without that call's context."""
    problems: list[BaseException] = []

    def starts(params: Text, *, context: Any) -> ToolResult[str]:
        def work() -> None:
            try:
                with transaction(context.session, context.resources):
                    files(context).write("mine.txt", "mine")
                    raise ValueError("unwind")
            except BaseException as error:
                problems.append(error)

        files(context).write("kept.txt", "kept")
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(WAIT)
        return ToolResult.ok("")

    with executor_of(starts, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("starts", "1")).success
    assert [type(error) for error in problems] == [ValueError]
    assert fs.exists("kept.txt")
    assert not fs.exists("mine.txt")


def test_a_read_only_tool_restores_nothing(fs: Any) -> None:
    """A snapshot may be taken by a tool that only reads, but not restored."""
    raised: list[BaseException] = []

    def looks(params: Text, *, context: Any) -> ToolResult[str]:
        before = create_snapshot(context.session, context.resources)
        try:
            restore_snapshot(context.session, context.resources, before)
        except BaseException as error:
            raised.append(error)
        release_snapshot(context.session, before)
        return ToolResult.ok("")

    tool = make(looks, read_only=True)
    with executor_of(tool, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("looks", "1")).success
    assert [type(error) for error in raised] == [ReadOnlyError]


class Allow:
    def check(self, tool_name: str, params: object, context: ToolContext) -> None:
        """Says nothing about overlapping, so its calls do not."""


def test_the_value_of_a_read_only_call_that_outlives_the_call_around_it() -> None:
    """It reaches no reducer: the call around it was undone, and this one is recorded as cancelled."""
    go, session, replies = threading.Event(), Session(), list[Any]()
    session[Count].register(Count, append_all)

    def outer(params: Text, *, context: Any) -> ToolResult[str]:
        replies.append(executor.execute(call("look", "inner")))
        return ToolResult.ok("")

    def look(params: Text) -> ToolResult[Count]:
        go.wait(WAIT)
        return ToolResult.ok(Count(7))

    tools = (make(outer, timeout=0.2), make(look, read_only=True))
    executor = executor_of(*tools, session=session, policies=[Allow()])
    assert executor.execute(call("outer", "1")).outcome == "timeout"
    go.set()
    assert eventually(lambda: replies)
    assert replies[0].outcome == "cancelled"
    assert session[Count].count() == 0
