"""Savepoints and transactions: several steps or calls, all or nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.world import Counter, Go, Note, World, binding, change, make_tool, ok, outcomes, pictures

from weakincentives.errors import RollbackError, SessionError, SnapshotError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import Prompt, PromptTemplate, ToolContext, ToolResult
from weakincentives.resources import Binding, ResourceContext, ResourceRegistry
from weakincentives.runtime import (
    CompositeSnapshot,
    Session,
    create_snapshot,
    release_snapshot,
    restore_snapshot,
    tool_transaction,
    transaction,
)


def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
    change(context)
    return ToolResult.error("No.") if params.how == "error" else ok()


def texts(session: Session) -> list[str]:
    return [note.text for note in session[Note].all()]


def made() -> tuple[Session, InMemoryFilesystem, Counter, ResourceContext]:
    files, counter = InMemoryFilesystem({"kept.txt": "before"}), Counter(1)
    resources = ResourceRegistry.build({Filesystem: files, Counter: counter}).open().open()
    session = Session()
    session[Note].append(Note("before"))
    return session, files, counter, resources


# A block.


def test_a_block_that_ends_well_keeps_its_changes() -> None:
    """Leaving a transaction normally keeps everything and releases what was remembered."""
    session, files, counter, resources = made()
    with transaction(session, resources) as running:
        assert running.committed is None
        session[Note].append(Note("during"))
        files.write("new.txt", "x")
        counter.value = 2
        assert running.changes().files.added == ("new.txt",)
    assert running.committed is True
    assert (texts(session), counter.value, counter.alive) == (["before", "during"], 2, 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_block_that_raises_is_undone(error: type[BaseException]) -> None:
    """Whatever leaves the block as an exception undoes it and goes on."""
    session, files, counter, resources = made()
    with pytest.raises(error), transaction(session, resources):  # noqa: PT012 - the block is what is tested
        session[Note].append(Note("during"))
        files.delete("kept.txt")
        counter.value = 2
        raise error
    assert (texts(session), files.read("kept.txt"), counter.value) == (["before"], "before", 1)
    assert counter.alive == 0


def test_a_resource_without_release_takes_part_too() -> None:
    """`release` is for those that keep something for a snapshot; without it, nothing needs to be let go of."""

    class Tally:
        def __init__(self) -> None:
            self.value = 1

        def snapshot(self) -> int:
            return self.value

        def restore(self, snapshot: int, /) -> None:
            self.value = snapshot

    given, built = Tally(), list[Tally]()
    registry = ResourceRegistry.build({Tally: given})
    with registry.open().open() as resources:
        with transaction(Session(), resources):
            given.value = 2
        with suppress(KeyError), transaction(Session(), resources):
            given.value = 3
            raise KeyError
    assert given.value == 2

    with ResourceRegistry.of(Binding(Tally, lambda _: Tally())).open().open() as resources:
        built.append(resources.get(Tally))
        with suppress(KeyError), transaction(Session(), resources):
            built[0].value = 3
            raise KeyError
    assert built[0].value == 1


def test_validate_decides() -> None:
    """`validate` is asked at the end: a true answer keeps, a false one undoes, an exception undoes and is raised."""
    session, _, counter, resources = made()
    for answer, kept in ((True, True), (1, True), (False, False), (None, False), ("", False)):
        counter.value = 1
        with transaction(session, resources, validate=lambda answer=answer: answer) as running:
            counter.value = 2
        assert (running.committed, counter.value == 2) == (kept, kept)

    def broken() -> bool:
        raise RuntimeError("cannot say")

    counter.value = 1
    with pytest.raises(RuntimeError, match="cannot say"), transaction(session, resources, validate=broken) as running:
        counter.value = 2
    assert (running.committed, counter.value) == (False, 1)


def test_validate_is_not_asked_after_an_exception() -> None:
    """A block that raised is undone whatever `validate` would say."""
    session = Session()
    asked: list[int] = []
    with pytest.raises(ValueError), transaction(session, validate=lambda: asked.append(1) or True):  # noqa: PT012 - the block is what is tested
        session[Note].append(Note("x"))
        raise ValueError
    assert (asked, session[Note].count()) == ([], 0)


def test_transactions_nest() -> None:
    """An inner transaction is undone alone; an outer one takes the kept inner ones along."""
    session, files, _, resources = made()
    with transaction(session, resources, validate=lambda: False):
        session[Note].append(Note("outer"))
        with transaction(session, resources):
            session[Note].append(Note("kept"))
            files.write("inner.txt", "x")
        with transaction(session, resources, validate=lambda: False):
            session[Note].append(Note("dropped"))
            files.write("dropped.txt", "x")
        assert texts(session) == ["before", "outer", "kept"]
        assert sorted(path for path in pictures(files) if path != ".") == ["inner.txt", "kept.txt"]
    assert texts(session) == ["before"]
    assert not files.exists("inner.txt")


def test_several_calls_are_all_or_nothing() -> None:
    """Calls inside a transaction are undone together; failed ones are undone at once."""
    world = World(make_tool(act))
    resources = world.executor._resources
    before = world.picture()
    with transaction(world.session, resources, validate=lambda: world.counter.value > 100):
        assert world.call().success
        assert world.call(arguments={"how": "error"}).outcome == "failed"
        assert world.call(arguments={"how": "again"}).success
        assert world.counter.value == 9
    assert world.picture() == before
    assert outcomes(world.events) == ["succeeded", "failed", "succeeded"]
    with transaction(world.session, resources, validate=lambda: world.counter.value == 8):
        world.call(arguments={"how": "once more"})
    assert world.counter.value == 8


def test_async_with() -> None:
    """A transaction works around awaits, and other tasks' calls wait until it is over."""
    world = World(make_tool(act, max_repeats=None))
    order: list[str] = []

    async def inside() -> None:
        async with transaction(world.session, world.executor._resources, validate=lambda: False):
            order.append("began")
            await world.acall()
            await asyncio.sleep(0.02)
            assert world.counter.value == 8
            order.append("ended")

    async def outside() -> None:
        await asyncio.sleep(0.005)
        reply = await world.acall(arguments={"how": "other"})
        order.append(f"other {reply.outcome} {world.counter.value}")

    async def main() -> None:
        await asyncio.gather(inside(), outside())

    asyncio.run(main())
    assert order == ["began", "ended", "other succeeded 8"]


def test_cancelling_a_transaction_undoes_it() -> None:
    """A task that is cancelled inside `async with` undoes its transaction; one that waits for it never begins."""
    session = Session()

    async def work() -> None:
        async with transaction(session):
            session[Note].append(Note("x"))
            await asyncio.sleep(60)

    async def main() -> None:
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with transaction(session):
            pass

    asyncio.run(main())
    assert session[Note].count() == 0


def test_a_transaction_inside_a_handler() -> None:
    """A handler may try something in a transaction of its own, with its own session and resources, and go on."""

    def try_it(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        session = context.session
        with transaction(session, context.resources, validate=lambda: False):
            change(context)
        assert texts(session) == ["before"]
        with transaction(session, context.resources):
            change(context)
        return ok() if params.how == "" else ToolResult.error("No.")

    world = World(make_tool(try_it))
    before = world.picture()
    assert world.call(arguments={"how": "fail"}).outcome == "failed"
    assert world.picture() == before
    assert world.call().success
    assert world.counter.value == 8


def test_other_threads_wait() -> None:
    """While a transaction is open, calls from other threads wait for it."""
    world = World(make_tool(act))
    with transaction(world.session, world.executor._resources):
        thread = threading.Thread(target=world.call)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert world.counter.value == 7
    thread.join(10)
    assert world.counter.value == 8


# By hand.


def test_tool_transaction_and_a_restore_in_the_middle() -> None:
    """The snapshot of a `tool_transaction` can be restored by hand; what follows is kept."""
    session, files, counter, resources = made()
    with tool_transaction(session, resources, tag="my_operation") as snapshot:
        assert isinstance(snapshot, CompositeSnapshot)
        assert snapshot.tag == "my_operation"
        files.write("a.txt", "x")
        counter.value = 5
        restore_snapshot(session, resources, snapshot)
        assert (files.exists("a.txt"), counter.value) == (False, 1)
        counter.value = 6
    assert counter.value == 6
    with pytest.raises(ValueError), tool_transaction(session, resources):  # noqa: PT012 - the block is what is tested
        counter.value = 7
        raise ValueError
    assert counter.value == 6


def test_snapshots_by_hand() -> None:
    """`create_snapshot` remembers session and resources; restoring works again and again until it is released."""
    session, files, counter, resources = made()
    snapshot = create_snapshot(session, resources, tag="checkpoint")
    for _ in range(2):
        session[Note].append(Note("x"))
        files.write("kept.txt", "during")
        counter.value = 9
        restore_snapshot(session, resources, snapshot)
        assert (texts(session), files.read("kept.txt"), counter.value) == (["before"], "before", 1)
    release_snapshot(session, snapshot)
    assert counter.alive == 0
    with pytest.raises(RollbackError) as caught:
        restore_snapshot(session, resources, snapshot)
    assert isinstance(caught.value.causes["session"], SnapshotError)


def test_a_restore_forgets_what_was_born_since() -> None:
    """Restoring closes resources built since the snapshot; the next `get` builds them anew."""
    closed: list[object] = []

    class Born(Counter):
        def close(self) -> None:
            closed.append(self)

    session = Session()
    resources = ResourceRegistry.build(binding(Born, Born)).open().open()
    snapshot = create_snapshot(session, resources)
    first = resources.get(Born)
    restore_snapshot(session, resources, snapshot)
    assert closed == [first]
    assert resources.get(Born) is not first


def test_resources_in_any_form() -> None:
    """A registry, a prompt's resources, an open context and none at all are taken; anything else is refused."""
    session, counter = Session(), Counter(1)
    registry = ResourceRegistry.build({Counter: counter})
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="t", key="k")).bind(resources=registry)
    for form in (registry, registry.open().open(), prompt.resources):
        with transaction(session, form, validate=lambda: False):
            counter.value = 2
        assert counter.value == 1
    with transaction(session, None, validate=lambda: False):
        counter.value = 3
    assert counter.value == 3
    with pytest.raises(TypeError, match="resources must be"):
        transaction(session, cast(Any, {Counter: counter}))


def test_every_participant_is_tried() -> None:
    """A participant that cannot be restored leaves the others restored, and all causes are told."""

    class Stuck(Counter):
        def restore(self, snapshot: int, /) -> None:
            raise OSError("stuck")

    class AlsoStuck(Stuck): ...

    first, last, session = Counter(1), Counter(1), Session()

    class Last(Counter): ...

    last = Last(1)
    resources = ResourceRegistry.build({Counter: first, Stuck: Stuck(), AlsoStuck: AlsoStuck(), Last: last}).open()
    with pytest.raises(RollbackError, match="2 of 5 participants") as caught, transaction(session, resources.open()):  # noqa: PT012 - the block is what is tested
        first.value = last.value = 2
        session[Note].append(Note("x"))
        raise ValueError
    assert sorted(caught.value.causes) == ["AlsoStuck", "Stuck"]
    assert (first.value, last.value, session[Note].count()) == (1, 1, 0)
    assert isinstance(caught.value.__context__, ValueError)


def test_a_transaction_that_is_not_open_has_no_snapshot() -> None:
    """Before and after its block a transaction has no snapshot to restore."""
    running = transaction(Session())
    with pytest.raises(SessionError):
        _ = running.snapshot
    with running:
        assert running.snapshot.parts == ()
    with pytest.raises(SessionError):
        _ = running.snapshot


def test_a_failed_undo_lets_others_in() -> None:
    """After an undo that failed the locks are free: the run stops, other runs go on."""
    world = World(make_tool(act))

    def restore(snapshot: int, /) -> None:
        raise OSError("stuck")

    world.counter.restore = restore
    with pytest.raises(RollbackError):
        world.call(arguments={"how": "error"})
    thread = threading.Thread(target=world.call)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_transaction_that_cannot_begin_lets_others_in() -> None:
    """When a participant cannot be remembered the transaction does not begin, and no other call waits for it."""
    world = World(make_tool(act))

    def snapshot() -> int:
        raise OSError("no room")

    world.counter.snapshot, sound = snapshot, world.counter.snapshot
    with pytest.raises(OSError, match="no room"), transaction(world.session, world.executor._resources):
        pytest.fail("it began")
    world.counter.snapshot = sound
    thread = threading.Thread(target=world.call)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert world.counter.value == 8


def test_files_are_not_a_session() -> None:
    """The error shows how files take part, and that works."""
    files, session = InMemoryFilesystem(), Session()
    for begin in (transaction, tool_transaction, create_snapshot):
        with pytest.raises(TypeError, match=r"must be a Session, got InMemoryFilesystem.*ResourceRegistry\.build"):
            begin(cast(Session, files))
    with suppress(ValueError), transaction(session, ResourceRegistry.build({Filesystem: files})):
        files.write("a", "b")
        raise ValueError
    assert not files.exists("a")
