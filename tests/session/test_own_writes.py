"""Undoing a call undoes its own writes to the session, and no others."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, cast

import pytest
from tests.session.own_parts import Calls, Tick, core_of, failing, in_a_thread, texts
from tests.world import Go, Note, World, make_tool, ok

from weakincentives.fence import Fence, Owner
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import PendingToolTracker, Session, transaction
from weakincentives.session import Append, SliceOp, Vector, append_all
from weakincentives.session.savepoints import open_savepoint, undo_savepoint, unowned_recorder


class Impossible(Exception):
    pass


# Whose writes stay.


def test_what_another_thread_wrote_during_a_failing_call_stays() -> None:
    """A bystander's write to the very slice that the call wrote to survives the call's undo, in its place."""

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        in_a_thread(lambda: world.session[Note].append(Note("theirs")))
        context.session[Note].append(Note("mine again"))

    world = failing(work)
    world.call()
    assert texts(world.session) == ["before", "theirs"]


def test_a_thread_without_the_calls_context_writes_for_the_call_through_its_handle() -> None:
    """What a handler's own thread writes through `context.session` is the call's, and is undone."""
    world = failing(lambda context: in_a_thread(lambda: context.session[Note].append(Note("mine"))))
    world.call()
    assert texts(world.session) == ["before"]


def test_a_plain_handle_inside_a_call_writes_for_the_call() -> None:
    """A handler that uses the session from a closure is undone as well."""
    world = failing(lambda _: world.session[Note].append(Note("mine")))
    world.call()
    assert texts(world.session) == ["before"]


def test_slices_that_the_call_did_not_write_are_not_touched() -> None:
    """An undo restores nothing but what the call changed."""

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        in_a_thread(lambda: world.session[int].seed([1, 2]))

    world = failing(work)
    world.call()
    assert list(world.session[int].all()) == [1, 2]


def test_what_reducers_derive_from_an_inner_calls_event_stays() -> None:
    """An inner call that succeeded is counted, although the outer one took its changes back."""

    def outer(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("outer"))
        assert world.call("inner").success
        return ToolResult.error("No.")

    def inner(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("inner"))
        return ok()

    world = World(make_tool(outer, "outer"), make_tool(inner, "inner"))
    world.session.install(Calls)
    world.call("outer")
    assert texts(world.session) == ["before"]
    assert world.session[Calls].latest() == Calls(("inner succeeded", "outer failed"))


def test_an_outer_calls_writes_while_an_inner_one_fails_stay() -> None:
    """The outer call goes on writing in another task while an inner call runs and fails; only that one is undone."""

    async def outer(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        inside, wrote = asyncio.Event(), asyncio.Event()
        meeting.append((inside, wrote))

        async def write() -> None:
            await inside.wait()
            context.session[Note].append(Note("outer"))
            wrote.set()

        writer = asyncio.create_task(write())
        assert not (await world.acall("inner")).success
        await writer
        return ok()

    async def inner(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("inner"))
        inside, wrote = meeting[0]
        inside.set()
        await wrote.wait()
        return ToolResult.error("No.")

    meeting: list[tuple[asyncio.Event, asyncio.Event]] = []
    world = World(make_tool(outer, "outer"), make_tool(inner, "inner"))
    assert asyncio.run(world.acall("outer")).success
    assert texts(world.session) == ["before", "outer"]


def test_an_inner_call_is_undone_with_the_outer_one() -> None:
    """A call made inside a failing one belongs to it, and so does a transaction that was committed there."""

    def work(context: ToolContext) -> None:
        with transaction(cast(Any, context.session)):
            context.session[Note].append(Note("inner"))
        with transaction(world.session):
            world.session[Note].append(Note("inner"))

    world = failing(work)
    world.call()
    assert texts(world.session) == ["before"]


def test_a_write_that_fails_without_the_undone_ones_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A bystander's reducer that needs what was undone loses that one step; its other slices keep theirs."""

    def answer(view: Vector[Note], event: Tick) -> SliceOp[Note]:
        if not any(note.text == "mine" for note in view):
            raise Impossible
        return Append(Note(event.by))

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        in_a_thread(lambda: world.session.dispatch(Tick("theirs")))

    world = failing(work)
    world.session[Note].register(Tick, answer)
    world.session[Tick].register(Tick, append_all)
    with caplog.at_level(logging.ERROR, "weakincentives.session"):
        world.call()
    assert texts(world.session) == ["before"]
    assert list(world.session[Tick].all()) == [Tick("theirs")]
    assert [record.getMessage().split(" was dropped")[0] for record in caplog.records] == [
        "The reducer for Tick to Note"
    ]


def test_a_reducer_that_writes_while_it_is_repeated_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Reducers are pure, also when an undo runs them again."""

    def once(view: Vector[Note], event: Tick) -> SliceOp[Note]:
        if not any(note.text == "mine" for note in view):
            world.session[int].append(1)
        return Append(Note(event.by))

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        in_a_thread(lambda: world.session.dispatch(Tick("theirs")))

    world = failing(work)
    world.session[Note].register(Tick, once)
    world.call()
    assert (texts(world.session), world.session[int].count()) == (["before"], 0)
    assert "They are pure" in caplog.text


def test_an_undo_that_is_interrupted_changes_nothing_and_can_be_repeated() -> None:
    """Everything is computed before the first change, so Ctrl-C in a repeated reducer leaves the undo to be done."""

    def interrupting(view: Vector[Note], event: Tick) -> SliceOp[Note]:
        if not any(note.text == "mine" for note in view) and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return Append(Note(event.by))

    interrupted: list[bool] = []
    session, owner = Session(), Owner()
    session[Note].register(Tick, interrupting)
    open_savepoint(session, owner)
    handle = session.guarded(Fence(None, owner))
    owner.holder = session
    handle[Note].append(Note("mine"))
    handle[int].append(1)
    session.dispatch(Tick("theirs"))
    with pytest.raises(KeyboardInterrupt):
        undo_savepoint(session, owner)
    assert (texts(session), session[int].count()) == (["mine", "theirs"], 1)
    undo_savepoint(session, owner)
    assert (texts(session), session[int].count()) == (["theirs"], 0)


# Restoring and resetting inside a call.


@pytest.mark.parametrize("how", ["restore", "reset"])
def test_a_call_that_restores_an_older_snapshot_and_fails_is_undone(how: str) -> None:
    """A call cannot get rid of its own undo: restoring is a write like any other."""

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        if how == "restore":
            context.session.restore(older)
        else:
            context.session.reset()
        context.session.note("mine", 1)

    world = failing(work)
    older = world.session.snapshot()
    world.session[Note].append(Note("since"))
    world.session[int].append(1)
    world.session.note("since", 1)
    world.call()
    assert texts(world.session) == ["before", "since"]
    assert list(world.session[int].all()) == [1]
    assert (world.session.noted("since"), world.session.noted("mine")) == (1, None)


def test_what_others_reset_during_a_failing_call_stays_reset() -> None:
    """The call emptied the session first, other code reset it then: undoing the call restores nothing."""

    def work(context: ToolContext) -> None:
        context.session.reset()
        in_a_thread(world.session.reset)

    world = failing(work)
    world.session.note("known", 1)
    world.call()
    assert (texts(world.session), world.session.noted("known")) == ([], None)


def test_a_write_that_raises_is_not_noted() -> None:
    """A note that cannot be kept leaves the call able to undo everything else."""

    def work(context: ToolContext) -> None:
        context.session[Note].append(Note("mine"))
        with pytest.raises(TypeError):
            context.session.note([], 1)

    world = failing(work)
    world.call()
    assert texts(world.session) == ["before"]


# What a call changed.


def test_the_changes_of_a_call_are_its_own() -> None:
    """A slice that only others wrote to is not listed; one that both wrote to says so and counts the call's items."""

    def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("mine"))
        context.session[Tick].append(Tick())
        in_a_thread(lambda: world.session[Note].seed([Note("theirs"), Note("too")]))
        in_a_thread(lambda: world.session[int].append(1))
        context.session[Note].append(Note("mine"))
        return ToolResult.error("No.") if params.how == "fail" else ok()

    world = World(make_tool(act))
    world.call()
    failed = world.call(arguments={"how": "fail"})
    for event in world.events:
        assert [(delta.name, delta.added, delta.contended) for delta in event.changes.slices] == [
            ("Note", 1, True),
            ("Tick", 1, False),
        ]
    assert failed.text == (
        "No.\nRolled back: the Note state and the Tick state. Nothing was changed. "
        "Changes that other code made there meanwhile were kept."
    )


def test_a_transaction_tells_its_own_changes_and_its_moment() -> None:
    """Its snapshot is of the moment it was entered, LOG slices included."""
    session = Session()
    session[Note].append(Note("before"))
    with transaction(session) as running:
        session.record(ToolInvoked("act", success=True))
        session[Note].append(Note("mine"))
        (slice_delta,) = running.changes().slices
        assert (slice_delta.name, slice_delta.added) == ("Note", 1)
        moment = running.snapshot.session
        changed = {change.slice_type for change in session.changes(moment, logs=True)}
        assert changed == {Note, ToolInvoked}
        session.restore(moment)
        assert texts(session) == ["before"]


# Tools of a harness.


def test_a_native_tool_owns_what_is_written_outside_of_all_calls() -> None:
    """The harness works outside of our calls, so its plain writes are undone with its tool; our records are not."""
    session = Session()
    session.install(Calls)
    tracker = PendingToolTracker(session=session)
    assert tracker.begin_tool_execution(tool_use_id="read", tool_name="look", read_only=True) is None
    assert tracker.begin_tool_execution(tool_use_id="write", tool_name="edit") is None
    in_a_thread(lambda: session[Note].append(Note("native")))
    tracker.end_tool_execution(tool_use_id="read", success=True)
    tracker.end_tool_execution(tool_use_id="write", success=False)
    assert texts(session) == []
    assert session[Calls].latest() == Calls(("look succeeded", "edit failed"))


# The log of writes is short-lived and short.


def test_nothing_is_kept_after_a_call() -> None:
    """When no call is open the session remembers no writes, subscriptions or savepoints."""

    def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("mine"))
        context.session.dispatcher.subscribe(Tick, print)
        core = core_of(world.session)
        assert core.calls
        assert core.writes
        assert core.marks
        return ToolResult.error("No.") if params.how == "fail" else ok()

    world = World(make_tool(act))
    for how in ("", "fail"):
        world.call(arguments={"how": how})
        core = core_of(world.session)
        assert (core.calls, core.writes, core.marks, core.subscribed) == ([], [], {}, [])


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_a_very_long_call_keeps_a_short_log(nested: bool) -> None:
    """The writes of others are folded together after 10,000, and the undo is as exact as before."""

    def long(context: ToolContext) -> None:
        context.session[int].append(-1)
        for number in range(25_000):
            unowned_recorder(world.session)(Tick(str(number)))  # nobody's
            if number % 1000 == 0:
                unowned_recorder(world.session)(number)
                context.session[int].append(-1)
            lengths.append(len(core_of(world.session).writes))

    def work(context: ToolContext) -> None:
        if nested:
            with transaction(cast(Any, context.session), validate=lambda: False):
                long(context)
        else:
            long(context)

    lengths: list[int] = []
    world = failing(work)
    world.call()
    assert max(lengths) <= 10_001
    assert list(world.session[int].all()) == list(range(0, 25_000, 1000))
    assert world.session[Tick].count() == 25_000


def test_a_savepoint_whose_opening_was_interrupted_is_forgotten() -> None:
    """One that was never closed, because Ctrl-C came while it was opened, does not keep the log growing for ever."""
    session, lost = Session(), Owner()
    open_savepoint(session, lost)
    for number in range(10_002):
        session[int].append(number)
    core = core_of(session)
    assert core.calls == []
    with transaction(session):
        session[int].append(1)
    assert (core.writes, core.marks) == ([], {})


# Real threads.


def storm(rounds: int, writers: int) -> None:
    """Failing and succeeding calls in some threads, bystanders in others; every write is accounted for."""
    done = threading.Event()

    def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        for _ in range(5):
            context.session[int].append(-1 if params.how == "fail" else 1)
            context.session.dispatch(Tick("call"))
        return ToolResult.error("No.") if params.how == "fail" else ok()

    def bystander(number: int) -> None:
        written = 0
        while not done.is_set() or not written:
            world.session[int].append(100 + number)
            world.session.dispatch(Tick(str(number)))
            written += 1
        counts[number] = written

    def caller(number: int) -> None:
        for turn in range(rounds):
            world.call(arguments={"how": "fail" if (turn + number) % 2 else "", "number": turn * 10 + number})

    counts: dict[int, int] = {}
    world = World(make_tool(act, max_repeats=None))
    world.session[str].register(Tick, lambda view, event: Append(event.by))
    bystanders = [threading.Thread(target=bystander, args=(number,)) for number in range(writers)]
    callers = [threading.Thread(target=caller, args=(number,)) for number in range(2)]
    for thread in (*bystanders, *callers):
        thread.start()
    for thread in callers:
        thread.join()
    done.set()
    for thread in bystanders:
        thread.join()
    numbers, ticks = list(world.session[int].all()), list(world.session[str].all())
    assert numbers.count(-1) == 0
    assert numbers.count(1) == ticks.count("call") == 5 * rounds
    for number, written in counts.items():
        assert numbers.count(100 + number) == ticks.count(str(number)) == written
    assert core_of(world.session).writes == []


def test_threads_lose_nothing_to_failing_calls() -> None:
    """Whatever bystanders write while calls fail is there afterwards, exactly once, and nothing of the failed calls."""
    storm(rounds=15, writers=2)


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_threads_lose_nothing_to_failing_calls_for_long() -> None:
    """The same in many runs with more threads."""
    for _ in range(20):
        storm(rounds=100, writers=4)
