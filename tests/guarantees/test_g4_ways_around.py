"""G4: nothing that can be reached from a context is a way around its fence.

Every public attribute, three levels deep, is looked at, and every write that it offers is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.runtime.limits_parts import Count, Text, call, executor_of, make

from weakincentives.filesystem import Filesystem, InMemoryFilesystem, SubFilesystem
from weakincentives.prompt import ToolResult
from weakincentives.runtime import Session, ToolInvoked


class Workspace(SubFilesystem):
    """A view that is bound under a type of its own."""


@dataclass(frozen=True)
class Planted:
    text: str = ""


def _event(_: Any, event: Any) -> Any:
    raise AssertionError("a reducer that must not be registered")


WRITES: dict[str, Callable[[Any], object]] = {
    "write": lambda thing: thing.write("planted.txt", "x"),
    "append": lambda thing: thing.append(Count(7)),
    "append_file": lambda thing: thing.append("planted.txt", "x"),
    "delete": lambda thing: thing.delete("kept.txt"),
    "mkdir": lambda thing: thing.mkdir("planted"),
    "copy": lambda thing: thing.copy("kept.txt", "planted.txt"),
    "move": lambda thing: thing.move("kept.txt", "planted.txt"),
    "restore": lambda thing: thing.restore(thing.snapshot()),
    "dispatch": lambda thing: thing.dispatch(Planted()),
    "record": lambda thing: thing.record(Planted()),
    "recorder": lambda thing: thing.recorder()(Planted()),
    "note": lambda thing: thing.note("planted", 1),
    "reset": lambda thing: thing.reset(),
    "reset_logs": lambda thing: thing.reset(logs=True),
    "seed": lambda thing: thing[Count].seed(Count(7)),
    "slice": lambda thing: thing[Count].append(Count(7)),
    "clear": lambda thing: thing[Count].clear(),
    "register": lambda thing: thing[Count].register(Planted, _event),
    "subscribe": lambda thing: thing.subscribe(object, heard.append),
    "get": lambda thing: thing.get(Filesystem).write("planted.txt", "x"),
    "get_view": lambda thing: thing.get(Workspace).write("planted.txt", "x"),
    "scope": lambda thing: thing.tool_scope().get(Filesystem).write("planted.txt", "x"),
    "close": lambda thing: thing.discard(0),
}

heard: list[object] = []


def reachable(thing: Any, depth: int, path: str = "context") -> Iterator[tuple[str, Any]]:
    """What public attributes lead to."""
    yield path, thing
    if depth == 0 or isinstance(thing, str | bytes | int | float | type | None):
        return
    for name in dir(thing):
        if name.startswith("_"):
            continue
        try:
            value = getattr(thing, name)
        except Exception:
            continue
        if callable(value) and not hasattr(value, "write") and not hasattr(value, "dispatch"):
            continue
        yield from reachable(value, depth - 1, f"{path}.{name}")


def try_everything(context: Any) -> list[str]:
    """Try each write on each thing; which of them did not raise."""
    passed: list[str] = []
    for path, thing in reachable(context, 3):
        for name, write in WRITES.items():
            try:
                write(thing)
            except Exception:
                continue
            passed.append(f"{path}: {name}")
    return passed


def world() -> tuple[Session, InMemoryFilesystem, dict[Any, Any]]:
    fs = InMemoryFilesystem()
    fs.write("kept.txt", "kept")
    session = Session(parent=Session())
    session[Count].append(Count(1))
    return session, fs, {Filesystem: fs, Workspace: Workspace(fs, ".")}


def picture(session: Session, fs: InMemoryFilesystem) -> object:
    parent = session.parent
    assert parent is not None
    return (
        list(session[Count].all()), session[Planted].count(), parent[Count].count(), parent[Planted].count(),
        session.noted("planted"), fs.list("."), fs.read("kept.txt"),
    )  # fmt: skip


@pytest.mark.parametrize("ended", ["succeeded", "failed"])
def test_no_attribute_of_a_context_writes_after_the_call(ended: str) -> None:
    """Whatever was reachable during the call, or is asked for afterwards: nothing changes."""
    heard.clear()
    kept: list[Any] = []

    def keeps(params: Text, *, context: Any) -> ToolResult[str]:
        list(reachable(context, 3))
        kept.append(context)
        return ToolResult.ok("") if ended == "succeeded" else ToolResult.error("no")

    session, fs, resources = world()
    with executor_of(keeps, session=session, resources=resources) as executor:
        assert executor.execute(call("keeps", "1")).outcome == ended
        before = picture(session, fs)
        try_everything(kept[0])
        assert picture(session, fs) == before
        assert session[ToolInvoked].count() == 1
        session.dispatcher.dispatch(Planted("told"))
        assert heard == []


def test_no_attribute_of_a_context_writes_in_a_read_only_tool() -> None:
    """A tool that only reads cannot write, whichever way it goes."""
    heard.clear()
    seen: list[object] = []

    def looks(params: Text, *, context: Any) -> ToolResult[str]:
        seen.append(picture(session, fs))
        try_everything(context)
        seen.append(picture(session, fs))
        return ToolResult.ok("")

    session, fs, resources = world()
    with executor_of(make(looks, read_only=True), session=session, resources=resources) as executor:
        assert executor.execute(call("looks", "1")).success
        session.dispatcher.dispatch(Planted("told"))
    assert seen[0] == seen[1] == picture(session, fs)
    assert heard == []


def test_the_walk_finds_ways_in_while_a_call_runs() -> None:
    """In a writing tool the same attempts succeed: the walk can notice a write, and a failed call undoes them all."""
    passed: list[str] = []

    def writes(params: Text, *, context: Any) -> ToolResult[str]:
        passed.extend(try_everything(context))
        return ToolResult.error("undo")

    session, fs, resources = world()
    before = picture(session, fs)
    with executor_of(writes, session=session, resources=resources) as executor:
        executor.execute(call("writes", "1"))
    assert {"context.session: slice", "context.filesystem: write", "context.resources: get_view"} <= set(passed)
    after = picture(session, fs)
    assert after == before
