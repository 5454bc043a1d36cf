"""What a call registers, declares and subscribes is undone with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.session.own_parts import Calls, Line, Tick, core_of, failing, in_a_thread, texts
from tests.world import Go, Note, World, make_tool, ok

from weakincentives.fence import Fence, Owner, enter_owner, leave_owner
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session
from weakincentives.session import Append, DispatchResult, Replace, SlicePolicy, append_all
from weakincentives.session.events import EventHandler
from weakincentives.session.savepoints import close_savepoint, open_savepoint, undo_savepoint


def test_what_a_failed_call_installed_and_registered_is_undone() -> None:
    """Initial content, reducers and notes of a failed call are gone."""

    def work(context: ToolContext) -> None:
        context.session.install(Calls, initial=Calls(("mine",)))
        context.session[Note].register(Tick, lambda view, event: Replace([Note(event.by)]))
        context.session.note("mine", 1)

    world = failing(work)
    world.call()
    world.session.dispatch(Tick("later"))
    assert texts(world.session) == ["before"]
    assert list(world.session[Tick].all()) == [Tick("later")]
    assert world.session[Calls].count() == 0
    assert world.session.noted("mine") is None


def test_what_others_register_during_a_failing_call_stays() -> None:
    """A reducer and an initial state that other code adds to the same event and class survive."""

    def work(context: ToolContext) -> None:
        context.session[Note].register(Tick, lambda view, event: Append(Note("mine")))
        in_a_thread(lambda: world.session[int].register(Tick, lambda view, event: Append(7)))

    world = failing(work)
    world.call()
    world.session.dispatch(Tick())
    assert (texts(world.session), list(world.session[int].all())) == (["before"], [7])


def test_a_slice_that_a_failed_call_made_a_log_is_state_again() -> None:
    """Its items go back with the policy; what others added to it meanwhile is kept as state."""

    def work(context: ToolContext) -> None:
        context.session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
        context.session.dispatch(Line("mine"))
        in_a_thread(lambda: world.session[Line].append(Line("theirs")))
        context.session[Line].append(Line("mine again"))

    world = failing(work)
    world.call()
    assert world.session[Line].policy is SlicePolicy.STATE
    assert list(world.session[Line].all()) == [Line("theirs")]
    world.session.reset()
    assert world.session[Line].count() == 0


def test_a_log_keeps_what_a_failed_call_added() -> None:
    """A slice that was a LOG before the call, or that others made one too, loses nothing."""

    def work(context: ToolContext) -> None:
        for slice_type in (Line, Tick):
            context.session[slice_type].register(slice_type, append_all, policy=SlicePolicy.LOG)
        in_a_thread(lambda: world.session[Tick].register(Tick, append_all, policy=SlicePolicy.LOG))
        context.session.dispatch(Line("mine"))
        context.session.dispatch(Tick("mine"))

    world = failing(work)
    world.session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
    world.call()
    assert list(world.session[Line].all()) == [Line("mine")]
    assert list(world.session[Tick].all()) == [Tick("mine")]


def test_a_slice_that_a_kept_call_made_a_log_is_one() -> None:
    """After a success the slice is a LOG for good: no later undo and no restore takes its items."""

    def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
        context.session.dispatch(Line(params.how))
        return ToolResult.error("No.") if params.how == "second" else ok()

    world = World(make_tool(act))
    before = world.session.snapshot()
    world.call(arguments={"how": "first"})
    world.call(arguments={"how": "second"})
    world.session.restore(before)
    assert list(world.session[Line].all()) == [Line("first"), Line("second")]


def test_an_emptied_slice_that_becomes_a_log_shows_its_items() -> None:
    """Neither what was cleared before nor a snapshot from before hides what was logged since."""
    session = Session()
    session[Line].append(Line("gone"))
    before = session.snapshot()
    session[Line].clear()
    session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
    session.dispatch(Line("logged"))
    assert list(session[Line].all()) == [Line("logged")]
    session.restore(before)
    assert list(session[Line].all()) == [Line("logged")]


def test_subscriptions_of_a_failed_call_are_undone() -> None:
    """Who was subscribed hears nothing, who was unsubscribed hears again; what was there before stays there."""
    heard: list[str] = []
    handlers: dict[str, Callable[[Tick], None]] = {
        name: lambda _, name=name: heard.append(name) for name in ("new", "known", "removed", "twice", "theirs")
    }

    def work(context: ToolContext) -> None:
        dispatcher = context.session.dispatcher
        dispatcher.subscribe(Tick, handlers["new"])
        dispatcher.subscribe(Tick, handlers["known"])
        assert dispatcher.unsubscribe(Tick, handlers["removed"])
        assert not dispatcher.unsubscribe(Tick, handlers["twice"])
        dispatcher.subscribe(Tick, handlers["twice"])
        dispatcher.unsubscribe(Tick, handlers["twice"])
        world.session.dispatcher.subscribe(Tick, handlers["theirs"])

    world = failing(work)
    world.session.dispatcher.subscribe(Tick, handlers["known"])
    world.session.dispatcher.subscribe(Tick, handlers["removed"])
    world.call()
    world.session.dispatch(Tick())
    # A plain dispatcher is beyond the call: what is subscribed there stays.
    assert heard == ["known", "theirs", "removed"]


def test_a_subscription_that_others_want_too_stays() -> None:
    """A handler that a kept call subscribed while a failing one had it subscribed goes on being called."""
    heard: list[Tick] = []
    session, failed, kept = Session(), Owner(), Owner()
    for owner in (failed, kept):
        owner.holder = session
        open_savepoint(session, owner)
        session.guarded(Fence(None, owner)).dispatcher.subscribe(Tick, heard.append)
    undo_savepoint(session, failed)
    for owner in (failed, kept):
        close_savepoint(session, owner)
    session.dispatch(Tick())
    assert heard == [Tick()]
    assert core_of(session).subscribed == []


class Plain:
    """A dispatcher of another library, that does not say whether a subscription is new."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def subscribe(self, event_type: type[Any], handler: EventHandler[Any], /) -> None:
        self.handlers.append(handler)

    def unsubscribe(self, event_type: type[Any], handler: EventHandler[Any], /) -> bool:
        self.handlers.remove(handler)
        return True

    def dispatch(self, event: object, /) -> DispatchResult:
        return DispatchResult(event, (), ())


def test_subscriptions_at_any_dispatcher_are_undone() -> None:
    """A dispatcher of another library is asked to unsubscribe likewise."""
    bus, heard = Plain(), list[object]()
    world = failing(lambda context: context.session.dispatcher.subscribe(Tick, heard.append), Session(bus))
    world.call()
    assert bus.handlers == [world.heard.append]


def test_a_snapshot_of_a_slice_that_was_a_log_for_a_while_restores_its_items() -> None:
    """A call made the slice a LOG and was undone: a snapshot from in between still holds what was in it."""
    session, owner = Session(), Owner()
    open_savepoint(session, owner)
    token = enter_owner(owner)
    owner.holder = session
    session[Line].register(Tick, append_tick, policy=SlicePolicy.LOG)
    owner.holder = None
    leave_owner(token)
    session[Line].append(Line("of another"))
    taken = session.snapshot()
    undo_savepoint(session, owner)
    close_savepoint(session, owner)
    session[Line].clear()
    session.restore(taken)
    assert list(session[Line].all()) == [Line("of another")]


def append_tick(_: Any, event: Tick) -> Append[Line]:
    return Append(Line(event.by))
