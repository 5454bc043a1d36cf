"""G1, one answer: for every call id exactly one `ToolInvoked` and exactly one reply, whatever happened."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter as Tally
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from tests.world import Go, Note, World, binding, change, make_tool, ok, outcomes

from weakincentives.errors import PromptEvaluationError, RollbackError, ToolValidationError
from weakincentives.prompt import ToolAnnotations, ToolContext, ToolInvoked, ToolResult
from weakincentives.resources import Scope
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.session import Append, DispatchResult, InProcessDispatcher, SliceOp

READ_ONLY = ToolAnnotations(read_only=True)


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    """Changes everything, then does what its params say."""
    change(context)
    match params.how:
        case "error":
            return ToolResult.error("No.")
        case "raise":
            raise RuntimeError("broken")
        case "end":
            raise PromptEvaluationError("over")
        case "ctrl-c":
            raise KeyboardInterrupt
        case _:
            return ok()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class UnprintableToolError(ToolValidationError):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class HostileMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class HostileObject:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def deep(levels: int) -> Any:
    made: Any = []
    for _ in range(levels):
        made = [made]
    return made


def loop() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["how"] = made
    return made


ODD: list[Any] = [
    None, 0, -1, 1.5, float("nan"), float("inf"), True, 10**5000, "", " ", "act", "ACT", "\x00", "\ud800", "é" * 50,
    "a" * 100_000, b"", b"act", b"\xff\xfe", [], ["act"], {}, {"how": "x"}, {1: 2}, {"number": 10**5000}, set[int](),
    object(), HostileObject(), HostileMapping(), loop(), deep(2000), {"how": deep(2000)}, int, lambda: None, ...,
    '{"how": ', "[]", "null", "7", '"text"', '{"how": 1}', '{"number": 1e999}', '{"how": "\\ud800"}', '{"how": NaN}',
    '{"how": "x", "how": "y"}', "[" * 100_000, '{"a":' * 50_000, "\ufeff{}", "{}{}", b'{"how": "\xff"}', "{'how': 1}",
]  # fmt: skip


def malformed(chance: random.Random) -> ToolCall:
    """A call with anything at all in its three places, now and then something that fits."""

    def any_of(good: Any) -> Any:
        pick = chance.random()
        if pick < 0.3:
            return good
        if pick < 0.8:
            return chance.choice(ODD)
        letters = '{}[]",:0123456789eE+-.\\ntrufalsehow \x00\ud800é'
        return "".join(chance.choices(letters, k=chance.randrange(40)))

    return ToolCall(any_of(f"id-{chance.random()}"), any_of("act"), any_of('{"how": "error"}'))


def fuzz(count: int, seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)  # noqa: T201 - to run it again
    session = Session()
    world = World(make_tool(act, max_repeats=None), make_tool(act, "watch", annotations=READ_ONLY), session=session)
    before = world.picture()
    for number in range(count):
        call = malformed(chance)
        world.heard.clear()
        reply: Any = world.executor.execute(call)
        assert isinstance(reply, ToolReply)
        assert isinstance(reply.text, str)
        assert reply.text
        assert len(reply.text) < 40_000
        if reply.duplicate:  # an id that came before: nothing ran and nothing more is recorded
            assert (world.events, world.heard) == ((), [])
            continue
        (event,) = world.events
        assert event.rendered_output == reply.text
        assert [event] == world.heard
        assert isinstance(event.tool_name, str)
        assert reply.call_id == (call.id if isinstance(call.id, str) else "")
        if reply.outcome == "succeeded":
            world.session.reset()
            world.session[Note].seed(Note("before"))
            world.files.write("kept.txt", "before")
            world.files.delete("new.txt")
            world.counter.value = before[2]
        assert world.session[Note].all() == (Note("before"),)
        if number % 100 == 0:
            assert world.picture() == before
        session.reset(logs=True)
        world.session[Note].seed(Note("before"))


@pytest.mark.timeout(600)
def test_whatever_a_model_sends_has_one_reply_and_one_event() -> None:
    """Names, ids and arguments of any type and content: one reply, one event, no exception."""
    fuzz(2_000, 20_250_101)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_malformed_calls() -> None:
    """A hundred thousand malformed calls, new ones in each run: one reply and one event each."""
    fuzz(100_000, random.SystemRandom().randrange(10**9))


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("place", ["id", "name", "arguments"])
def test_one_odd_thing_at_a_time(odd: Any, place: str) -> None:
    """An odd id, name or arguments in an otherwise good call is answered and recorded once."""
    world = World(make_tool(act))
    call = ToolCall("an-id", "act", '{"how": "error"}')._replace(**{place: odd})
    reply = world.executor.execute(call)
    (event,) = world.events
    assert reply.text == event.rendered_output
    assert not reply.success or place == "arguments"


@pytest.mark.parametrize("error", [Unprintable(), UnprintableToolError("x")], ids=["unexpected", "expected"])
def test_an_exception_without_a_text_is_answered(error: Exception) -> None:
    """An exception whose text cannot be had is answered, undone and recorded like any other."""

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        raise error

    world = World(make_tool(handler))
    before = world.picture()
    assert type(error).__name__ in world.call().text
    assert world.picture() == before
    assert len(world.events) == 1


def test_a_dispatcher_of_somebody_else_that_raises() -> None:
    """A bus that raises instead of reporting undoes the call; refusals and failures are recorded all the same."""

    class Bus:
        def __init__(self) -> None:
            self.inner = InProcessDispatcher()
            self.subscribe, self.unsubscribe = self.inner.subscribe, self.inner.unsubscribe

        def dispatch(self, event: object, /) -> DispatchResult:
            raise ConnectionError("no bus today")

    world = World(make_tool(act), session=Session(Bus()))
    before = world.picture()
    assert "no bus today" in world.call().text
    assert world.picture() == before
    world.call("unknown")
    world.call(arguments={"how": "error"})
    assert outcomes(world.events) == ["undone", "unknown_tool", "failed"]


class Interrupting:
    """Ctrl-C in a user's code that is called around the handler."""

    @staticmethod
    def reducer(world: World) -> None:
        def reduce(view: Sequence[Note], event: str) -> SliceOp[Note]:
            raise KeyboardInterrupt

        world.session[Note].register(str, reduce)

    @staticmethod
    def subscriber(world: World) -> None:
        def hear(event: ToolInvoked) -> NoReturn:
            raise KeyboardInterrupt

        world.session.dispatcher.subscribe(ToolInvoked, hear)

    @staticmethod
    def reducer_of_the_log(world: World) -> None:
        def reduce(view: Sequence[Note], event: ToolInvoked) -> SliceOp[Note]:
            raise KeyboardInterrupt

        world.session[Note].register(ToolInvoked, reduce)


class Listener:
    def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
        return None

    def on_result(self, tool_name: str, params: Any, result: Any, context: ToolContext) -> None:
        raise KeyboardInterrupt


class Shown:
    def render(self) -> str:
        raise KeyboardInterrupt


class Closing:
    def close(self) -> None:
        raise KeyboardInterrupt


def ctrl_c_worlds() -> dict[str, Callable[[], World]]:
    def text(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return ToolResult.ok("routed")

    def shown(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return ToolResult.ok(Shown())

    def closing(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        context.resources.get(Closing)
        return ok()

    def prepared(prepare: Callable[[World], None]) -> World:
        world = World(make_tool(text))
        prepare(world)
        return world

    return {
        "in a reducer of the value": lambda: prepared(Interrupting.reducer),
        "in a subscriber": lambda: prepared(Interrupting.subscriber),
        "in on_result": lambda: World(make_tool(text), policies=[Listener()]),
        "in render()": lambda: World(make_tool(shown)),
        "in close()": lambda: World(
            make_tool(closing), resources=binding(Closing, Closing, scope=Scope.TOOL_CALL)
        ),
    }  # fmt: skip


@pytest.mark.parametrize("where", list(ctrl_c_worlds()))
def test_ctrl_c_around_the_handler(where: str) -> None:
    """Ctrl-C in code that runs around the handler undoes the call, records it once, and propagates."""
    world = ctrl_c_worlds()[where]()
    before = world.picture()
    with pytest.raises(KeyboardInterrupt):
        world.call()
    assert outcomes(world.events) == ["cancelled"]
    assert world.picture() == before
    assert "Rolled back: 2 files and the Note state. Nothing was changed." in world.events[0].rendered_output
    assert world.counter.alive == 0


def test_ctrl_c_before_the_handler() -> None:
    """Ctrl-C in a policy or in the params' own checks is recorded once and propagates; nothing ran."""

    class Asked:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> NoReturn:
            raise KeyboardInterrupt

    world = World(make_tool(act), policies=[Asked()])
    before = world.picture()
    with pytest.raises(KeyboardInterrupt):
        world.call()
    assert outcomes(world.events) == ["cancelled"]
    assert world.picture() == before


def test_ctrl_c_in_a_subscriber_of_a_failed_call() -> None:
    """Ctrl-C while subscribers hear of a failure or a refusal propagates, and the log has the event."""
    world = World(make_tool(act))
    Interrupting.subscriber(world)
    with pytest.raises(KeyboardInterrupt):
        world.call(arguments={"how": "error"})
    with pytest.raises(KeyboardInterrupt):
        world.call("unknown")
    assert outcomes(world.events) == ["failed", "unknown_tool"]


def test_ctrl_c_in_a_reducer_of_the_log() -> None:
    """Ctrl-C in a reducer of `ToolInvoked` propagates; what happened is on record once and true."""
    world = World(make_tool(act))
    Interrupting.reducer_of_the_log(world)
    before = world.picture()
    with pytest.raises(KeyboardInterrupt):
        world.call()
    assert outcomes(world.events) == ["succeeded"]
    assert world.picture() != before


def test_the_next_call_works_after_an_interrupt() -> None:
    """After whatever propagated, the session is free and the next call is answered."""
    world = World(make_tool(act))
    with pytest.raises(KeyboardInterrupt):
        world.call(arguments={"how": "ctrl-c"})
    with pytest.raises(PromptEvaluationError):
        world.call(arguments={"how": "end"})
    done = threading.Thread(target=world.call)
    done.start()
    done.join(10)
    assert not done.is_alive()
    assert outcomes(world.events) == ["cancelled", "crashed", "succeeded"]


@contextmanager
def impatient() -> Generator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_one_id_from_many_threads_runs_once() -> None:
    """However many threads bring the same id at once, its handler runs once."""
    ran: list[str] = []

    def count(params: Go) -> ToolResult[Any]:
        ran.append(params.how)
        return ok()

    world = World(make_tool(count, max_repeats=None))
    with impatient():
        for number in range(100):
            gate = threading.Barrier(4)

            def bring(number: int = number, gate: threading.Barrier = gate) -> None:
                gate.wait()
                world.call(arguments={"how": str(number)}, call_id=f"same-{number}")

            threads = [threading.Thread(target=bring) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert Tally(ran).most_common(1)[0][1] == 1
    assert Tally(event.call_id for event in world.events) == {f"same-{number}": 1 for number in range(100)}


def turn(*how: str, tool: str = "act") -> list[ToolCall]:
    return [ToolCall(f"turn-{number}", tool, {"how": item}) for number, item in enumerate(how)]


def test_a_turn_is_answered_completely_and_in_order() -> None:
    """Every call of a turn has its reply, in the model's order."""
    world = World(make_tool(act))
    replies = world.executor.execute_all(turn("", "error", "raise", ""))
    assert [reply.call_id for reply in replies] == ["turn-0", "turn-1", "turn-2", "turn-3"]
    assert [reply.outcome for reply in replies] == ["succeeded", "failed", "crashed", "succeeded"]
    assert outcomes(world.events) == ["succeeded", "failed", "crashed", "succeeded"]


@pytest.mark.parametrize("how", ["end", "ctrl-c"])
@pytest.mark.parametrize("tool", ["act", "watch"])
@pytest.mark.parametrize("way", ["execute_all", "aexecute_all"])
def test_a_turn_that_ends_the_evaluation_is_answered_first(how: str, tool: str, way: str) -> None:
    """When a call ends the evaluation, every id of the turn has its reply before the exception is raised."""

    def watch(params: Go) -> ToolResult[Any]:
        if params.how == "ctrl-c":
            raise KeyboardInterrupt
        if params.how == "end":
            raise PromptEvaluationError("over")
        return ok()

    world = World(make_tool(act), make_tool(watch, "watch", annotations=READ_ONLY))
    answers: list[ToolReply] = []
    calls = [*turn("", how, tool=tool), ToolCall("last", "act", {}), ToolCall("very last", "unknown", {})]
    expected = KeyboardInterrupt if how == "ctrl-c" else PromptEvaluationError

    def run() -> None:
        if way == "execute_all":
            world.executor.execute_all(calls, on_reply=answers.append)
        else:
            asyncio.run(world.executor.aexecute_all(calls, on_reply=answers.append))

    with pytest.raises(expected):
        run()
    ids = [call.id for call in calls]
    ended = "cancelled" if how == "ctrl-c" else "crashed"
    found = {reply.call_id: reply.outcome for reply in answers}
    if (how, tool) == ("ctrl-c", "watch"):  # what is stopped waits for nothing, and asyncio cancels the other tasks
        assert (sorted(found), len(answers), len(world.events)) == (sorted(ids), 4, 4)
        return
    assert [reply.call_id for reply in answers] == ids
    assert list(found.values()) == ["succeeded", ended, "cancelled", "cancelled"]
    recorded = [event.call_id for event in world.events]
    if (how, tool) == ("ctrl-c", "watch"):  # a reader that is stopped waits for nothing
        recorded.sort(key=lambda call_id: ids.index(str(call_id)))
    assert recorded == ids


def test_a_listener_that_fails_ends_the_turn_with_every_event() -> None:
    """When `on_reply` raises, the rest of the turn is not run but recorded, and the error reaches the caller."""
    world = World(make_tool(act))

    def listen(reply: ToolReply) -> NoReturn:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        world.executor.execute_all(turn("", "", ""), on_reply=listen)
    assert outcomes(world.events) == ["succeeded", "cancelled", "cancelled"]


def test_of_calls_that_share_an_id_one_is_answered() -> None:
    """Of two calls with one id in a turn the second is not run, and has neither an event nor a reply."""
    world = World(make_tool(act))
    replies = world.executor.execute_all([ToolCall("same", "act", {}), ToolCall("same", "act", {"how": "error"})])
    assert [reply.outcome for reply in replies] == ["succeeded"]
    assert outcomes(world.events) == ["succeeded"]


def test_cancelling_a_turn_answers_it_soon() -> None:
    """Cancelling a turn whose read-only calls overlap stops all of them, records each once, and ends soon."""

    async def wait(params: Go) -> ToolResult[Any]:
        await asyncio.sleep(60)
        return ok()

    world = World(make_tool(wait, annotations=READ_ONLY))
    answers: list[ToolReply] = []

    async def main() -> None:
        task = asyncio.create_task(world.executor.aexecute_all(turn("a", "b", "c"), on_reply=answers.append))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)

    asyncio.run(main())
    assert outcomes(world.events) == ["cancelled"] * 3
    assert sorted(reply.call_id for reply in answers) == ["turn-0", "turn-1", "turn-2"]


def test_many_threads_and_tasks_each_get_their_own_answer() -> None:
    """Calls from many threads on one session each get one reply and one event, and none is lost."""
    world = World(make_tool(act, max_repeats=None))
    replies: list[ToolReply] = []

    def work(number: int) -> None:
        for step in range(25):
            how = ("", "error", "raise")[(number + step) % 3]
            replies.append(world.call(arguments={"how": how}, call_id=f"{number}-{step}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({reply.call_id for reply in replies}) == 200
    assert {event.call_id: event.rendered_output for event in world.events} == {
        reply.call_id: reply.text for reply in replies
    }
    assert len(world.events) == 200
    kept = sum(reply.success for reply in replies)
    assert world.counter.value == 7 + kept
    assert world.session[Note].count() == 1 + kept


def test_a_participant_whose_changes_cannot_be_told() -> None:
    """A participant whose own `changes` method raises or is about something else spoils neither reply nor event."""

    class Ledger:
        def snapshot(self) -> int:
            return 0

        def restore(self, snapshot: int, /) -> None:
            return None

        def release(self, snapshot: int, /) -> None:
            return None

        def changes(self) -> str:
            return "not about snapshots"

    world = World(make_tool(act), resources={Ledger: Ledger()})
    assert world.call().success
    assert world.call(arguments={"how": "error"}).outcome == "failed"
    assert len(world.events) == 2


def test_an_undo_that_fails_is_recorded_first() -> None:
    """When a participant cannot be restored the event is recorded before `RollbackError` reaches the caller."""
    world = World(make_tool(act))

    def restore(snapshot: int, /) -> NoReturn:
        raise Unprintable

    world.counter.restore = restore
    with pytest.raises(RollbackError, match="1 of 3 participants"):
        world.call(arguments={"how": "error"})
    assert outcomes(world.events) == ["crashed"]


def test_a_reducer_of_the_log_sees_each_event_once() -> None:
    """State that is derived from `ToolInvoked` counts every call, failed ones included, once."""

    class Seen:
        pass

    world = World(make_tool(act))

    def reduce(view: Sequence[Seen], event: ToolInvoked) -> SliceOp[Seen]:
        return Append(Seen())

    world.session[Seen].register(ToolInvoked, reduce)
    for how in ("", "error", "raise"):
        world.call(arguments={"how": how})
    world.call("unknown")
    assert world.session[Seen].count() == 4
