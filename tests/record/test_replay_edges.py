"""Replays of what does not go by itself: async and isolated handlers, agents in calls, runs that failed."""

from __future__ import annotations

import asyncio
import platform
import socket
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from weakincentives import MainLoop, PromptTemplate, Session
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.errors import PromptEvaluationError, RunFormatError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.session import SlicePolicy, append_all, replace_latest
from weakincentives.testing import ReplayResult, ScriptedAdapter, call, replay, say

CLOSED = ToolAnnotations(open_world=False)


@dataclass(frozen=True)
class Number:
    n: int = 0


@dataclass(frozen=True)
class Count:
    n: int = 0


@dataclass(frozen=True)
class Log:
    n: int
    slice_policy = SlicePolicy.LOG


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


def prompt(*tools: Tool[Any, Any], **options: Any) -> Prompt[Any]:
    return Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do it.", tools=tools, **options)])


def tool(handler: Any, *, name: str = "act", **options: Any) -> Tool[Any, Any]:
    arguments: dict[str, Any] = {"annotations": CLOSED, **options}
    return Tool[Number, Any](name=name, description=name, handler=handler, **arguments)


def record(store: SqliteRunStore, made: Prompt[Any], *turns: Any, session: Session | None = None) -> Any:
    types = (Count, Log)
    with suppress(PromptEvaluationError):
        ScriptedAdapter(*turns).evaluate(made, session or Session(), record=store.run("r", types=types))
    return store.open("r")


def kinds(result: ReplayResult) -> list[tuple[str, str]]:
    return [(found.kind, found.path) for found in result.divergences]


def test_async_handlers_run_and_fail(store: SqliteRunStore) -> None:
    """Like others, also when they are made to fail."""

    async def act(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        await asyncio.sleep(0)
        context.session[Count].append(Count(params.n))
        return ToolResult.ok(params.n)

    made = prompt(tool(act))
    run = record(store, made, call("act", n=1), call("act", n=2), say("Done."))
    replay(run, made, types=[Count]).assert_same()
    step = run.calls()[1].seq
    ends: list[tuple[Any, str]] = [("timeout", "timeout"), (ValueError("no"), "crashed")]
    for fault, outcome in ends:
        result = replay(run, made, types=[Count], faults={step: fault})
        assert result.call(step).outcome == outcome
        assert list(result.session[Count].all()) == [Count(1)]


def test_read_only_calls_overlap_when_they_are_served(store: SqliteRunStore) -> None:
    """Each gets the answer of its own call."""

    def look(params: Number) -> ToolResult[Any]:
        time.sleep(0.01)
        return ToolResult.ok(f"saw {params.n} in {threading.current_thread().name[:0]}")

    made = prompt(tool(look, annotations=ToolAnnotations(read_only=True)))
    turn = [call("act", n=n) for n in range(6)]
    run = record(store, made, turn, turn, say("Done."))
    result = replay(run, made)
    result.assert_same()
    assert result.capture.served == {"act": 12}


def act_apart(params: Number) -> ToolResult[Any]:
    return ToolResult.ok(params.n + 1)


def test_an_idempotent_tool_is_served(store: SqliteRunStore) -> None:
    """Also where the ledger answered, and wherever its handler would run."""
    made = prompt(tool(act_apart, isolation="thread", idempotency=IdempotencyConfig(), timeout=30))
    run = record(store, made, call("act", n=1), call("act", n=1), say("Done."))
    assert [step.outcome for step in run.calls()] == ["succeeded", "replayed"]
    result = replay(run, made)
    result.assert_same()
    assert result.capture.served == {"act": 2}


def test_an_agent_inside_a_call_is_served(store: SqliteRunStore) -> None:
    """What its model said is not on record; a tool that runs all the same is told so."""
    inner = prompt(tool(act_apart, name="inner"))

    def ask(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        adapter: Any = context.adapter
        return ToolResult.ok(adapter.evaluate(inner, Session()).text)

    for hint, found in ((True, []), (False, [("outcome", "act")])):
        made = prompt(tool(ask, annotations=ToolAnnotations(open_world=hint)))
        with SqliteRunStore(store.path.with_name(f"{hint}.db")) as other:
            script = (call("act"), call("inner", n=1), say("inner says"), say("Done."))
            run = record(other, made, *script)
            result = replay(run, made)
            assert kinds(result) == found
            if found:
                assert "is not on record" in result.divergences[0].present


def test_a_run_that_failed_fails_again(store: SqliteRunStore) -> None:
    """With the same error; another one is another output."""
    text = "cannot go on"

    def act(params: Number) -> ToolResult[Any]:
        raise PromptEvaluationError(text, phase="tool")

    made = prompt(tool(act))
    run = record(store, made, call("act"))
    assert run.info.status == "failed"
    replay(run, made).assert_same()
    text = "something else"
    assert kinds(replay(run, made)) == [("reply", "act"), ("output", "message")]


def test_a_tool_that_changed_its_contract_is_a_decision(store: SqliteRunStore) -> None:
    """Arguments that no longer fit, and a tool that is gone."""
    run = record(store, prompt(tool(act_apart)), call("act", n=1), say("Done."))

    class Other(BaseModel):
        m: int

    def act(params: Other) -> ToolResult[Any]:
        return ToolResult.ok(1)

    changed = Tool[Other, Any](name="act", description="act", handler=act, annotations=CLOSED)
    assert ("decision", "act") in kinds(replay(run, prompt(changed)))
    gone = replay(run, prompt(tool(act_apart, name="other")), ignore=("tools",))
    assert kinds(gone) == [("decision", "act")]
    assert "unknown_tool" in gone.divergences[0].present


def test_a_served_call_that_timed_out_is_not_compared(store: SqliteRunStore) -> None:
    """No handler can end like that; the report names the step."""

    def slow(params: Number) -> ToolResult[Any]:
        time.sleep(5 if params.n else 0)
        return ToolResult.ok(params.n)

    made = prompt(tool(slow, annotations=ToolAnnotations(), timeout=0.05))
    run = record(store, made, call("act", n=1), say("Done."))
    assert run.calls()[0].outcome == "timeout"
    result = replay(run, made)
    result.assert_same()
    assert dict(result.capture.not_made) == {run.calls()[0].seq: "timeout"}


def test_served_calls_bring_their_changes(store: SqliteRunStore) -> None:
    """State of every kind, notes and files, so that what runs afterwards finds what it found then."""

    def effect(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        session = context.session
        latest = session[Count].latest() or Count(0)
        session[Count].seed(Count(latest.n + params.n))
        session.dispatch(Log(params.n))
        session.note("last", params.n)
        assert context.filesystem is not None
        context.filesystem.write("made/by.txt", str(params.n))
        return ToolResult.ok(None, message="ok")

    def look(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        session, fs = context.session, context.filesystem
        assert fs is not None
        text = f"{list(session[Count].all())} {list(session[Log].all())} {session.noted('last')}"
        return ToolResult.ok(None, message=f"{text} {fs.read('made/by.txt')}")

    made = prompt(tool(effect, name="effect", annotations=ToolAnnotations()), tool(look, name="look"))
    bound = made.bind(resources={Filesystem: InMemoryFilesystem()})
    session = Session()
    session[Count].seed(Count(10))
    turns = (call("effect", n=1), call("look"), call("effect", n=2), call("effect", n=3), call("look", n=1), say("."))
    run = record(store, bound, *turns, session=session)
    again = made.bind(resources={Filesystem: InMemoryFilesystem({"made/by.txt": "left over"})})
    result = replay(run, again, types=[Count, Log])
    result.assert_same()
    assert list(result.session[Count].all()) == [Count(16)]
    assert result.session[Log].count() == 3
    assert result.capture.served == {"effect": 3}


class NotToday:
    def check(self, tool_name: str, params: Any, context: Any) -> str:
        return "Not today."


def test_reducers_and_policies_of_today_see_served_calls(store: SqliteRunStore) -> None:
    """What a reducer makes of a result is compared; so is what a policy says."""

    def pay(params: Number) -> ToolResult[Any]:
        return ToolResult.ok(Number(params.n), message="Paid.")

    def world(factor: int, **options: Any) -> tuple[Prompt[Any], Session]:
        session = Session()
        session[Count].register(Number, lambda view, event: replace_latest(view, Count(event.n * factor)))
        return prompt(tool(pay, annotations=ToolAnnotations()), **options), session

    made, session = world(1)
    run = record(store, made, call("act", n=2), say("Done."), session=session)
    replay(run, world(1)).assert_same()
    assert kinds(replay(run, world(5))) == [("state", f"{Count.__module__}:Count")]
    refused = replay(run, world(1, policies=[NotToday()]))
    assert kinds(refused) == [("decision", "act")]


@pytest.mark.parametrize("how", ["append", "seed", "log", "twice"])
def test_a_slice_that_handler_and_reducer_change_goes_as_it_did(store: SqliteRunStore, how: str) -> None:
    """The record has what both did together; which part was the handler's is found by running the reducer."""
    kind: Any = Log if how == "log" else Count

    def pay(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        slice_ = context.session[kind]
        if how == "seed":
            slice_.seed([kind(7), kind(params.n)])
        else:
            slice_.append(kind(params.n))
        return ToolResult.ok(Number(params.n), message="Paid.")

    def world(factor: int) -> tuple[Prompt[Any], Session]:
        session = Session()
        for _ in range(2 if how == "twice" else 1):
            session[kind].register(Number, lambda view, event: append_all(view, kind(event.n * factor)))
        return prompt(tool(pay, annotations=ToolAnnotations())), session

    made, session = world(10)
    run = record(store, made, call("act", n=2), call("act", n=3), say("Done."), session=session)
    result = replay(run, world(10), types=[Count, Log])
    result.assert_same()
    assert list(result.session[kind].all()) == list(session[kind].all())
    changed = kinds(replay(run, world(20), types=[Count, Log]))
    assert changed[0] == ("state", f"{kind.__module__}:{kind.__name__}")


def test_a_class_that_is_not_known_is_named(store: SqliteRunStore) -> None:
    """With what to do about it; nothing is imported by a name in a record."""
    session = Session()
    session[Count].seed(Count(1))
    run = record(store, prompt(), say("Done."), session=session)
    with pytest.raises(RunFormatError, match=r"Count is not among the classes.*types="):
        replay(run, prompt())
    replay(run, prompt(), types=[Count]).assert_same()


def test_prepare_that_raises_passes_on(store: SqliteRunStore) -> None:
    """It is the program that is broken, not the run."""

    class Broken(MainLoop[str, str]):
        works = True

        def prepare(self, request: str) -> Any:
            if not self.works:
                raise LookupError("no database")
            return Prompt(PromptTemplate[str](ns="t", key="t", sections=prompt().sections)), Session()

    Broken(ScriptedAdapter(say("Hi.")), config=MainLoopConfig(runs=store)).execute("hi", run_id="b")
    replay(store.open("b"), Broken).assert_same()
    Broken.works = False
    with pytest.raises(LookupError, match="no database"):
        replay(store.open("b"), Broken)
    with pytest.raises(TypeError, match=r"replay\(\) takes a MainLoop"):
        replay(store.open("b"), lambda adapter: adapter)


@pytest.mark.parametrize("kind", ["plain", "limited", "async"])
def test_a_replay_opens_no_connection(store: SqliteRunStore, kind: str) -> None:
    """A tool that says it stays inside is held to it, in whatever thread it runs; one that is named may."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def act(params: Number) -> ToolResult[Any]:
            socket.create_connection(address).close()
            return ToolResult.ok("connected")

        async def act_async(params: Number) -> ToolResult[Any]:
            _, writer = await asyncio.open_connection(*address)
            writer.close()
            return ToolResult.ok("connected")

        made = prompt(tool(act_async if kind == "async" else act, timeout=30 if kind == "limited" else None))
        run = record(store, made, call("act"), say("Done."))
        assert run.calls()[0].outcome == "succeeded"
        result = replay(run, made)
        assert kinds(result) == [("outcome", "act")]
        assert "A replay opens no connection" in result.divergences[0].present
        replay(run, made, run=("act",)).assert_same()
        socket.create_connection(address).close()


@pytest.mark.parametrize("kind", ["plain", "limited", "async", "read-only"])
def test_handlers_see_the_times_of_then(store: SqliteRunStore, tmp_path: Path, kind: str) -> None:
    """To the last digit, whichever thread they run in; code outside of calls sees about that time."""
    seen: list[float] = []

    def read(params: Number, context: ToolContext) -> ToolResult[Any]:
        clock = context.session.clock
        began = clock.monotonic()
        seen.append(clock.time())
        if kind != "read-only":
            context.session[Count].append(Count(int(clock.time() * 1e6)))
        return ToolResult.ok(f"{clock.now().isoformat()} {clock.time()!r} {clock.monotonic() - began!r}")

    def act(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        return read(params, context)

    async def act_async(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        await asyncio.sleep(0)
        return read(params, context)

    class Watched:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
            seen.append(context.session.clock.time())

    hints = ToolAnnotations(open_world=False, read_only=kind == "read-only")
    handler = act_async if kind == "async" else act
    made = prompt(tool(handler, annotations=hints, timeout=30 if kind == "limited" else None), policies=[Watched()])
    session = Session()
    run = record(store, made, [call("act", n=1), call("act", n=2)], call("act", n=3), say("."), session=session)
    assert session.clock is SYSTEM_CLOCK
    time.sleep(0.01)
    then = sorted(seen)
    seen.clear()
    path = export_run(store, "r", tmp_path / "r.wink")
    result = replay(path, made, types=[Count])
    result.assert_same()
    assert result.session.clock is SYSTEM_CLOCK
    assert all(then[0] - 1 <= moment <= then[-1] for moment in seen)
    assert replay(run, made, types=[Count], ignore=("prompt",), calls="serve").same


def test_a_handler_that_asks_more_often_than_then_gets_the_last_time(store: SqliteRunStore) -> None:
    """And one that did not ask then the time at which its call began."""
    often = 1

    def act(params: Number, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(str({context.session.clock.time() for _ in range(often if params.n else often - 1)}))

    made = prompt(tool(act))
    run = record(store, made, call("act", n=1), call("act", n=0), say("Done."))
    first, second = run.calls()
    often = 2
    result = replay(run, made)
    assert kinds(result) == [("reply", "act")]
    assert result.divergences[0].step == second.seq
    assert str(second.started) in result.divergences[0].present
    assert len(first.body["times"]["time"]) == 1
    assert "times" not in second.body


def test_a_changed_tool_is_named(store: SqliteRunStore, tmp_path: Path) -> None:
    """What the model reads of it, as a diff; one that came or went is in the list of tools."""

    @dataclass(frozen=True)
    class Login:
        password: str = "hunter2hunter2"
        api_key: str = ""

    def act(params: Any) -> ToolResult[Any]:
        return ToolResult.ok("ok")

    def made(description: str, *names: str, params: Any = Number) -> Prompt[Any]:
        tools: list[Any] = [
            Tool[params, Any](name=name, description=description, handler=act, annotations=CLOSED) for name in names
        ]
        return prompt(*tools, tool(act_apart, name="same"))

    run = record(store, made("Do it.", "act"), call("act"), say("Done."))
    path = export_run(store, "r", tmp_path / "r.wink")
    for recorded in (run, path):
        replay(recorded, made("Do it.", "act")).assert_same()
        (found,) = replay(recorded, made("Do it now.", "act")).divergences
        assert (found.kind, found.path) == ("tools", "act")
        assert '-"description": "Do it."' in found.diff.replace(' "', '"', 1).replace('- "', '-"')
        assert kinds(replay(recorded, made("Do it.", "act", "new"))) == [("tools", "tools")]
        changed = replay(recorded, made("Do it.", "act", params=Login))
        assert kinds(changed) == [("tools", "act")]
    with SqliteRunStore(tmp_path / "other.db") as other:
        record(other, made("Log in.", "act", params=Login), call("act"), say("Done."))
        hidden = export_run(other, "r", tmp_path / "hidden.wink")
        replay(hidden, made("Log in.", "act", params=Login)).assert_same()


def test_another_environment_is_in_the_report(store: SqliteRunStore, tmp_path: Path) -> None:
    """What the run was recorded on, where that is not what it is replayed on."""
    made = prompt(tool(act_apart))
    record(store, made, call("act", n=1), say("Done."))
    path = export_run(store, "r", tmp_path / "r.wink")
    assert replay(path, made).capture.environment == {}
    with closing(sqlite3.connect(path)) as database, database:
        now = platform.python_version()
        changed = "UPDATE wink_steps SET body = replace(body, ?, '2.7.18') WHERE seq = 1"
        assert database.execute(changed, (now,)).rowcount == 1
    result = replay(path, made)
    assert result.capture.environment == {"python": ("2.7.18", now)}
    assert f"recorded with python 2.7.18, replayed with {now}" in str(result)
