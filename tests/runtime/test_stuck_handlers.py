"""Nine ways for a handler to be stuck, in a thread and in a process: what each mode promises, and that it holds."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.limits_parts import (
    GIVES_WAY,
    HOLDS_GIL,
    SLACK,
    Count,
    Text,
    call,
    children,
    eventually,
    executor_of,
    fd_count,
    is_alive,
    make,
    outcomes,
    release,
    tell,
)

from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session
from weakincentives.threads import abandoned_count

pytestmark = pytest.mark.slow  # processes

LIMIT = 0.3
ROOT = Path(__file__).parents[2]
NINE = (*GIVES_WAY, *HOLDS_GIL)


def name_of(handler: Any) -> str:
    return handler.__name__.removeprefix("stuck_")


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    release.clear()
    yield
    release.set()
    assert eventually(lambda: abandoned_count() == 0)
    release.clear()


@pytest.mark.parametrize("handler", GIVES_WAY, ids=name_of)
def test_in_a_thread_the_caller_gives_up_in_time(handler: Any) -> None:
    """A handler that lets other threads run is given up on, undone, counted, and its late write refused."""
    session, fs = Session(), InMemoryFilesystem({"kept.txt": "kept"})

    def works(params: Text, *, context: ToolContext) -> ToolResult[str]:
        files = context.filesystem
        assert files is not None
        files.write("kept.txt", "changed")
        context.session[Count].append(Count(1))
        return handler(params, context=context)

    with executor_of(make(works, timeout=LIMIT), session=session, fs=fs) as executor:
        started = time.monotonic()
        reply = executor.execute(call("works"))
        assert time.monotonic() - started < LIMIT + SLACK
        assert reply.outcome == "timeout"
        assert abandoned_count() == 1
        release.set()
        assert eventually(lambda: abandoned_count() == 0)
    assert session[Count].count() == 0
    assert fs.read("kept.txt") == "kept"
    assert outcomes(session) == ["timeout"]


SACRIFICE = """
import sys, time, threading
sys.path.insert(0, {root!r})
from tests.runtime.limits_parts import *
with executor_of(make({name}, timeout=0.2)) as executor:
    print("begun", flush=True)
    print(executor.execute(call({name!r})).outcome, flush=True)
"""


@pytest.mark.parametrize("seconds", [2.0, pytest.param(8.2, marks=pytest.mark.torture)])
@pytest.mark.parametrize("handler", HOLDS_GIL, ids=name_of)
def test_in_a_thread_the_global_lock_is_stronger(handler: Any, seconds: float) -> None:
    """A handler that holds the interpreter's lock stops its whole process: no thread can give up on it."""
    code = SACRIFICE.format(root=str(ROOT), name=handler.__name__)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as sacrificed:
        try:
            assert sacrificed.stdout is not None
            assert sacrificed.stdout.readline() == "begun\n"
            with pytest.raises(subprocess.TimeoutExpired):
                sacrificed.wait(seconds)
        finally:
            sacrificed.kill()
        assert sacrificed.stdout.read() == "", "if it answers in time, the documented table can promise more"


@pytest.mark.parametrize("handler", NINE, ids=name_of)
def test_in_a_process_every_kind_is_killed_in_time(handler: Any, tmp_path: Path) -> None:
    """In a process of its own each of the nine is killed in time, with what it started; its write never happened."""
    session, note = Session(), tmp_path / "pid"
    text = str(note) if name_of(handler) == "subprocess" else ""
    stuck = make(handler, "stuck", isolation="process", timeout=LIMIT)
    with executor_of(stuck, make(tell, isolation="process"), session=session) as executor:
        worker = int(str(executor.execute(call("tell", "warm")).result.value).split()[3])
        started = time.monotonic()
        reply = executor.execute(call("stuck", "1", text=text))
        assert time.monotonic() - started < LIMIT + SLACK
        assert reply.outcome == "timeout"
        assert eventually(lambda: not is_alive(worker))
        if text:
            assert eventually(lambda: not is_alive(int(note.read_text())))
    assert session[Count].count() == 0
    assert outcomes(session) == ["succeeded", "timeout"]
    assert eventually(lambda: abandoned_count() == 0)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def stuck_again_and_again(rounds: int) -> None:
    tools = [make(handler, isolation="process", timeout=0.1) for handler in NINE]
    with executor_of(*tools) as executor:

        def once(number: int) -> None:
            name = tools[number % len(tools)].name
            assert executor.execute(call(name, str(number))).outcome == "timeout"

        def settled() -> tuple[int, int]:
            gc.collect()
            assert eventually(lambda: abandoned_count() == 0)
            return len(children()), fd_count()

        for number in range(2):
            once(number)
        before, memory = settled(), resident()
        for number in range(2, rounds):
            once(number)
        assert eventually(lambda: settled() <= before), (before, settled())
        assert resident() - memory < 10_000_000


def test_stuck_processes_leave_nothing_behind() -> None:
    """After a few killed handlers there are no more processes, file descriptors or memory than before."""
    stuck_again_and_again(7)


@pytest.mark.torture
def test_a_hundred_stuck_processes_leave_nothing_behind() -> None:
    """After a hundred killed handlers there are no more processes, file descriptors or memory than before."""
    stuck_again_and_again(103)
