"""Dispatching: reducers, then subscribers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest

from weakincentives.errors import ReducerError, SessionError
from weakincentives.session import (
    Append,
    Clear,
    Dispatcher,
    Extend,
    InProcessDispatcher,
    Replace,
    Session,
    SliceOp,
    SlicePolicy,
    Vector,
    append_all,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)


@dataclass(frozen=True)
class Step:
    name: str
    done: bool = False


@dataclass(frozen=True)
class Finish:
    name: str


@dataclass(frozen=True)
class Happened:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    what: str


def _fail(view: Vector[Any], event: Any) -> SliceOp[Any]:
    raise ValueError("no \N{SNOWMAN}")


def test_an_event_without_reducers_goes_to_its_own_slice() -> None:
    """Dispatching an event without a reducer appends it to the slice of its class."""
    session = Session()
    session.dispatch(Step("a"))
    session.dispatch(Step("b"))
    assert session[Step].all() == [Step("a"), Step("b")]


def test_an_event_with_reducers_goes_only_where_they_put_it() -> None:
    """A STATE event with reducers is not appended to its own slice as well."""
    session = Session()
    session[Step].register(Finish, lambda view, event: Append(Step(event.name, done=True)))
    session.dispatch(Finish("a"))
    assert session[Step].all() == [Step("a", done=True)]
    assert session[Finish].count() == 0


def test_a_log_event_is_recorded_and_reduced() -> None:
    """A LOG event is always appended to its own slice; its reducers on other slices run too."""
    session = Session()
    session[str].register(Happened, lambda view, event: Append(event.what))
    session.dispatch(Happened("x"))
    assert session[Happened].all() == [Happened("x")]
    assert session[str].all() == ["x"]


OPERATIONS: list[tuple[SliceOp[int], list[int]]] = [
    (Append(9), [1, 2, 3, 9]),
    (Extend([8, 9]), [1, 2, 3, 8, 9]),
    (Extend([]), [1, 2, 3]),
    (Replace([9]), [9]),
    (Replace(Vector([7])), [7]),
    (Replace([]), []),
    (Clear(), []),
    (Clear(lambda number: number == 2), [1, 3]),
]


@pytest.mark.parametrize(("operation", "content"), OPERATIONS)
def test_operations(operation: SliceOp[int], content: list[int]) -> None:
    """Each operation does to the slice what its name says."""
    session = Session()
    session[int].seed([1, 2, 3])
    session[int].register(str, lambda view, event: operation)
    session.dispatch("go")
    assert session[int].all() == content


def test_built_in_reducers() -> None:
    """append_all, replace_latest, upsert_by and replace_latest_by keep what they promise."""

    def initial(word: str) -> str:
        return word[0]

    def content(reduce: Any) -> list[str]:
        session = Session()
        session[str].register(str, reduce)
        for word in ["ant", "bee", "asp"]:
            session.dispatch(word)
        return list(session[str].all())

    assert content(append_all) == ["ant", "bee", "asp"]
    assert content(replace_latest) == ["asp"]
    assert content(upsert_by(initial)) == ["asp", "bee"]
    assert content(replace_latest_by(initial)) == ["bee", "asp"]


def test_upsert_by_removes_older_duplicates() -> None:
    """The newest item with the key is replaced where it stands; older ones, seeded or appended, go."""
    session = Session()
    session[str].seed(["ant", "bee", "ape", "cat", "auk", "bat"])
    session[str].register(str, upsert_by(lambda word: word[0]))
    session.dispatch("asp")
    assert session[str].all() == ["bee", "cat", "asp", "bat"]
    session.dispatch("bug")
    assert session[str].all() == ["cat", "asp", "bug"]


def test_reducers_of_one_slice_run_in_order_and_see_each_other() -> None:
    """Several reducers of one event on one slice run in the order of registration, each on the last one's result."""
    session = Session()
    session[int].register(str, lambda view, event: Append(1))
    session[int].register(str, lambda view, event: Append(view[-1] + 1))
    session.dispatch("go")
    assert session[int].all() == [1, 2]


def test_registering_the_same_reducer_again_changes_nothing() -> None:
    """An equal registration is kept once, so that a suite may register itself for every evaluation."""
    session = Session()

    def key(word: str) -> str:
        return word

    for _ in range(3):
        session[str].register(str, append_all)
        session[str].register(str, upsert_by(key))
    session.dispatch("a")
    assert session[str].all() == ["a"]


def test_a_reducer_counts_from_its_registration_on() -> None:
    """A reducer registered between two events of a class runs for the second."""
    session = Session()
    session.dispatch("a")
    session[int].register(str, lambda view, event: Append(1))
    session.dispatch("b")
    assert session[str].all() == ["a"]
    assert session[int].all() == [1]


def test_when_a_reducer_raises_nothing_is_applied_and_nobody_is_told() -> None:
    """A failing reducer undoes its whole dispatch, log entry included, and raises ReducerError from its error."""
    session = Session()
    told: list[object] = []
    session.dispatcher.subscribe(Happened, told.append)
    session[str].register(Happened, lambda view, event: Append(event.what))
    session[int].register(Happened, _fail)
    with pytest.raises(ReducerError, match=r"reducer of int for Happened raised ValueError: no \\u2603") as caught:
        session.dispatch(Happened("x"))
    assert isinstance(caught.value.__cause__, ValueError)
    assert session[str].count() == session[int].count() == session[Happened].count() == 0
    assert told == []


NONSENSE: list[tuple[Any, str]] = [
    (None, "returned NoneType"),
    ("text", "returned str"),
    (Append("text"), "cannot hold a str"),
    (Extend([1, "text"]), "cannot hold a str"),
    (Replace(["text"]), "cannot hold a str"),
    (Clear[int](lambda number: 1 // 0), "division"),
]


@pytest.mark.parametrize(("outcome", "complaint"), NONSENSE)
def test_a_reducer_that_returns_nonsense_is_reported(outcome: Any, complaint: str) -> None:
    """What is no operation, or puts another type into the slice, is a ReducerError and applies nothing."""
    session = Session()
    session[int].seed([1])
    session[int].register(bytes, lambda view, event: outcome)
    with pytest.raises(ReducerError, match=complaint):
        session.dispatch(b"go")
    assert session[int].all() == [1]


@pytest.mark.parametrize("operation", [Replace[Happened]([]), Clear[Happened]()])
def test_a_reducer_cannot_shrink_a_log(operation: SliceOp[Happened]) -> None:
    """Replace and Clear on a LOG slice are a ReducerError."""
    session = Session()
    session.dispatch(Happened("x"))
    session[Happened].register(str, lambda view, event: operation)
    with pytest.raises(ReducerError, match="LOG slice"):
        session.dispatch("go")
    assert session[Happened].count() == 1


def test_a_reducer_may_add_to_a_log() -> None:
    """Append from a reducer of another event grows a LOG slice."""
    session = Session()
    session[Happened].register(str, lambda view, event: Append(Happened(event)))
    session.dispatch("x")
    assert session[Happened].all() == [Happened("x")]


def test_a_reducer_that_writes_to_its_session_is_refused() -> None:
    """Reducers are pure: a dispatch from inside one raises instead of being overwritten."""
    session = Session()

    def impure(view: Vector[int], event: str) -> SliceOp[int]:
        session[float].append(1.0)
        return Append(1)

    session[int].register(str, impure)
    with pytest.raises(ReducerError, match="pure") as caught:
        session.dispatch("go")
    assert isinstance(caught.value.__cause__, SessionError)
    assert session[int].count() == session[float].count() == 0
    session.dispatch(1.0)
    assert session[float].count() == 1


def test_interrupting_a_reducer_applies_nothing() -> None:
    """KeyboardInterrupt passes through a dispatch, which is then not applied, and the session goes on."""
    session = Session()

    def interrupted(view: Vector[int], event: str) -> SliceOp[int]:
        raise KeyboardInterrupt

    session[float].register(str, lambda view, event: Append(1.0))
    session[int].register(str, interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.dispatch("go")
    assert session[float].count() == 0
    session[int].append(1)
    assert session[int].count() == 1


def test_recording_tells_nobody_and_telling_records_nothing() -> None:
    """`record` is the state half of `dispatch`, `dispatcher.dispatch` the subscribers' half."""
    session = Session()
    told: list[object] = []
    session.event_bus.subscribe(str, told.append)
    session.record("a")
    assert (list(session[str].all()), told) == (["a"], [])
    session.dispatcher.dispatch("b")
    assert (list(session[str].all()), told) == (["a"], ["b"])
    session.dispatch("c")
    assert (list(session[str].all()), told) == (["a", "c"], ["b", "c"])
    assert session.event_bus is session.dispatcher


def test_subscribers_see_the_state_after_the_event() -> None:
    """When a subscriber runs, the event is in the slices already, and the subscriber may dispatch."""
    session = Session()

    def echo(word: str) -> None:
        session.dispatch(len(word))

    session.dispatcher.subscribe(str, echo)
    session.dispatch("four")
    assert session[int].all() == [4]


def test_the_given_bus_is_used() -> None:
    """`Session(bus=b)` tells the subscribers of `b`."""
    bus = InProcessDispatcher()
    told: list[object] = []
    bus.subscribe(str, told.append)
    session = Session(bus=bus)
    session.dispatch("a")
    assert session.dispatcher is session.event_bus is bus
    assert isinstance(bus, Dispatcher)
    assert told == ["a"]


def test_a_failing_subscriber_is_reported_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The result names handlers that ran and that failed; the failure is logged with its traceback; state stays."""
    session = Session()
    ran: list[str] = []

    def bad(event: str) -> None:
        raise RuntimeError("boom")

    def good(event: str) -> None:
        ran.append(event)

    session.dispatcher.subscribe(str, bad)
    session.dispatcher.subscribe(str, good)
    with caplog.at_level(logging.ERROR):
        result = session.dispatch("a")
    assert result.event == "a"
    assert result.handled == (good,)
    assert [(handler, str(error)) for handler, error in result.errors] == [(bad, "boom")]
    assert not result.ok
    assert ran == ["a"]
    assert session[str].all() == ["a"]
    assert "bad failed on str" in caplog.text
    assert "RuntimeError: boom" in caplog.text


def test_an_interrupted_subscriber_interrupts_the_dispatch() -> None:
    """KeyboardInterrupt in a subscriber reaches the dispatcher's caller at once."""
    bus = InProcessDispatcher()

    def interrupted(event: object) -> None:
        raise KeyboardInterrupt

    bus.subscribe(object, interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.dispatch(1)


def test_subscribers_match_by_isinstance_in_the_order_of_subscription() -> None:
    """A subscriber of a base class hears of its subclasses' events, one of object of all."""
    bus = InProcessDispatcher()
    heard: list[str] = []
    bus.subscribe(object, lambda event: heard.append("object"))
    bus.subscribe(bool, lambda event: heard.append("bool"))
    bus.subscribe(int, lambda event: heard.append("int"))
    bus.dispatch(True)
    bus.dispatch(5)
    assert heard == ["object", "bool", "int", "object", "int"]


def test_subscribing_and_unsubscribing() -> None:
    """Subscribing twice is once; unsubscribing says whether there was something to do."""
    bus = InProcessDispatcher()
    heard: list[int] = []
    bus.subscribe(int, heard.append)
    bus.subscribe(int, heard.append)
    bus.dispatch(1)
    assert bus.unsubscribe(int, heard.append) is True
    assert bus.unsubscribe(int, heard.append) is False
    bus.dispatch(2)
    assert heard == [1]


def test_who_subscribes_during_a_dispatch_hears_of_the_next_event() -> None:
    """The subscribers of an event are those at the moment of its dispatch."""
    bus = InProcessDispatcher()
    heard: list[int] = []
    bus.subscribe(int, lambda event: bus.subscribe(int, heard.append))
    bus.dispatch(1)
    bus.dispatch(2)
    assert heard == [2]


def test_async_subscribers_are_refused() -> None:
    """An `async def` subscriber raises TypeError when it subscribes, since it would never be awaited."""

    async def handler(event: int) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="async"):
        InProcessDispatcher().subscribe(int, handler)
    with pytest.raises(TypeError, match="class"):
        InProcessDispatcher().subscribe(cast("Any", "int"), print)


@dataclass(frozen=True)
class Tally:
    total: int = 0
    words: tuple[str, ...] = ()

    @reducer(on=int)
    def add(self, event: int) -> Tally:
        return Tally(self.total + event, self.words)

    @reducer(on=str)
    def note(self, event: str) -> Tally:
        return Tally(self.total, (*self.words, event))

    @reducer(on=bytes)
    def wipe(self, event: bytes) -> Tally | SliceOp[Tally]:
        return Clear()

    @reducer(on=float)
    def wrong(self, event: float) -> Tally:
        return cast("Any", event)


def test_installed_methods_are_reducers_of_the_latest_state() -> None:
    """`install` gives the slice its initial state, and each event replaces the state by what the method returns."""
    session = Session()
    session.install(Tally)
    assert session[Tally].all() == [Tally()]
    session.dispatch(2)
    session.dispatch("a")
    session.dispatch(3)
    assert session[Tally].all() == [Tally(5, ("a",))]
    assert session[int].count() == 0


def test_an_emptied_state_starts_from_the_initial_one() -> None:
    """A method may return an operation; on an empty slice the methods run on the initial state."""
    session = Session()
    session.install(Tally, initial=Tally(10))
    session.dispatch(b"wipe")
    assert session[Tally].all() == []
    session.dispatch(1)
    assert session[Tally].all() == [Tally(11)]


def test_a_method_that_returns_nonsense_is_reported() -> None:
    """A method must return a state or an operation."""
    session = Session()
    session.install(Tally)
    with pytest.raises(ReducerError, match=r"Tally\.wrong must return a Tally"):
        session.dispatch(1.5)


def test_installing_again_changes_the_initial_state_only() -> None:
    """Installing a second time adds no second reducer and leaves what is there."""
    session = Session()
    session.install(Tally, initial=lambda: Tally(1))
    session.install(Tally, initial=Tally(100))
    session.dispatch(1)
    assert session[Tally].latest() == Tally(101)
    session.install(Tally)
    session.dispatch(1)
    assert session[Tally].latest() == Tally(102)


def test_inherited_and_overridden_methods() -> None:
    """A subclass inherits reducer methods; one it overrides without the decorator is none."""

    @dataclass(frozen=True)
    class Quiet(Tally):
        def note(self, event: str) -> Tally:
            raise AssertionError

    session = Session()
    session.install(Quiet, initial=Quiet(7))
    session.dispatch("a")
    assert session[Quiet].all() == [Quiet(7)]
    assert session[str].all() == ["a"]


@dataclass(frozen=True)
class Needy:
    value: int

    @reducer(on=int)
    def add(self, event: int) -> Needy:
        return Needy(event)


def test_what_cannot_be_installed_says_why() -> None:
    """install raises TypeError for a class that is not frozen, has no reducers, or cannot be made."""

    @dataclass
    class Loose:
        @reducer(on=int)
        def add(self, event: int) -> Loose:
            return self

    session = Session()
    with pytest.raises(TypeError, match="frozen"):
        session.install(Loose)
    with pytest.raises(TypeError, match="no method decorated"):
        session.install(Step, initial=Step("a"))
    with pytest.raises(TypeError, match="initial="):
        session.install(Needy)
    with pytest.raises(TypeError, match="must be a Needy or make one"):
        session.install(Needy, initial=cast("Any", 5))
    with pytest.raises(TypeError, match="made a str"):
        session.install(Needy, initial=cast("Any", str))
    with pytest.raises(TypeError, match="event class"):
        reducer(on=cast("Any", "int"))
