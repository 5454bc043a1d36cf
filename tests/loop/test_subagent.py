"""An agent inside a tool call: what it did is kept or undone with the call, and the log says all of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from weakincentives import Budget, BudgetTracker, Deadline, RunContext, TokenUsage
from weakincentives.adapters import CallFinished, Finished, ModelRequest, ModelTurn, TextDelta, TurnAdapter, subagent
from weakincentives.errors import PromptEvaluationError, PromptValidationError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.runtime import Session
from weakincentives.session import append_all
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Topic:
    topic: str


@dataclass(frozen=True)
class Other:
    text: str


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Report:
    summary: str


@dataclass(frozen=True)
class Counted:
    """What a reducer of the log's events made of them."""

    tool: str


def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Changes files and state, directly and through its result."""
    context.resources.get(Filesystem).write(f"{params.text}.txt", params.text)
    context.session[Other].append(Other(params.text))
    return ToolResult.ok(params)


NOTE = Tool[Note, Note](name="note", description="Note.", handler=note)


def template(key: str, *tools: Tool[Any, Any], output: Any = None, text: str = "Do ${topic}.") -> PromptTemplate[Any]:
    kind: Any = PromptTemplate if output is None else PromptTemplate[output]
    return kind(ns="tests", key=key, sections=[MarkdownSection[Topic](title="Task", template=text, tools=tools)])


def agent(key: str, *tools: Tool[Any, Any], output: Any = None, **options: Any) -> Tool[Any, Any]:
    made = template(key, *tools, output=output)
    return subagent(name=key, description=f"Asks {key}.", prompt=made, params=Topic, **options)


class World:
    """An outer agent with these tools, its files and its session."""

    def __init__(self, *tools: Tool[Any, Any]) -> None:
        self.session = Session(session_id="outer")
        self.session[Note].register(Note, append_all)
        self.session[Report].register(Report, append_all)
        self.session[Other].append(Other("before"))
        self.fs = InMemoryFilesystem()
        self.fs.write("before.txt", "there")
        section = MarkdownSection(title="Task", template="Go.", tools=tools)
        self.prompt = Prompt(name="outer", sections=[section]).bind(resources={Filesystem: self.fs})
        self.events: list[Any] = []

    def run(self, *turns: Any, in_loop: bool = False, adapter: Any = None, **options: Any) -> Any:
        model = adapter or ScriptedAdapter(*turns)
        options.setdefault("on_event", self.events.append)
        if in_loop:
            return asyncio.run(model.aevaluate(self.prompt, self.session, **options))
        return model.evaluate(self.prompt, self.session, **options)

    def log(self) -> list[tuple[str | None, str, str]]:
        return [(event.prompt_name, event.tool_name, event.outcome) for event in self.session[ToolInvoked].all()]

    def state(self) -> Any:
        files = {path: self.fs.read(path) for path in self.fs.search("txt")}
        return files, *(tuple(self.session[kind].all()) for kind in (Note, Other, Report, Counted))


BOTH = pytest.mark.parametrize("in_loop", [False, True], ids=["sync", "async"])


# What comes back.


@BOTH
def test_the_answer_is_the_value_of_the_call(in_loop: bool) -> None:
    """The reducers of its type see it, once; of a fork nothing else comes back but the files."""
    world = World(agent("research", NOTE, output=Report))
    answer = json.dumps({"summary": "cats"})
    response = world.run(
        call("research", topic="cats"), call("note", text="a"), say(answer), say("Done."), in_loop=in_loop
    )
    assert response.text == "Done."
    assert world.state() == (
        {"before.txt": "there", "a.txt": "a"}, (), (Other("before"),), (Report("cats"),), (),
    )  # fmt: skip


@BOTH
def test_a_shared_session_is_written_to(in_loop: bool) -> None:
    """What its tools change is there, and the answer is seen once all the same."""
    world = World(agent("research", NOTE, output=Report, session="shared"))
    answer = json.dumps({"summary": "cats"})
    world.run(call("research", topic="cats"), call("note", text="a"), say(answer), say("Done."), in_loop=in_loop)
    assert world.state()[1:4] == ((Note("a"),), (Other("before"), Other("a")), (Report("cats"),))


def test_an_answer_without_a_type_is_text() -> None:
    """The model reads it, and it is the value of the result."""
    world = World(agent("research"))
    world.run(call("research", topic="cats"), say("They sleep."), say("Done."))
    event = world.session[ToolInvoked].latest()
    assert event is not None
    assert event.result is not None
    assert event.result.value == "They sleep."
    assert event.rendered_output.count("They sleep.") == 1


def test_the_params_are_bound_to_the_prompt() -> None:
    """Its sections take them."""
    world = World(agent("research"))
    model = ScriptedAdapter(call("research", topic="old cats"), say("ok"), say("Done."))
    world.run(adapter=model)
    assert "Do old cats." in model.requests[1].messages[0].text  # pyright: ignore[reportAttributeAccessIssue]


def test_a_fork_begins_with_what_is_there() -> None:
    """Its tools see the state of the outer session."""
    seen: list[Any] = []

    def look(params: Note, *, context: ToolContext) -> ToolResult[None]:
        seen.append(context.session[Other].all()[0])
        return ToolResult.ok(None)

    world = World(agent("research", Tool[Note, None](name="look", description="Look.", handler=look)))
    world.run(call("research", topic="t"), call("look", text="x"), say("ok"), say("Done."))
    assert seen == [Other("before")]


def test_merge_brings_more_back() -> None:
    """It gets both sessions, and its events are dispatched to the outer one, inside the call."""

    def merge(parent: Any, child: Session) -> Iterable[object]:
        assert not parent[Note].all()
        return child[Note].all()

    world = World(agent("research", NOTE, merge=merge))
    # The fork has the reducers of the session that it is a fork of.
    world.run(call("research", topic="t"), call("note", text="a"), say("ok"), say("Done."))
    assert world.session[Note].all() == (Note("a"),)


def test_a_merge_that_raises_undoes_the_call() -> None:
    """It is part of the handler."""

    def merge(parent: Any, child: Session) -> Iterable[object]:
        raise LookupError("no")

    world = World(agent("research", NOTE, merge=merge))
    before = world.state()
    world.run(call("research", topic="t"), call("note", text="a"), say("ok"), say("Done."))
    assert world.state() == before
    assert world.log()[-1] == ("outer", "research", "crashed")


# The log.


@BOTH
def test_the_log_of_the_run_has_the_calls_of_a_fork(in_loop: bool) -> None:
    """With the session and the prompt that they belong to, and no reducer of the outer session runs for them."""
    world = World(agent("research", NOTE))
    world.session[Counted].register(ToolInvoked, lambda view, event: append_all(view, Counted(event.tool_name)))
    world.run(call("research", topic="t"), call("note", text="a"), say("ok"), say("Done."), in_loop=in_loop)
    assert world.log() == [("research", "note", "succeeded"), ("outer", "research", "succeeded")]
    inner, outer = world.session[ToolInvoked].all()
    assert (inner.within, inner.session_id) == (outer.event_id, f"outer/{outer.call_id}")
    assert (outer.within, outer.session_id) == (None, "outer")
    assert world.session[Counted].all() == (Counted("research"),)


def test_subscribers_are_told_of_the_calls_of_a_fork() -> None:
    """They see what happens in the run, wherever it does."""
    world, told = World(agent("research", NOTE)), list[str]()
    world.session.dispatcher.subscribe(ToolInvoked, lambda event: told.append(event.tool_name))
    world.run(call("research", topic="t"), call("note", text="a"), say("ok"), say("Done."))
    assert told == ["note", "research"]


def test_equal_ids_of_two_models_do_not_mix_up_calls() -> None:
    """Each answer and each event is that of its own call."""
    inner = ScriptedAdapter(call("note", text="a"), say("ok"))
    world = World(agent("research", NOTE, adapter=inner))
    world.run(call("research", topic="t"), say("Done."))
    ids = [event.call_id for event in world.session[ToolInvoked].all()]
    assert len(set(ids)) == 2
    finished = [(event.tool_name, event.path) for event in world.events if isinstance(event, CallFinished)]
    assert finished == [("note", ("research",)), ("research", ())]


# Undone with the call.

Breaks = Callable[[World], Any]


class Fails:
    """A tool that fails in one way; what it did before must go."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        note(params, context=context)
        if self.how == "raises":
            raise LookupError("out of luck")
        if self.how == "interrupts":
            raise KeyboardInterrupt
        if self.how == "ends":
            raise PromptEvaluationError("over", prompt_name="x", phase="tool")
        return ToolResult.error("no")


def three_levels(how: str, session: str) -> World:
    fail = Tool[Note, Note](name="fail", description="Fail.", handler=Fails(how))
    third = agent("third", NOTE, fail, session=session, max_depth=3)
    second = agent("second", NOTE, fail, third, session=session, max_depth=3)
    return World(NOTE, fail, agent("first", NOTE, fail, second, session=session, max_depth=3))


NAMES = ("first", "second", "third")


def folded(world: World) -> list[str]:
    """The notes that stand, by the log alone."""
    events = world.session[ToolInvoked].all()
    undone = {one for event in events for one in event.undone_calls}
    return sorted(
        event.params.text for event in events
        if event.tool_name == "note" and event.success and event.event_id not in undone
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "in_loop"),
    [*itertools.product(["returns", "raises", "ends", "no answer"], [False, True]), ("interrupts", False)],
)
@pytest.mark.parametrize("session", ["fork", "shared"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_failure_at_each_level_is_undone_there(level: int, how: str, session: str, in_loop: bool) -> None:
    """An agent that gives no answer leaves nothing of it and of those inside it; the log folds to what is there."""
    world = three_levels(how, session)
    down: list[Any] = []
    for at in range(level):
        down += [call("note", text=f"n{at}"), call(NAMES[at], topic="t")]
    turns = [*down, call("note", text="lost")]
    turns += [RuntimeError("no model")] if how == "no answer" else [call("fail", text="f")]
    ends = how in {"interrupts", "ends"}
    # An ordinary failure is the model's to read; the agent around goes on.
    goes_on = [say("not good")] if how in {"returns", "raises"} else []
    turns += [*goes_on, *[say("ok")] * level]
    try:
        world.run(*turns, in_loop=in_loop)
    except (KeyboardInterrupt, PromptEvaluationError):
        assert ends
    kept = sorted(path.removesuffix(".txt") for path in world.fs.search("txt") if path != "before.txt")
    assert kept == folded(world)
    assert "f" not in kept
    if ends:
        # A handler that ends its evaluation is an agent without an answer; Ctrl-C ends all of them.
        assert "lost" not in kept
    if how == "interrupts":
        assert kept == ["n0"]
    if session == "shared":
        notes = [item.text for item in world.session[Note].all()]
        assert sorted(notes) == kept


@BOTH
@pytest.mark.parametrize("session", ["fork", "shared"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_no_answer_of_one_leaves_the_others(level: int, session: str, in_loop: bool) -> None:
    """State and files are bit-identical to what they were before the call that failed."""
    world = three_levels("returns", session)
    turns: list[Any] = []
    for at in range(level):
        turns += [call("note", text=f"n{at}"), call(NAMES[at], topic="t")]
    turns += [call("note", text="lost"), ConnectionError("no model"), *[say("ok")] * level]
    world.run(*turns, in_loop=in_loop)
    expected = [f"n{at}" for at in range(level)]
    assert folded(world) == expected
    assert sorted(world.state()[0]) == ["before.txt", *(f"{name}.txt" for name in expected)]
    assert [item.text for item in world.session[Note].all()] == (expected if session == "shared" else ["n0"])
    failed = [event for event in world.session[ToolInvoked].all() if event.outcome == "failed"]
    assert [event.tool_name for event in failed] == [NAMES[level - 1]]
    assert len(failed[0].undone_calls) == 1


@BOTH
@pytest.mark.parametrize("session", ["fork", "shared"])
def test_a_call_that_runs_out_of_time_is_undone(session: str, in_loop: bool) -> None:
    """`Tool(timeout=)` of a tool around it counts as ever; the run goes on."""

    class Slow(TurnAdapter):
        def ask(self, request: ModelRequest) -> ModelTurn:
            time.sleep(5)
            raise AssertionError

        async def aask(self, request: ModelRequest) -> ModelTurn:
            if len(request.messages) > 1:
                await asyncio.sleep(30)
            return ModelTurn(
                "", calls=ScriptedAdapter(call("note", text="lost")).ask(request).calls, stop_reason="tool_use"
            )

    inner = agent("research", NOTE, session=session, adapter=Slow())
    world = World(Tool[Topic, str](name="research", description="d", handler=inner.handler, timeout=0.5))
    before = world.state()
    world.run(call("research", topic="t"), say("Done."), in_loop=in_loop)
    assert world.log()[-1] == ("outer", "research", "timeout")
    assert ("research", "note", "succeeded") in world.log()
    assert folded(world) == []
    assert world.state() == before


def test_a_cancelled_run_undoes_the_sub_agent() -> None:
    """The events of its calls say so."""

    async def run(world: World) -> None:
        started = asyncio.Event()

        async def wait(params: Note, *, context: ToolContext) -> ToolResult[None]:
            context.resources.get(Filesystem).write("half.txt", "")
            started.set()
            await asyncio.sleep(30)
            return ToolResult.ok(None)

        tool = Tool[Note, None](name="wait", description="Wait.", handler=wait)
        world.__init__(agent("research", NOTE, tool))
        model = ScriptedAdapter(call("research", topic="t"), call("note", text="a"), call("wait", text="b"))
        task = asyncio.ensure_future(model.aevaluate(world.prompt, world.session))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    world = World()
    asyncio.run(run(world))
    assert sorted(world.state()[0]) == ["before.txt"]
    assert [entry[1:] for entry in world.log()] == [
        ("note", "succeeded"),
        ("wait", "cancelled"),
        ("research", "cancelled"),
    ]
    assert folded(world) == []


# Limits.


def test_the_deadline_of_the_run_ends_the_run() -> None:
    """It is not an answer of the tool."""

    class Slow(TurnAdapter):
        def ask(self, request: ModelRequest) -> ModelTurn:
            time.sleep(0.4)
            raise AssertionError("too late")

        async def aask(self, request: ModelRequest) -> ModelTurn:
            await asyncio.sleep(30)
            raise AssertionError

    world = World(agent("research", NOTE, adapter=Slow()))
    with pytest.raises(PromptEvaluationError) as caught:
        world.run(call("research", topic="t"), say("Done."), deadline=timedelta(seconds=0.3))
    assert caught.value.phase == "deadline"
    assert world.log() == [("outer", "research", "deadline")]


def test_a_deadline_of_its_own_is_a_failed_result() -> None:
    """The outer agent goes on."""
    past = Deadline.after(timedelta(milliseconds=1))
    time.sleep(0.01)
    world = World(agent("research", NOTE, budget=Budget(deadline=past)))
    assert world.run(call("research", topic="t"), say("Done.")).text == "Done."
    assert world.log() == [("outer", "research", "failed")]


def test_a_budget_of_its_own_counts_in_the_runs_too() -> None:
    """What a sub-agent spends is spent by the run."""
    world = World(agent("research", NOTE, budget=Budget(max_total_tokens=30)))
    model = ScriptedAdapter(
        call("research", topic="t"), call("note", text="a"), call("note", text="b"), say("Done."),
        usage=TokenUsage(input=10, output=10),
    )  # fmt: skip
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    assert world.run(adapter=model, budget_tracker=tracker).text == "Done."
    assert world.log()[-1] == ("outer", "research", "failed")
    assert "budget of 30 total tokens" in world.session[ToolInvoked].all()[-1].rendered_output
    assert tracker.consumed.total == 80
    assert folded(world) == []


def test_the_budget_of_the_run_ends_it() -> None:
    """A sub-agent cannot spend more than there is."""
    world = World(agent("research", NOTE))
    model = ScriptedAdapter(call("research", topic="t"), call("note", text="a"), usage=TokenUsage(input=10, output=10))
    with pytest.raises(PromptEvaluationError) as caught:
        world.run(adapter=model, budget=Budget(max_total_tokens=30))
    assert caught.value.phase == "budget"


def test_turns_are_limited_for_each_call() -> None:
    """`max_turns=` holds for the sub-agent alone."""
    world = World(agent("research", NOTE, max_turns=2))
    turns = [call("research", topic="t"), call("note", text="a"), call("note", text="b"), say("1"), say("2")]
    assert world.run(*turns).text == "1"
    assert "within 2 turns" in world.session[ToolInvoked].all()[-1].rendered_output


def test_sub_agents_inside_one_another_are_limited() -> None:
    """The one that would be too deep is an answer that the model understands."""
    third = agent("third", max_depth=2)
    second = agent("second", third)
    world = World(agent("first", second))
    world.run(
        call("first", topic="t"), call("second", topic="t"), call("third", topic="t"), say("2"), say("1"), say("0")
    )
    event = world.session[ToolInvoked].all()[0]
    assert (event.tool_name, event.outcome) == ("third", "failed")
    assert "'third' would be sub-agent number 3 inside one another; the limit is 2." in event.rendered_output


def test_a_prompt_does_not_ask_itself() -> None:
    """Not even through another one."""
    inner = subagent(name="again", description="d", prompt=template("outer2"), params=Topic, max_depth=9)
    world = World(agent("outer2", agent("between", inner, max_depth=9), max_depth=9))
    world.run(
        call("outer2", topic="t"), call("between", topic="t"), call("again", topic="t"), say("2"), say("1"), say("0")
    )
    event = world.session[ToolInvoked].all()[0]
    assert (event.tool_name, event.outcome) == ("again", "failed")
    assert "'again' is at work already" in event.rendered_output


def test_the_sub_agents_of_one_call_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth alone does not bound how many there are."""
    monkeypatch.setattr("weakincentives.loop.subagent.MOST_INSIDE", 3)
    world = World(agent("first", agent("second")))
    several = [call("second", topic=f"{n}") for n in range(4)]
    world.run(call("first", topic="t"), several, say("a"), say("b"), say("1"), say("0"))
    assert [entry[2] for entry in world.log()] == ["succeeded", "succeeded", "failed", "failed", "succeeded"]


# What is handed down.


def test_ids_ledger_heartbeat_and_limits_are_those_of_the_run() -> None:
    """Idempotent tools run once, whether the outer agent or a sub-agent calls them."""
    paid: list[str] = []
    contexts: list[Any] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[str]:
        paid.append(params.text)
        contexts.append(context.run_context)
        return ToolResult.ok("paid")

    tool = Tool[Note, str](name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig(scope="session"))
    world = World(tool, agent("research", tool))
    run_context = RunContext(run_id="r-1")
    world.run(
        call("pay", text="rent"), call("research", topic="t"), call("pay", text="rent"), call("pay", text="tax"),
        say("ok"), call("research", topic="u"), call("pay", text="tax"), say("ok"), say("Done."),
        run_context=run_context,
    )  # fmt: skip
    assert paid == ["rent", "tax"]
    outcomes = [entry[2] for entry in world.log() if entry[1] == "pay"]
    assert outcomes == ["succeeded", "replayed", "succeeded", "replayed"]
    assert [context.run_id for context in contexts] == ["r-1", "r-1"]
    assert contexts[0].span_id != contexts[1].span_id


@BOTH
def test_events_say_in_which_agent_they_happened(in_loop: bool) -> None:
    """Nested ones have the names of all."""
    world = World(agent("first", agent("second", NOTE)))
    world.run(
        call("first", topic="t"), call("second", topic="t"), call("note", text="a"), say("2"), say("1"), say("0"),
        in_loop=in_loop,
    )  # fmt: skip
    said = [(event.text, event.path) for event in world.events if isinstance(event, TextDelta)]
    assert said == [("2", ("first", "second")), ("1", ("first",)), ("0", ())]
    line = json.loads(next(event for event in world.events if event.path).to_json())
    assert line["path"] == ["first"]
    assert "path" not in json.loads(world.events[0].to_json())


def test_a_stream_keeps_the_text_of_agents_apart() -> None:
    """Text that is one event for a slow reader is that of one agent, and the last event is the run's own."""
    world = World(agent("first"))
    model = ScriptedAdapter([say("Let me ask."), call("first", topic="t")], say("inner"), say("outer"))
    with model.stream_sync(world.prompt, world.session) as stream:
        time.sleep(0.3)
        events = list(stream)
    said = [(event.text, event.path) for event in events if isinstance(event, TextDelta)]
    assert said == [("Let me ask.", ()), ("inner", ("first",)), ("outer", ())]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.response.text, last.turn, last.path) == ("outer", 2, ())


def test_a_listener_is_told_one_thing_at_a_time() -> None:
    """Also when several sub-agents work at once."""
    inside, most = 0, 0

    def on_event(event: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        inside -= 1

    world = World(agent("research", read_only=True))
    reads = [call("research", topic=f"{n}") for n in range(4)]
    world.run(reads, *[say("ok")] * 4, say("Done."), on_event=on_event)
    assert most == 1


# Several at once.


class Together(TurnAdapter):
    """Answers once so many ask at the same time, or after a while."""

    def __init__(self, number: int, seconds: float) -> None:
        super().__init__()
        self._barrier = threading.Barrier(number)
        self._seconds = seconds
        self.met = 0

    def ask(self, request: ModelRequest) -> ModelTurn:
        try:
            self._barrier.wait(self._seconds)
            self.met += 1
        except threading.BrokenBarrierError:
            pass
        return ModelTurn("ok")


@BOTH
def test_read_only_sub_agents_of_one_turn_overlap(in_loop: bool) -> None:
    """They are answered in the model's order."""
    model = Together(3, 20.0)
    world = World(agent("research", read_only=True, adapter=model))
    world.run([call("research", topic=f"{n}") for n in range(3)], say("Done."), in_loop=in_loop)
    assert model.met == 3
    assert [event.params.topic for event in world.session[ToolInvoked].all()] == ["0", "1", "2"]


@BOTH
def test_sub_agents_that_write_take_turns(in_loop: bool) -> None:
    """Two of them never work at once."""
    model = Together(2, 0.2)
    world = World(agent("research", adapter=model))
    world.run([call("research", topic=f"{n}") for n in range(2)], say("Done."), in_loop=in_loop)
    assert model.met == 0
    assert [entry[2] for entry in world.log()] == ["succeeded", "succeeded"]


@BOTH
def test_tools_of_a_read_only_sub_agent_read_the_files_and_write_to_the_fork(in_loop: bool) -> None:
    """A write to the files is refused, and the others go on."""

    def read(params: Note, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(context.resources.get(Filesystem).read("before.txt"))

    def remember(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Other].append(Other(params.text))
        return ToolResult.ok(params)

    tools: list[Tool[Any, Any]] = [
        Tool[Note, str](name="read", description="r", handler=read, annotations=ToolAnnotations(read_only=True)),
        Tool[Note, Note](name="remember", description="r", handler=remember),
        NOTE,
    ]

    class Model(TurnAdapter):
        def ask(self, request: ModelRequest) -> ModelTurn:
            made = [("read", "a"), ("remember", "b"), ("note", "c")]
            at = (len(request.messages) - 1) // 2
            if at == len(made):
                return ModelTurn("ok")
            name, text = made[at]
            return ScriptedAdapter(call(name, text=text)).ask(request)

    world = World(agent("research", *tools, read_only=True, adapter=Model()))
    before = world.state()
    world.run([call("research", topic=f"{n}") for n in range(2)], say("Done."), in_loop=in_loop)
    assert world.state() == before
    inner = sorted((event.tool_name, event.outcome) for event in world.session[ToolInvoked].all() if event.within)
    assert inner == sorted([("read", "succeeded"), ("remember", "succeeded"), ("note", inner[0][1])] * 2)
    assert inner[0][1] != "succeeded"


# What can be checked when it is built.


def no_merge(parent: Any, child: Session) -> Iterable[object]:
    return ()


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"params": Note}, "no section of the prompt 'p' takes params=Note. It takes: Topic"),
    ({"result": Note}, "result=Note contradicts the prompt 'p', whose answer is Report"),
    ({"max_depth": 0}, "max_depth must be 1 or more"),
    ({"max_turns": 0}, "max_turns must be 1 or more"),
    ({"session": "own"}, "session= is 'fork' or 'shared'"),
    ({"session": "shared", "merge": no_merge}, "merge= is for a fork"),
    ({"read_only": True, "session": "shared"}, "read_only=True cannot write to the session"),
    ({"share": Filesystem}, "write share=(Filesystem,)"),
    ({"prompt": Prompt(name="p", sections=[])}, "prompt= takes a PromptTemplate, got a Prompt"),
]


@pytest.mark.parametrize(("options", "text"), CONTRADICTIONS)
def test_contradictions_are_refused_when_it_is_built(options: dict[str, Any], text: str) -> None:
    """The text names the fix."""
    arguments: dict[str, Any] = {"prompt": template("p", output=Report), "params": Topic, **options}
    with pytest.raises(PromptValidationError) as caught:
        subagent(name="p", description="d", **arguments)
    assert text in str(caught.value)


def test_it_is_a_typed_tool() -> None:
    """Its params and its value have the types of the template."""
    made = subagent(name="p", description="d", prompt=template("p", output=Report), params=Topic, result=Report)
    assert (made.params_type, made.result_type) == (Topic, Report)


def test_an_adapter_in_manual_mode_is_refused() -> None:
    """Its evaluation would end before the first call."""
    world = World(agent("research", adapter=ScriptedAdapter(manual=True)))
    world.run(call("research", topic="t"), say("Done."))
    assert "manual mode" in world.session[ToolInvoked].all()[-1].rendered_output


def test_an_evaluation_takes_a_number_of_turns() -> None:
    """`max_turns=` stands before the adapter's own."""
    world = World(NOTE)
    turns = [call("note", text="a"), call("note", text="b"), say("Done.")]
    with pytest.raises(PromptEvaluationError, match="within 2 turns"):
        world.run(*turns, max_turns=2)
    adapter = ScriptedAdapter(*turns, max_turns=2)
    assert World(NOTE).run(adapter=adapter, max_turns=3).text == "Done."
    with pytest.raises(ValueError, match="max_turns must be 1 or more"):
        world.run(say("Done."), max_turns=0)
