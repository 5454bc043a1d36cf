"""G8, flat: what a call costs does not depend on how much state, log or how many files there are."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.world import Go, Note, World, make_tool, ok

from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session

LARGE = 100_000


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    """One small change, kept or undone."""
    assert context.filesystem is not None
    context.session[Note].append(Note("x"))
    context.filesystem.write("kept.txt", "during")
    return ok() if params.number % 2 else ToolResult.error("No.")


def seconds(world: World, calls: int = 40) -> float:
    """The best time of a kept call and an undone one."""
    best = float("inf")
    for number in range(calls):
        begun = time.perf_counter()
        world.call(arguments={"number": number})
        world.call(arguments={"number": number + 1})
        best = min(best, time.perf_counter() - begun)
    return best


def ratio(large: Callable[[], World], small: Callable[[], World]) -> float:
    """How much longer a call takes in the large world, in the better of three rounds."""
    one, other = large(), small()
    gc.collect()
    gc.disable()
    try:
        return min(seconds(one) / seconds(other) for _ in range(3))
    finally:
        gc.enable()


def world(**options: Any) -> World:
    return World(make_tool(act, max_repeats=None), **options)


@pytest.mark.slow
def test_state_of_any_size() -> None:
    """A call in a session of 100,000 STATE items costs what it costs in an empty one."""

    def full() -> World:
        session = Session()
        session[int].seed(range(LARGE))
        made = world(session=session)
        made.session[Note].seed([Note(str(number)) for number in range(LARGE)])
        return made

    assert ratio(full, world) < 3


@pytest.mark.slow
def test_a_log_of_any_size() -> None:
    """A call in a session of 100,000 events costs what it costs in a new one."""

    def old() -> World:
        made = world()
        for _ in range(LARGE):
            made.session.record(ToolInvoked(tool_name="act", success=True))
        return made

    assert ratio(old, world) < 3


@pytest.mark.slow
def test_files_of_any_number() -> None:
    """A call in a workspace of 20,000 files in memory costs what it costs in one of ten."""

    def many(count: int) -> Callable[[], World]:
        return lambda: world(files=InMemoryFilesystem({f"d{n % 100}/{n}.txt": "x" for n in range(count)}))

    assert ratio(many(20_000), many(10)) < 3


@pytest.mark.torture
def test_files_on_disk_of_any_number(tmp_path: Path) -> None:
    """A call in a workspace of 50,000 files on disk costs what it costs in one of ten."""

    def many(name: str, count: int) -> World:
        root = tmp_path / name
        for number in range(count):
            path = root / f"d{number % 500}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        return world(files=HostFilesystem(root))

    assert ratio(lambda: many("many", 50_000), lambda: many("few", 10)) < 3


@pytest.mark.slow
def test_nothing_is_kept_for_calls_that_are_over() -> None:
    """After many calls no snapshot is alive and the executor holds nothing of them but the log."""
    made = world()
    for number in range(2_000):
        made.call(arguments={"number": number})
    made.heard.clear()
    made.session.reset(logs=True)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(2_000):
        made.call(arguments={"number": number})
    made.heard.clear()
    made.session.reset(logs=True)
    gc.collect()
    assert len(gc.get_objects()) - before < 500
    assert made.counter.alive == 0
