"""Runs on record where something interferes: interrupts, subscribers, agents inside tools, other programs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import (
    NotResumableError,
    PromptError,
    PromptEvaluationError,
    RecordError,
    RunBusyError,
    RunConflictError,
    RunFormatError,
    WorldChangedError,
)
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore, transaction
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record.rows import digest_of
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Added:
    name: str


TYPES = (Item, Added)
Script = list[Callable[[], ModelTurn]]


def calls(turn: int, *names: str, tool: str = "add") -> Callable[[], ModelTurn]:
    """A turn that adds these."""
    made = tuple(CallMessage(f"t{turn}c{n}", tool, json.dumps({"name": name})) for n, name in enumerate(names))
    return lambda: ModelTurn("", made, stop_reason="tool_use")


class Model(TurnAdapter):
    """Says what its script has at this point of the conversation."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.asked: list[int] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        self.asked.append(at)
        return self.script[at]()


SCRIPT: Script = [calls(0, "a"), calls(1, "b", "c"), calls(2, "d"), lambda: ModelTurn("done")]


class Agent:
    """A prompt with one tool, made anew in every process."""

    def __init__(self, **hints: Any) -> None:
        self.session = Session()
        self.ran: list[str] = []
        self.during: dict[str, Callable[[ToolContext], Any]] = {}
        annotations = ToolAnnotations(**{"open_world": False, **hints})
        tool = Tool[Item, Any](name="add", description="Add.", handler=self.add, annotations=annotations)
        self.prompt = Prompt(name="agent", sections=[MarkdownSection(title="Task", template="Add.", tools=[tool])])

    def add(self, params: Item, *, context: ToolContext) -> ToolResult[Any]:
        self.ran.append(params.name)
        context.session[Added].append(Added(params.name))
        if params.name in self.during:
            self.during.pop(params.name)(context)
        return ToolResult.ok(None, "Added.")

    def run(self, store: SqliteRunStore, model: TurnAdapter, run_id: str = "r") -> Any:
        return model.evaluate(self.prompt, self.session, record=store.run(run_id, types=TYPES))

    @property
    def added(self) -> list[str]:
        return [item.name for item in self.session[Added].all()]

    @property
    def events(self) -> list[tuple[str | None, str]]:
        return [(event.call_id, event.outcome) for event in self.session[ToolInvoked].all()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


def raising(error: BaseException) -> Callable[[ToolContext], Any]:
    """What raises when it is called."""

    def step(_: ToolContext) -> None:
        raise error

    return step


EVENTS = [("t0c0", "succeeded"), ("t1c0", "succeeded"), ("t1c1", "succeeded"), ("t2c0", "succeeded")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["a", "b", "c", "d"])
def test_an_interrupted_run_goes_on(store: SqliteRunStore, error: type[BaseException], at: str) -> None:
    """The call that was interrupted is run again; those that the end of the evaluation answered are run as well."""
    agent, model = Agent(), Model(SCRIPT)
    agent.during[at] = raising(error())
    with pytest.raises(error):
        agent.run(store, model)
    assert [info.interrupted for info in store.infos()] == [True]
    again, other = Agent(), Model(SCRIPT)
    assert again.run(store, other).text == "done"
    assert (again.added, again.events) == (["a", "b", "c", "d"], EVENTS)
    assert model.asked + other.asked == [0, 1, 2, 3]
    assert agent.ran + again.ran == [*"abcd"[: "abcd".index(at) + 1], *"abcd"["abcd".index(at) :]]


def test_a_call_that_may_have_reached_the_world_is_unknown_after_an_interrupt(store: SqliteRunStore) -> None:
    """Its row says that it was started; the model is told to check."""
    agent = Agent(open_world=True)
    agent.during["b"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        agent.run(store, Model(SCRIPT))
    again = Agent(open_world=True)
    assert again.run(store, Model(SCRIPT)).text == "done"
    assert again.ran == ["c", "d"]
    assert again.events[1] == ("t1c0", "unknown")
    assert "Check before you repeat it" in again.session[ToolInvoked].all()[1].rendered_output


def test_a_tool_that_may_be_repeated_is(store: SqliteRunStore) -> None:
    """`ToolAnnotations(idempotent=True)` says that a second run does no harm."""
    agent = Agent(open_world=True, idempotent=True)
    agent.during["b"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        agent.run(store, Model(SCRIPT))
    again = Agent(open_world=True, idempotent=True)
    again.run(store, Model(SCRIPT))
    assert again.ran == ["b", "c", "d"]
    assert again.events == EVENTS


def test_async_code_is_recorded_and_goes_on_after_it_was_cancelled(store: SqliteRunStore) -> None:
    """The call that ran is undone and run again."""
    agent, model = Agent(), Model(SCRIPT)

    async def cancelled() -> None:
        task = asyncio.ensure_future(model.aevaluate(agent.prompt, agent.session, record=store.run("r", types=TYPES)))
        loop = asyncio.get_running_loop()
        agent.during["c"] = lambda _: loop.call_soon_threadsafe(task.cancel)
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    again, other = Agent(), Model(SCRIPT)
    response = asyncio.run(other.aevaluate(again.prompt, again.session, record=store.run("r", types=TYPES)))
    assert response.text == "done"
    assert (again.added, again.events) == (["a", "b", "c", "d"], EVENTS)
    assert sorted({*agent.ran, *again.ran}) == ["a", "b", "c", "d"]
    assert [name for name in agent.ran if name in again.ran] in ([], ["c"])


def test_what_subscribers_and_the_program_write_is_on_record(store: SqliteRunStore) -> None:
    """Each row has what changed since the row before, whoever changed it."""
    agent = Agent()

    def note(event: ToolInvoked) -> None:
        agent.session[Item].append(Item(f"heard {event.call_id}"))

    agent.session.dispatcher.subscribe(ToolInvoked, note)
    agent.during["d"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        agent.run(store, Model(SCRIPT))
    again = Agent()
    again.run(store, Model(SCRIPT))  # nothing listens here: what was heard is on record
    assert [item.name for item in again.session[Item].all()] == ["heard t0c0", "heard t1c0", "heard t1c1"]


def test_what_an_agent_inside_a_tool_did_is_part_of_the_call(store: SqliteRunStore) -> None:
    """Its events are in the log again, once, and nothing of it runs again."""
    inner_ran: list[str] = []

    def ask_another(context: ToolContext) -> None:
        def handler(params: Item, *, context: ToolContext) -> ToolResult[Any]:
            inner_ran.append(params.name)
            context.session[Added].append(Added(f"inner {params.name}"))
            return ToolResult.ok(None, "Done.")

        tool = Tool[Item, Any](name="inner", description="Inner.", handler=handler)
        prompt = Prompt(name="inner", sections=[MarkdownSection(title="T", template="x", tools=[tool])])
        ScriptedAdapter(call("inner", name="x"), say("ok")).evaluate(prompt, context.session)

    agent = Agent()
    agent.during["b"] = ask_another
    agent.during["c"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        agent.run(store, Model(SCRIPT))
    again = Agent()
    again.run(store, Model(SCRIPT))
    assert inner_ran == ["x"]
    assert again.added == ["a", "b", "inner x", "c", "d"]
    names = [event.tool_name for event in again.session[ToolInvoked].all()]
    assert names == ["add", "inner", "add", "add", "add"]
    inner, outer = again.session[ToolInvoked].all()[1], again.session[ToolInvoked].all()[2]
    assert inner.within == outer.event_id


def mailing_prompt(sent: list[str]) -> Prompt[Any]:
    """A prompt with a tool that could leave the machine."""

    def mail(params: Item, *, context: ToolContext) -> ToolResult[Any]:
        sent.append(params.name)
        assert context.session.clock.time() > 0
        return ToolResult.ok(None, "Sent.")

    tool = Tool[Item, Any](name="mail", description="Mail.", handler=mail)
    return Prompt(name="inner", sections=[MarkdownSection(title="T", template="x", tools=[tool])])


def test_a_tool_that_ran_one_that_leaves_the_machine_is_not_run_again(store: SqliteRunStore) -> None:
    """Whatever it says of itself; and what it had changed by then is not on record."""
    sent: list[str] = []

    def ask_another(context: ToolContext) -> None:
        ScriptedAdapter(call("mail", name="x"), say("ok")).evaluate(mailing_prompt(sent), context.session)
        raise KeyboardInterrupt

    agent, again = Agent(), Agent()
    agent.during["b"] = ask_another
    with pytest.raises(KeyboardInterrupt):
        agent.run(store, Model(SCRIPT))
    last = list(store.steps("r"))[-1]
    assert (last.kind, last.call_id, dict(last.body)) == ("started", "t1c0", {})
    again.run(store, Model(SCRIPT))
    assert sent == ["x"]
    assert again.events == [("t0c0", "succeeded"), ("t1c0", "unknown"), *EVENTS[2:]]
    assert again.added == ["a", "c", "d"]


@pytest.mark.parametrize("around", ["a call on record", "a call", "a transaction"])
def test_a_run_inside_something_else_has_its_own_rows(store: SqliteRunStore, around: str) -> None:
    """A tool may ask another agent whose run is recorded: that one is served as any other."""
    sent: list[str] = []

    def ask(*script: Any) -> Session:
        session = Session()
        ScriptedAdapter(*script).evaluate(mailing_prompt(sent), session, record=store.run("inner", types=TYPES))
        return session

    def ask_another(_: object = None) -> None:
        ask(call("mail", name="x"), say("ok"))

    agent = Agent()
    agent.during["a"] = ask_another
    if around == "a call on record":
        agent.run(store, Model(SCRIPT))
    elif around == "a call":
        Model(SCRIPT).evaluate(agent.prompt, agent.session)
    else:
        with transaction(Session()):
            ask_another()
    steps = list(store.steps("inner"))
    assert [step.kind for step in steps] == ["begin", "prompt", "turn", "started", "call", "turn", "end"]
    assert list(steps[4].body["times"]) == ["time"]  # for a replay
    served = ask()
    assert sent == ["x"]
    assert [event.outcome for event in served[ToolInvoked].all()] == ["succeeded"]


def test_a_failed_run_raises_its_error_again(store: SqliteRunStore) -> None:
    """Nothing is asked or run."""

    def broken() -> ModelTurn:
        raise ValueError("the model is out of order")

    agent = Agent()
    with pytest.raises(PromptEvaluationError, match="out of order") as first:
        agent.run(store, Model([calls(0, "a"), broken]))
    again, model = Agent(), Model(SCRIPT)
    with pytest.raises(PromptEvaluationError, match="out of order") as second:
        again.run(store, model)
    assert (first.value.phase, first.value.prompt_name) == (second.value.phase, second.value.prompt_name)
    assert (model.asked, again.ran, again.added) == ([], [], ["a"])
    assert [info.status for info in store.infos()] == ["failed"]


def test_a_run_is_busy_while_it_runs(store: SqliteRunStore) -> None:
    """The same run cannot be begun a second time meanwhile, not even in the same process."""
    agent, other = Agent(), Agent()
    seen: list[str] = []

    def take(_: ToolContext) -> None:
        with pytest.raises(RunBusyError, match="process") as caught:
            other.run(store, Model(SCRIPT))
        seen.append(caught.value.run_id)

    agent.during["b"] = take
    assert agent.run(store, Model(SCRIPT)).text == "done"
    assert (seen, other.ran) == (["r"], [])


def test_a_run_that_was_taken_away_undoes_its_call(store: SqliteRunStore, tmp_path: Path) -> None:
    """The fence: what cannot be recorded under the own token did not happen."""
    agent = Agent()

    def take_away(_: ToolContext) -> None:
        held = store._find("r")  # pyright: ignore[reportPrivateUsage]
        assert held is not None
        store._let_go(*held)  # pyright: ignore[reportPrivateUsage] - as if this process were taken for dead
        with SqliteRunStore(tmp_path / "runs.db") as other:
            other.take("r").release()

    agent.during["b"] = take_away
    with pytest.raises(RunBusyError):
        agent.run(store, Model(SCRIPT))
    assert agent.added == ["a"]
    assert agent.events == [("t0c0", "succeeded"), ("t1c0", "undone"), ("t1c1", "cancelled")]
    assert agent.ran == ["a", "b"]
    again = Agent()
    assert again.run(store, Model(SCRIPT)).text == "done"
    assert (again.added, again.events) == (["a", "b", "c", "d"], EVENTS)


def test_a_result_that_could_not_be_read_back_undoes_its_call(store: SqliteRunStore) -> None:
    """It is refused when it is written, with the tool's name and the fix, not after the crash."""
    agent = Agent()
    agent.add = lambda params, *, context: ToolResult.ok(object(), "Done.")  # type: ignore[assignment,method-assign]
    tool = Tool[Item, Any](name="add", description="Add.", handler=agent.add)
    prompt = Prompt(name="agent", sections=[MarkdownSection(title="Task", template="Add.", tools=[tool])])
    with pytest.raises(RunFormatError, match=r"The result of 'add' cannot be recorded.*plain data"):
        Model(SCRIPT).evaluate(prompt, agent.session, record=store.run("r", types=TYPES))
    assert agent.events == [("t0c0", "undone")]


class Files(MainLoop[str, str]):
    """Writes files in a folder."""

    folder: Path
    stop_at = ""

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        session = Session(bus=self.bus)

        def stop(event: ToolInvoked) -> None:
            if event.call_id == self.stop_at:
                raise KeyboardInterrupt

        session.dispatcher.subscribe(ToolInvoked, stop)
        files = VfsToolsSection(session=session, config=VfsConfig(root=self.folder))
        return Prompt(name="files", sections=[MarkdownSection(title="Task", template=request), files]), session


def write(turn: int, path: str, content: str) -> Callable[[], ModelTurn]:
    made = CallMessage(f"t{turn}c0", "write_file", json.dumps({"path": path, "content": content, "overwrite": True}))
    return lambda: ModelTurn("", (made,), stop_reason="tool_use")


def files_loop(store: SqliteRunStore, folder: Path, stop_at: str = "") -> Files:
    script: Script = [
        write(0, "a.txt", "one"),
        write(1, "a.txt", "two"),
        write(2, "b.txt", "b"),
        lambda: ModelTurn("done"),
    ]
    loop = Files(Model(script), config=MainLoopConfig(runs=store))
    loop.folder, loop.stop_at = folder, stop_at
    folder.mkdir(exist_ok=True)
    return loop


def test_files_that_another_program_changed_stop_a_resume(store: SqliteRunStore, tmp_path: Path) -> None:
    """They are named; the caller says whether they are kept or overwritten."""
    folder = tmp_path / "root"
    with pytest.raises(KeyboardInterrupt):
        files_loop(store, folder, "t2c0").execute("go", run_id="r")
    assert (folder / "a.txt").read_text() == "two"
    (folder / "a.txt").write_text("edited")
    with pytest.raises(WorldChangedError, match=r"a\.txt.*world='keep'") as caught:
        files_loop(store, folder).resume("r")
    assert caught.value.paths == ("a.txt",)
    recorded, found = caught.value.nodes["a.txt"]
    assert recorded is not None
    assert found is not None
    assert recorded.startswith("file:")
    assert found.rpartition(":")[2] == digest_of(b"edited")
    forked = store.fork("r", at=store.open("r").steps()[-1].seq)
    response, _ = files_loop(store, folder).resume("r", world="keep")
    assert (response.text, (folder / "a.txt").read_text(), (folder / "b.txt").read_text()) == ("done", "edited", "b")
    (folder / "b.txt").unlink()
    files_loop(store, folder).resume(forked, world="restore")
    assert ((folder / "a.txt").read_text(), (folder / "b.txt").read_text()) == ("two", "b")


def test_a_run_goes_on_in_a_new_folder(store: SqliteRunStore, tmp_path: Path) -> None:
    """Files are what the run began with and what is on record: another machine has them too."""
    with pytest.raises(KeyboardInterrupt):
        files_loop(store, tmp_path / "first", "t2c0").execute("go", run_id="r")
    files_loop(store, tmp_path / "second").resume("r")
    assert (tmp_path / "second" / "a.txt").read_text() == "two"
    assert (tmp_path / "second" / "b.txt").read_text() == "b"


def test_a_call_that_was_run_again_is_served_by_the_next_attempt(store: SqliteRunStore) -> None:
    """Its record has two starts and one end; the end counts."""
    for at in "bc":  # the second attempt ends in the call after the one that the first ended in
        agent = Agent(open_world=True, idempotent=True)
        agent.during[at] = raising(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            agent.run(store, Model(SCRIPT))
    kinds = [(step.kind, step.call_id) for step in store.open("r").steps() if step.call_id == "t1c0"]
    assert kinds == [("started", "t1c0"), ("started", "t1c0"), ("call", "t1c0")]
    again = Agent(open_world=True, idempotent=True)
    assert again.run(store, Model(SCRIPT)).text == "done"
    assert (again.ran, again.added, again.events) == (["c", "d"], ["a", "b", "c", "d"], EVENTS)


def test_each_attempt_at_a_run_is_counted(store: SqliteRunStore) -> None:
    """Handlers see the number, events keep that of the attempt that made the call; a fork counts for itself."""
    attempts: list[int] = []

    class Counting(MainLoop[str, Any]):
        stop_at = ""

        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            def add(params: Item, *, context: ToolContext) -> ToolResult[Any]:
                assert context.run_context is not None
                assert context.run_context.session_id == context.session.session_id
                attempts.append(context.run_context.attempt)
                if params.name == self.stop_at:
                    raise KeyboardInterrupt
                return ToolResult.ok(None, "Added.")

            closed = ToolAnnotations(open_world=False)
            tool = Tool[Item, Any](name="add", description="Add.", handler=add, annotations=closed)
            return Prompt(name="c", sections=[MarkdownSection(title="T", template="Add.", tools=[tool])]), Session()

    loop = Counting(Model(SCRIPT), config=MainLoopConfig(runs=store))
    for loop.stop_at in ("b", "d"):
        with pytest.raises(KeyboardInterrupt):
            loop.execute("go", run_id="r")
    loop.stop_at = ""
    forked = store.fork("r", at=store.open("r").calls()[0].seq)
    for run_id, made, kept in (("r", [3], [1, 2, 2, 3]), (forked, [1, 1, 1], [1, 1, 1, 1]), ("r", [], [1, 2, 2, 3])):
        attempts.clear()
        _, session = loop.execute("go", run_id=run_id)
        events = session[ToolInvoked].all()
        assert (attempts, [event.run_context.attempt for event in events if event.run_context]) == (made, kept)
    agent, numbers = Agent(), list[int]()
    agent.during["a"] = lambda context: numbers.append(context.run_context.attempt if context.run_context else 0)
    agent.run(store, Model(SCRIPT), "no loop")
    assert numbers == [1]


def test_a_loop_says_what_is_wrong_with_a_run_id(store: SqliteRunStore, tmp_path: Path) -> None:
    """Another request, an unknown run, a loop without a store, a request that cannot be read back."""
    loop = files_loop(store, tmp_path / "root")
    response, _ = loop.execute("go", run_id="r")
    assert response.run_id == "r"
    with pytest.raises(RunConflictError, match="another request"):
        files_loop(store, tmp_path / "root").execute("other", run_id="r")
    with pytest.raises(RecordError, match="no run 'x'"):
        loop.resume("x")
    with pytest.raises(TypeError, match=r"MainLoopConfig\(runs="):
        Files(Model(SCRIPT)).resume("r")

    class Untyped(MainLoop[Any, Any]):
        def prepare(self, request: Any) -> Any:
            return loop.prepare(request)

    with pytest.raises(NotResumableError, match=r"Untyped declares no type.*request="):
        Untyped(Model(SCRIPT), config=MainLoopConfig(runs=store)).resume("r")
    made, _ = files_loop(store, tmp_path / "root").execute("again")
    assert made.run_id is not None
    assert store.info(made.run_id) is not None


def test_a_run_that_could_not_begin_is_let_go(store: SqliteRunStore) -> None:
    """A prompt that cannot be rendered leaves no run that is busy; manual mode is refused before one is begun."""
    agent = Agent()
    broken = Prompt(name="broken", sections=[MarkdownSection[Item](title="Task", template="Add ${name}.")])
    with pytest.raises(PromptError):
        Model(SCRIPT).evaluate(broken, agent.session, record=store.run("r", types=TYPES))
    assert [info.alive for info in store.infos()] in ([], [False])
    assert agent.run(store, Model(SCRIPT)).text == "done"
    with pytest.raises(ValueError, match="manual mode"):
        ScriptedAdapter(say("x"), manual=True).evaluate(agent.prompt, Session(), record=store.run("other"))
    assert store.info("other") is None


def test_record_takes_a_run_of_a_store(store: SqliteRunStore) -> None:
    """The store itself, or an id, is refused with what to pass."""
    agent = Agent()
    with pytest.raises(TypeError, match=r"store\.run\(\.\.\.\), got str"):
        Model(SCRIPT).evaluate(agent.prompt, agent.session, record="r")  # type: ignore[arg-type]
    assert store.infos() == []


def test_a_run_that_is_cancelled_while_it_is_taken_can_be_taken_again(store: SqliteRunStore) -> None:
    """The store is waited for in a thread; what it gives to nobody is given back."""
    agent = Agent()

    async def run(other: sqlite3.Connection) -> None:
        record = store.run("r", types=TYPES)
        made = asyncio.ensure_future(Model(SCRIPT).aevaluate(agent.prompt, agent.session, record=record))
        await asyncio.sleep(0.2)
        made.cancel()
        await asyncio.sleep(0)
        other.rollback()
        with pytest.raises(asyncio.CancelledError):
            await made

    assert store.infos() == []
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")  # another program writes
        asyncio.run(run(other))
    assert [(info.run_id, info.alive) for info in store.infos()] == [("r", False)]
    assert agent.ran == []
    assert Agent().run(store, Model(SCRIPT)).text == "done"


def test_a_turn_that_has_no_json_form_ends_the_run_as_interrupted(store: SqliteRunStore) -> None:
    """Its calls are not run, and a program that was mended goes on."""
    agent = Agent()
    with pytest.raises(RunFormatError, match="JSON"):
        agent.run(store, Model([lambda: calls(0, "a")()._replace(native=({"of": object()},))]))
    assert [step.kind for step in store.steps("r")] == ["begin", "prompt"]
    assert [info.run_id for info in store.interrupted()] == ["r"]
    again = Agent()
    assert again.run(store, Model(SCRIPT)).text == "done"
    assert (agent.ran, again.added) == ([], ["a", "b", "c", "d"])
