"""G9, ordered: calls of one turn take effect in the model's order; only read-only tools overlap."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.world import Go, Note, World, make_tool, ok

from weakincentives.prompt import ToolAnnotations, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import ToolCall, ToolReply
from weakincentives.session import Append, SliceOp

READ_ONLY = ToolAnnotations(read_only=True)


@dataclass(frozen=True)
class Found:
    """What a read-only tool reports; a reducer notes it."""

    number: int

    def render(self) -> str:
        return str(self.number)


def note_found(view: Sequence[Note], event: Found) -> SliceOp[Note]:
    return Append(Note(str(event.number)))


class Turns:
    """A world with a tool that writes and one that only reads, both noting when they run."""

    def __init__(self, seed: int = 0) -> None:
        self.running = 0
        self.most = 0
        self.beside_a_writer = False
        self.writing = False
        self.lock = threading.Lock()
        chance = random.Random(seed)

        def begin(writes: bool) -> None:
            with self.lock:
                self.running += 1
                self.most = max(self.most, self.running)
                self.beside_a_writer |= self.running > 1 and (self.writing or writes)
                self.writing |= writes

        def end(writes: bool) -> None:
            with self.lock:
                self.running -= 1
                self.writing &= not writes

        def write(params: Go, *, context: ToolContext) -> ToolResult[Any]:
            begin(True)
            time.sleep(chance.random() * 0.003)
            context.session[Note].append(Note(str(params.number)))
            end(True)
            return ok() if params.how == "" else ToolResult.error("No.")

        def read(params: Go, *, context: ToolContext) -> ToolResult[Any]:
            begin(False)
            time.sleep(0.002 + chance.random() * 0.004)
            end(False)
            return ToolResult.ok(Found(params.number)) if params.how == "" else ToolResult.error("No.")

        async def aread(params: Go, *, context: ToolContext) -> ToolResult[Any]:
            begin(False)
            await asyncio.sleep(0.002 + chance.random() * 0.004)
            end(False)
            return ToolResult.ok(Found(params.number)) if params.how == "" else ToolResult.error("No.")

        self.world = World(
            make_tool(write, "write", max_repeats=None),
            make_tool(read, "read", annotations=READ_ONLY, max_repeats=None),
            make_tool(aread, "aread", annotations=READ_ONLY, max_repeats=None),
        )
        self.world.session[Note].register(Found, note_found)

    def run(self, calls: list[ToolCall], asynchronous: bool) -> list[ToolReply]:
        if asynchronous:
            return asyncio.run(self.world.executor.aexecute_all(calls))
        return self.world.executor.execute_all(calls)


def calls_of(kinds: list[tuple[str, str]]) -> list[ToolCall]:
    return [ToolCall(f"c{n}", kind, {"how": how, "number": n}) for n, (kind, how) in enumerate(kinds)]


KINDS = st.lists(
    st.tuples(st.sampled_from(["write", "read", "aread", "unknown"]), st.sampled_from(["", "fail"])), max_size=10
)


@settings(max_examples=25)
@given(kinds=KINDS, asynchronous=st.booleans(), seed=st.integers(0, 1000))
def test_effects_replies_and_events_are_in_the_models_order(
    kinds: list[tuple[str, str]], asynchronous: bool, seed: int
) -> None:
    """Whatever overlaps, state, replies and events come in the model's order, and nothing runs beside a writer."""
    turns = Turns(seed)
    calls = calls_of(kinds)
    replies = turns.run(calls, asynchronous)
    expected = [str(n) for n, (kind, how) in enumerate(kinds) if kind != "unknown" and how == ""]
    assert [note.text for note in turns.world.session[Note].all()[1:]] == expected
    assert [reply.call_id for reply in replies] == [call.id for call in calls]
    assert [event.call_id for event in turns.world.events] == [call.id for call in calls]
    assert not turns.beside_a_writer


@pytest.mark.parametrize("asynchronous", [False, True])
def test_read_only_calls_overlap(asynchronous: bool) -> None:
    """Read-only calls that follow one another run at the same time; writing ones never do."""
    turns = Turns()
    turns.run(calls_of([("aread", "")] * 4), asynchronous)
    assert turns.most > 1
    turns = Turns()
    turns.run(calls_of([("write", "")] * 4), asynchronous)
    assert turns.most == 1


def test_a_writer_waits_for_readers_and_readers_for_the_writer() -> None:
    """A writing call between read-only ones runs alone, and the later ones see what it wrote."""
    seen: list[tuple[int, int]] = []

    def read(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        time.sleep(0.002)
        seen.append((params.number, context.session[Note].count()))
        return ok()

    def write(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("x"))
        return ok()

    world = World(make_tool(read, "read", annotations=READ_ONLY), make_tool(write, "write"))
    world.executor.execute_all(calls_of([("read", ""), ("read", ""), ("write", ""), ("read", ""), ("read", "")]))
    assert sorted(seen) == [(0, 1), (1, 1), (3, 2), (4, 2)]


def test_at_most_sixteen_overlap() -> None:
    """A turn of a hundred read-only calls does not start a hundred threads."""
    turns = Turns()
    turns.run(calls_of([("read", "")] * 100), asynchronous=False)
    assert 1 < turns.most <= 16


@pytest.mark.parametrize("asynchronous", [False, True])
def test_read_only_handles_refuse_writes(asynchronous: bool) -> None:
    """A read-only tool that writes to session, dispatcher or files fails and is told so; nothing is changed."""
    heard: list[str] = []

    def write(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        files = context.filesystem
        assert files is not None
        match params.number:
            case 0:
                context.session[Note].append(Note("x"))
            case 1:
                context.session.dispatch(Note("x"))
            case 2:
                context.session.dispatcher.dispatch("an event")
            case 3:
                files.write("kept.txt", "x")
            case 4:
                files.delete("kept.txt")
            case _:
                files.mkdir("new")
        return ok()

    world = World(make_tool(write, annotations=READ_ONLY))
    world.session.dispatcher.subscribe(str, heard.append)
    before = world.picture()
    calls = [ToolCall(str(number), "act", {"number": number}) for number in range(6)]
    replies = asyncio.run(world.executor.aexecute_all(calls)) if asynchronous else world.executor.execute_all(calls)
    for reply in replies:
        assert reply.outcome == "crashed"
        assert "read-only" in reply.text
    assert world.picture() == before
    assert heard == []


def test_a_read_only_call_settles_like_any_other() -> None:
    """Reducers of a read-only tool's value, and subscribers, work as for any call."""
    turns = Turns()

    def refuse(event: ToolInvoked) -> None:
        raise RuntimeError("no")

    (reply,) = turns.run(calls_of([("read", "")]), asynchronous=False)
    assert reply.text == "OK\n0"
    assert turns.world.session[Note].count() == 2
    turns.world.session.dispatcher.subscribe(ToolInvoked, refuse)
    (reply,) = turns.run([ToolCall("another", "read", {})], asynchronous=False)
    assert reply.outcome == "undone"
    assert turns.world.session[Note].count() == 2


def test_one_call_after_another_from_tasks() -> None:
    """Tasks that call tools of one session at the same time take turns; none is lost and none overlaps."""
    turns = Turns()

    async def main() -> None:
        await asyncio.gather(*(turns.world.acall("write", {"number": number}) for number in range(20)))

    asyncio.run(main())
    assert turns.most == 1
    assert turns.world.session[Note].count() == 21


def test_a_writer_waits_for_readers_of_other_threads() -> None:
    """A writing call that comes while a read-only one runs elsewhere begins when that is over, and not before."""
    reading, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def read(params: Go) -> ToolResult[Any]:
        reading.set()
        go_on.wait(10)
        order.append("read")
        return ok()

    def write(params: Go) -> ToolResult[Any]:
        order.append("write")
        return ok()

    world = World(make_tool(read, "read", annotations=READ_ONLY), make_tool(write, "write"))
    reader = threading.Thread(target=world.call, args=("read",))
    writer = threading.Thread(target=world.call, args=("write",))
    reader.start()
    assert reading.wait(10)
    writer.start()
    writer.join(0.05)
    assert order == []
    go_on.set()
    reader.join(10)
    writer.join(10)
    assert order == ["read", "write"]
