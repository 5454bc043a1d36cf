"""Native tools of a harness: the same gate, the same undo, the same events as our own."""

from __future__ import annotations

from contextvars import Context, copy_context
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from tests.world import Counter, Go, Note, World, make_tool, ok, outcomes

from weakincentives.deadlines import Deadline
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import QuotaPolicy, ToolContext, ToolInvoked, ToolResult
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import PendingToolTracker, RunContext, Session, transaction
from weakincentives.testing import FakeClock


class Harness:
    """A harness with tools of its own, that tells the tracker of them."""

    def __init__(self, **options: Any) -> None:
        self.session = Session()
        self.files = InMemoryFilesystem({"kept.txt": "before"})
        self.counter = Counter(1)
        resources = ResourceRegistry.build({Filesystem: self.files, Counter: self.counter}).open().open()
        self.tracker = PendingToolTracker(session=self.session, resources=resources, **options)

    def begin(self, tool_use_id: str = "abc", **options: Any) -> Any:
        return self.tracker.begin_tool_execution(tool_use_id=tool_use_id, tool_name="write_file", **options)

    def end(self, tool_use_id: str = "abc", *, success: bool = True, **options: Any) -> Any:
        return self.tracker.end_tool_execution(tool_use_id=tool_use_id, success=success, **options)

    def work(self) -> None:
        self.files.write("kept.txt", "during")
        self.counter.value += 1
        self.session[Note].append(Note("during"))

    @property
    def untouched(self) -> bool:
        found = (self.files.read("kept.txt"), self.counter.value, self.session[Note].count())
        return found == ("before", 1, 0)

    @property
    def events(self) -> tuple[ToolInvoked, ...]:
        return tuple(self.session[ToolInvoked].all())


def test_a_native_tool_that_succeeds() -> None:
    """What a successful native tool changed stays, with one event and a reply."""
    harness = Harness()
    assert harness.begin(arguments={"path": "kept.txt"}) is None
    assert harness.tracker.pending == ("abc",)
    harness.work()
    reply = harness.end()
    assert (reply.outcome, reply.text, harness.tracker.pending) == ("succeeded", "OK", ())
    assert harness.files.read("kept.txt") == "during"
    (event,) = harness.events
    assert (event.tool_name, event.call_id, event.params) == ("write_file", "abc", {"path": "kept.txt"})
    assert event.changes.files.changed == ("kept.txt",)
    assert harness.counter.alive == 0


def test_a_native_tool_that_fails_is_undone() -> None:
    """What a failed native tool changed is restored, and the reply says so."""
    harness = Harness()
    harness.begin()
    harness.work()
    reply = harness.end(success=False, result=ToolResult.error("disk full"))
    assert reply.text == "disk full\nRolled back: 1 file and the Note state. Nothing was changed."
    assert harness.untouched
    assert outcomes(harness.events) == ["failed"]


def test_aborting() -> None:
    """An aborted tool is undone and recorded as cancelled; all of them with `abort_all`."""
    harness = Harness()
    harness.begin()
    harness.work()
    assert harness.tracker.abort(tool_use_id="abc").outcome == "cancelled"  # pyright: ignore[reportOptionalMemberAccess]
    harness.begin("b")
    harness.work()
    harness.begin("c", read_only=True)
    harness.tracker.abort_all()
    assert harness.untouched
    assert [event.call_id for event in harness.events] == ["abc", "c", "b"]
    assert outcomes(harness.events) == ["cancelled"] * 3


def test_ids_that_are_not_pending() -> None:
    """Ending or aborting an unknown id, or one twice, does nothing."""
    harness = Harness()
    assert harness.end("nobody") is None
    assert harness.tracker.abort(tool_use_id="nobody") is None
    harness.begin()
    harness.end()
    assert harness.end() is None
    assert len(harness.events) == 1


def test_an_id_twice_is_refused() -> None:
    """A second begin with an id is refused, with an event, and leaves the first alone."""
    harness = Harness()
    harness.begin()
    reply = harness.begin()
    assert (reply.outcome, reply.duplicate) == ("invalid", True)
    assert harness.end().success


def test_one_writing_tool_at_a_time() -> None:
    """While a writing tool is pending another one is refused; read-only ones may overlap."""
    harness = Harness()
    harness.begin("a")
    reply = harness.begin("b")
    assert reply.outcome == "refused"
    assert reply.text.startswith("Another tool is still running")
    assert harness.begin("c", read_only=True) is None
    assert harness.begin("d", read_only=True) is None
    assert harness.end("d").success
    assert harness.end("a").success
    assert harness.end("c").success
    assert harness.begin("e") is None
    harness.end("e")
    assert outcomes(harness.events) == ["refused"] + ["succeeded"] * 4


def test_policies_and_deadlines_hold() -> None:
    """Native tools are asked for by the same gate: policies, then the deadline."""

    class Never:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> str:
            return f"Not {tool_name} of {params['path']}."

    harness = Harness(policies=[Never()])
    reply = harness.begin(arguments={"path": "x"})
    assert reply.text == "Not write_file of x.\nRefused by Never."
    clock = FakeClock()
    late = Harness(deadline=Deadline.after(timedelta(seconds=1), clock=clock))
    clock.advance(2)
    assert late.begin().outcome == "deadline"
    limited = Harness(policies=[QuotaPolicy(1)])
    limited.begin("a")
    limited.end("a")
    assert limited.begin("b").outcome == "refused"


def test_policies_are_told_of_successes() -> None:
    """`on_result` hears of a native tool's success, inside its transaction; when it raises the tool is undone."""
    told: list[Any] = []

    class Listens:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
            return None

        def on_result(self, tool_name: str, params: Any, result: Any, context: ToolContext) -> None:
            told.append(tool_name)
            if len(told) > 1:
                raise RuntimeError("cannot note that")

    harness = Harness(policies=[Listens()])
    harness.begin("a")
    assert harness.end("a").success
    harness.begin("b")
    harness.work()
    assert harness.end("b").outcome == "crashed"
    assert harness.untouched


def test_a_subscriber_that_fails_undoes_it() -> None:
    """A native tool whose event cannot be delivered is undone like any call."""
    harness = Harness()

    def refuse(event: ToolInvoked) -> None:
        raise RuntimeError("no")

    harness.session.dispatcher.subscribe(ToolInvoked, refuse)
    harness.begin()
    harness.work()
    assert harness.end().outcome == "undone"
    assert harness.untouched


def test_a_busy_session_is_not_waited_for() -> None:
    """A native tool is refused while another call holds the session, rather than blocking the harness."""
    harness = Harness()
    answers: list[Any] = []
    with transaction(harness.session):
        thread = Thread(target=lambda: answers.append(harness.begin("x")))
        thread.start()
        thread.join(10)
    assert [answer.outcome for answer in answers] == ["refused"]


def test_hooks_that_run_in_contexts_of_their_own() -> None:
    """Hooks of a harness run as tasks, each with its own context: begin and end still find each other."""
    harness = Harness()

    def hook(function: Any, *args: Any, **options: Any) -> Any:
        return copy_context().run(lambda: function(*args, **options))

    assert hook(harness.begin, "a") is None
    assert hook(harness.begin, "b", read_only=True) is None
    harness.work()
    assert hook(harness.end, "b").success
    assert not harness.untouched
    hook(harness.end, "a", success=False)
    assert harness.untouched
    assert hook(harness.begin, "c") is None
    assert hook(harness.end, "c").success


def test_ends_in_another_context_leave_nothing_behind() -> None:
    """Thousands of tools that begin in one context and end in another cost neither memory nor depth."""
    harness = Harness()
    for number in range(3_000):
        assert harness.begin(f"id-{number}") is None
        assert copy_context().run(harness.end, f"id-{number}").success
    with transaction(harness.session):
        pass
    assert len(harness.events) == 3_000


def test_a_participant_that_cannot_be_remembered() -> None:
    """When a snapshot cannot be taken the native tool must not run, and is told so; the next one may."""
    harness = Harness()

    def snapshot() -> int:
        raise OSError("no room")

    harness.counter.snapshot = snapshot
    reply = harness.begin()
    assert (reply.outcome, reply.is_error) == ("crashed", True)
    assert harness.tracker.pending == ()
    assert outcomes(harness.events) == ["crashed"]
    del harness.counter.snapshot
    assert Context().run(harness.begin, "2") is None, "the locks were released"


def test_results_are_routed_and_capped() -> None:
    """A result handed in is capped like any other, and carries the run's ids into the event."""
    run = RunContext()
    harness = Harness(run_context=run)
    harness.begin()
    reply = harness.end(result=ToolResult("x" * 100_000, None))
    assert len(reply.text) < 33_000
    assert harness.events[0].run_context is run


def test_it_needs_no_resources() -> None:
    """A tracker over a session alone works."""
    session = Session()
    tracker = PendingToolTracker(session=session)
    tracker.begin_tool_execution(tool_use_id="a", tool_name="bash")
    session[Note].append(Note("x"))
    tracker.end_tool_execution(tool_use_id="a", success=False)
    assert session[Note].count() == 0


@pytest.mark.parametrize("success", [True, False])
def test_our_own_calls_beside_native_ones(success: bool) -> None:
    """Our own calls on the same session, made while a native tool is pending, belong to it."""

    def note(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(Note("ours"))
        return ok()

    world = World(make_tool(note))
    tracker = PendingToolTracker(session=world.session)
    tracker.begin_tool_execution(tool_use_id="n", tool_name="task")
    world.call()
    tracker.end_tool_execution(tool_use_id="n", success=success)
    assert world.session[Note].count() == (2 if success else 1)
