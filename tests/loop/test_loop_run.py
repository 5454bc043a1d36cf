"""`MainLoop.run`: many requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.limits_parts import eventually

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import LoopProgress, MainLoop, MainLoopConfig, PromptExecuted, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.threads import abandoned_count

LET_GO = threading.Event()
MEETING = threading.Barrier(6)
"""Ends what is stuck."""


@dataclass(frozen=True)
class Params:
    text: str = "x"


@dataclass(frozen=True)
class Note:
    text: str


class Echo(MainLoop[str, Any]):
    """A request is the name of what its tool does; one script plays all requests, whichever asks."""

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        if request == "unprepared":
            raise LookupError("no such request")

        def act(params: Params, *, context: ToolContext) -> ToolResult[str]:
            context.session.dispatch(Note(request))
            if context.filesystem is not None:
                context.filesystem.write(f"{request}.txt", request)
            if request == "boom":
                raise ValueError("the tool failed")
            if request.startswith("slow"):
                time.sleep(0.3)
            if request.startswith("meet"):
                MEETING.wait(60)
            if request.startswith("stuck"):
                started.set()
                LET_GO.wait(60)
            return ToolResult.ok(request)

        started = self.started
        tool = Tool[Params, str](name="act", description="Act.", handler=act)
        return Prompt(name=request, sections=[MarkdownSection(title="A", template=request, tools=[tool])]), Session()

    started = threading.Event()


def play(request: Any) -> Any:
    """Call once, then answer with what came back."""
    messages = request.messages
    if "dead" in messages[0].text:
        raise RuntimeError("the line is dead")
    return call("act") if len(messages) == 1 else say(f"answer to {messages[0].text.split()[-1]}")


def loop(turns: int = 100, **config: Any) -> Echo:
    return Echo(adapter=ScriptedAdapter(*[play] * turns), config=MainLoopConfig(**config))


@pytest.mark.parametrize("concurrency", [1, 4])
def test_results_are_in_the_order_of_the_requests_and_failures_stop_nothing(concurrency: int) -> None:
    """Each request has its result; one that fails carries its error and its session."""
    names = ["slow", "dead", "b", "unprepared", "boom", "c"]
    results = loop().run(iter(names), concurrency=concurrency, progress=False)
    assert [result.request for result in results] == names
    assert [result.ok for result in results] == [True, False, True, False, True, True]
    assert [result.response and result.response.text for result in results] == [
        "answer to slow", None, "answer to b", None, "answer to boom", "answer to c",
    ]  # fmt: skip
    assert "the line is dead" in str(results[1].error)
    assert isinstance(results[3].error, LookupError)
    assert results[3].session is None
    failed = results[4].session
    assert failed is not None
    assert [event.outcome for event in failed[ToolInvoked].all()] == ["crashed"]
    assert failed[Note].count() == 0
    died = results[1].session
    assert died is not None
    assert died[PromptExecuted].count() == 1
    assert all(result.duration > 0 for result in results)


def test_plain_handlers_of_several_requests_overlap() -> None:
    """Six at a time: each of the blocking handlers waits until all six are there."""
    results = loop().run([f"meet{number}" for number in range(6)], concurrency=6, progress=False)
    sessions = [result.session for result in results if result.session is not None]
    assert [[event.outcome for event in session[ToolInvoked].all()] for session in sessions] == [["succeeded"]] * 6


def test_requests_are_taken_as_there_is_room() -> None:
    """A long or endless source of requests is not read ahead."""
    taken: list[int] = []
    ended: list[int] = []
    ahead: list[int] = []

    def source() -> Iterator[str]:
        for number in range(20):
            taken.append(number)
            ahead.append(len(taken) - len(ended))
            yield f"r{number}"

    loop().run(source(), concurrency=3, progress=lambda progress: ended.append(progress.done))
    assert len(ended) == 20
    assert max(ahead) <= 3


def test_an_error_of_the_source_itself_is_raised() -> None:
    """What the iterable raises is no request's failure."""

    def source() -> Iterator[str]:
        yield "a"
        raise OSError("the queue is gone")

    for concurrency in (1, 2):
        with pytest.raises(OSError, match="the queue is gone"):
            loop().run(source(), concurrency=concurrency, progress=False)


def test_progress_is_told_after_each_request() -> None:
    """The counts add up, and what is told may raise."""
    seen: list[LoopProgress] = []

    def told(progress: LoopProgress) -> None:
        seen.append(progress)
        raise RuntimeError("broken display")

    loop().run(["a", "dead", "b"], progress=told)
    assert [(item.done, item.failed, item.running, item.total) for item in seen] == [
        (1, 0, 0, 3),
        (2, 1, 0, 3),
        (3, 1, 0, 3),
    ]
    assert str(seen[1]) == "2 of 3 done, 1 failed"
    assert seen[1].last.request == "dead"


def test_the_display_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """`progress=True` writes one line over itself to stderr and ends it."""
    loop().run(["a", "b"], progress=True)
    assert capsys.readouterr().err == "\r1 of 2 done\r2 of 2 done\n"
    loop().run(["a"])
    assert capsys.readouterr().err == ""


def test_run_inside_an_event_loop_names_arun() -> None:
    """Blocking an event loop is refused; `arun` is for async code."""

    async def main() -> list[Any]:
        with pytest.raises(RuntimeError, match=r"await loop\.arun"):
            loop().run(["a"], concurrency=2)
        return await loop().arun(["a", "b"])

    assert [result.ok for result in asyncio.run(main())] == [True, True]
    with pytest.raises(ValueError, match="concurrency must be 1 or more"):
        loop().run(["a"], concurrency=0)


def test_cancelling_arun_undoes_the_open_calls() -> None:
    """Calls that were running are recorded as cancelled and leave nothing behind."""
    files = InMemoryFilesystem()
    sessions: list[Session] = []

    class Watched(Echo):
        started = threading.Event()

        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            prompt, session = super().prepare(request)
            sessions.append(session)
            return prompt, session

    watched = Watched(adapter=ScriptedAdapter(*[play] * 10), config=MainLoopConfig(resources={Filesystem: files}))

    async def main() -> None:
        task = asyncio.create_task(watched.arun(["stuck1", "b", "c"], concurrency=1))
        await asyncio.to_thread(Watched.started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    LET_GO.clear()
    begun, stuck_before = time.monotonic(), abandoned_count()
    try:
        asyncio.run(main())
        assert time.monotonic() - begun < 30
    finally:
        LET_GO.set()
    assert eventually(lambda: abandoned_count() <= stuck_before)
    assert [event.outcome for event in sessions[0][ToolInvoked].all()] == ["cancelled"]
    assert sessions[0][Note].count() == 0
    assert not files.exists("stuck1.txt")
    assert len(sessions) == 1


PROGRAM = """
import os, signal, sys, time
from dataclasses import dataclass
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import MainLoop, MainLoopConfig, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call

root, concurrency = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it would be ignored

def stick(params: None, *, context: ToolContext) -> ToolResult[str]:
    context.filesystem.write(context.session.tags["request"] + "/half.txt", "half done")
    os.write(1, b"writing\\n")
    time.sleep(60)
    return ToolResult.ok("done")

tool = Tool[None, str](name="stick", description="Stick.", handler=stick)
sessions = []

class Loop(MainLoop[str, object]):
    def prepare(self, request):
        session = Session(tags={"request": request})
        sessions.append(session)
        files = HostFilesystem(root + "/" + request)
        prompt = Prompt(name=request, sections=[MarkdownSection(title="A", template="", tools=[tool])])
        return prompt.bind(resources={Filesystem: files}), session

loop = Loop(adapter=ScriptedAdapter(*[call("stick")] * 10))
loop.stream = lambda *requests, **options: list(loop.stream_results(*requests, **options))
try:
    getattr(loop, sys.argv[3])(["a", "b", "c"], concurrency=concurrency)
except KeyboardInterrupt:
    print([[event.outcome for event in session[ToolInvoked].all()] for session in sessions])
    sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["run", "stream"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_ctrl_c_rolls_back_every_open_call(tmp_path: Path, concurrency: int, method: str) -> None:
    """A real SIGINT ends the run at once; every open call is recorded as cancelled, and the files are as before."""
    for name in "abc":
        (tmp_path / name).mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(concurrency), method],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    for _ in range(concurrency):
        assert program.stdout.readline() == "writing\n"
    begun = time.monotonic()
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=30)
    assert program.returncode == 7, err
    assert time.monotonic() - begun < 25
    assert out.strip() == str([["cancelled"]] * concurrency)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
