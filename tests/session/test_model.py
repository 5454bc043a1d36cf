"""A session against a naive model, through random interleavings of everything that changes it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from tests.conftest import examples

from weakincentives.errors import ReducerError, SnapshotError
from weakincentives.session import (
    Append,
    Replace,
    Session,
    SliceOp,
    SlicePolicy,
    Snapshot,
    Vector,
    reducer,
    replace_latest_by,
    upsert_by,
)


@dataclass(frozen=True)
class Item:
    key: int
    text: str = ""


@dataclass(frozen=True)
class Happened:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    number: int


@dataclass(frozen=True)
class Put:
    item: Item


@dataclass(frozen=True)
class Touch:
    """Changes two slices, and fails in the second for odd numbers."""

    number: int


@dataclass(frozen=True)
class Total:
    value: int = 100

    @reducer(on=Happened)
    def add(self, event: Happened) -> Total:
        return Total(self.value + event.number)


def _key(item: Item) -> int:
    return item.key


def _put(view: Vector[Item], event: Put) -> SliceOp[Item]:
    return upsert_by(_key)(view, event.item)


def _touch(view: Vector[float], event: Touch) -> SliceOp[float]:
    return Append(float(event.number))


def _touch_or_fail(view: Vector[str], event: Touch) -> SliceOp[str]:
    if event.number % 2:
        raise ValueError("odd")
    return Replace([str(event.number)])


@dataclass
class Naive:
    """The same session with deep copies and plain lists."""

    state: dict[str, list[Any]] = field(
        default_factory=lambda: {"items": [], "words": [], "numbers": [], "floats": [], "total": [Total()]}
    )
    log: list[Happened] = field(default_factory=list[Happened])

    def copy(self) -> Naive:
        return Naive(self.state_copy(), list(self.log))

    def state_copy(self) -> dict[str, list[Any]]:
        return {name: list(items) for name, items in self.state.items()}


def _configure(session: Session) -> None:
    session.install(Total)
    session[Item].register(Put, _put)
    session[Item].register(Item, replace_latest_by(_key))
    session[float].register(Touch, _touch)
    session[str].register(Touch, _touch_or_fail)


_items = st.builds(Item, st.integers(0, 5), st.text("ab", max_size=2))
_few = st.lists(st.integers(0, 9), max_size=40)

Pair = tuple[Session, Naive]
Taken = tuple[Session, Snapshot, dict[str, list[Any]]]


class SessionMachine(RuleBasedStateMachine):
    sessions: Bundle[Any] = Bundle("sessions")
    snapshots: Bundle[Any] = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.views: list[tuple[Vector[Any], list[Any]]] = []

    @initialize(target=sessions)
    def start(self) -> Pair:
        session = Session()
        _configure(session)
        return self._keep((session, Naive()))

    def _keep(self, pair: Pair) -> Pair:
        self.pairs.append(pair)
        return pair

    @rule(pair=sessions, numbers=_few)
    def seed(self, pair: Pair, numbers: list[int]) -> None:
        session, naive = pair
        session[int].seed(numbers)
        naive.state["numbers"] = list(numbers)

    @rule(pair=sessions, numbers=_few)
    def append_many(self, pair: Pair, numbers: list[int]) -> None:
        session, naive = pair
        for number in numbers:
            session[int].append(number)
        naive.state["numbers"] += numbers

    @rule(pair=sessions, number=st.integers())
    def dispatch_plain(self, pair: Pair, number: int) -> None:
        session, naive = pair
        assert session.dispatch(number).ok
        naive.state["numbers"].append(number)

    @rule(pair=sessions, item=_items)
    def dispatch_upsert(self, pair: Pair, item: Item) -> None:
        session, naive = pair
        session.dispatch(Put(item))
        places = [place for place, known in enumerate(naive.state["items"]) if known.key == item.key]
        if places:
            naive.state["items"][places[-1]] = item
        else:
            naive.state["items"].append(item)

    @rule(pair=sessions, item=_items)
    def dispatch_replace_by(self, pair: Pair, item: Item) -> None:
        session, naive = pair
        session.dispatch(item)
        naive.state["items"] = [*(known for known in naive.state["items"] if known.key != item.key), item]

    @rule(pair=sessions, number=st.integers(-5, 5), told=st.booleans())
    def dispatch_log(self, pair: Pair, number: int, told: bool) -> None:
        session, naive = pair
        if told:
            session.dispatch(Happened(number))
        else:
            session.record(Happened(number))
        naive.log.append(Happened(number))
        latest = naive.state["total"][-1] if naive.state["total"] else Total()
        naive.state["total"] = [Total(latest.value + number)]

    @rule(pair=sessions, number=st.integers(0, 9))
    def dispatch_to_two(self, pair: Pair, number: int) -> None:
        session, naive = pair
        if number % 2:
            with pytest.raises(ReducerError):
                session.dispatch(Touch(number))
            return
        session.dispatch(Touch(number))
        naive.state["floats"].append(float(number))
        naive.state["words"] = [str(number)]

    @rule(pair=sessions, limit=st.integers(0, 9))
    def clear_some(self, pair: Pair, limit: int) -> None:
        session, naive = pair
        session[int].clear(lambda number: number < limit)
        naive.state["numbers"] = [number for number in naive.state["numbers"] if number >= limit]

    @rule(pair=sessions)
    def clear_all(self, pair: Pair) -> None:
        session, naive = pair
        session[Item].clear()
        session[Total].clear()
        naive.state["items"], naive.state["total"] = [], []

    @rule(pair=sessions)
    def reset(self, pair: Pair) -> None:
        session, naive = pair
        session.reset()
        naive.state = Naive().state

    @rule(target=snapshots, pair=sessions)
    def snapshot(self, pair: Pair) -> Taken:
        session, naive = pair
        return session, session.snapshot(), naive.state_copy()

    @rule(taken=snapshots, pair=sessions)
    def restore(self, taken: Taken, pair: Pair) -> None:
        session, snapshot, state = taken
        other, _ = pair
        if other is not session:
            with pytest.raises(SnapshotError):
                other.restore(snapshot)
        session.restore(snapshot)
        assert session.changes(snapshot) == ()
        naive = next(naive for known, naive in self.pairs if known is session)
        naive.state = {name: list(items) for name, items in state.items()}

    @rule(taken=snapshots)
    def changes(self, taken: Taken) -> None:
        session, snapshot, state = taken
        naive = next(naive for known, naive in self.pairs if known is session)
        touched = {change.slice_type: change for change in session.changes(snapshot)}
        for name, slice_type in SLICES.items():
            if slice_type in touched:
                assert list(touched[slice_type].before) == state[name]
                assert list(touched[slice_type].after) == naive.state[name]
            else:
                assert state[name] == naive.state[name]

    @rule(taken=consumes(snapshots))
    def release(self, taken: Taken) -> None:
        session, snapshot, _ = taken
        session.release(snapshot)
        with pytest.raises(SnapshotError):
            session.restore(snapshot)

    @rule(target=sessions, pair=sessions, beside=st.booleans())
    def copy(self, pair: Pair, beside: bool) -> Pair:
        session, naive = pair
        return self._keep((session.clone() if beside else session.fork(), naive.copy()))

    @rule(target=sessions, pair=sessions)
    def save_and_load(self, pair: Pair) -> Pair:
        session, naive = pair
        loaded = Session.from_json(session.to_json(), types=[*SLICES.values(), Happened])
        _configure(loaded)
        return self._keep((loaded, naive.copy()))

    @rule(pair=sessions)
    def keep_a_view(self, pair: Pair) -> None:
        session, naive = pair
        self.views.append((session[int].all(), list(naive.state["numbers"])))

    @invariant()
    def all_sessions_are_as_the_model_says(self) -> None:
        for session, naive in self.pairs:
            for name, slice_type in SLICES.items():
                assert list(session[slice_type].all()) == naive.state[name]
                assert session[slice_type].count() == len(naive.state[name])
            assert list(session[Happened].all()) == naive.log

    @invariant()
    def views_never_change(self) -> None:
        for view, items in self.views:
            assert list(view) == items


SLICES: dict[str, type[Any]] = {"items": Item, "words": str, "numbers": int, "floats": float, "total": Total}

EXAMPLES = int(os.environ.get("WINK_EXAMPLES", "2000"))


class TestSessionAgainstTheModel(SessionMachine.TestCase):  # type: ignore[name-defined]
    """Random histories of several sessions agree with the model after every step."""

    settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)


@pytest.mark.torture
class TestSessionAgainstTheModelForLong(SessionMachine.TestCase):  # type: ignore[name-defined]
    """The same for at least 2,000 longer histories; WINK_EXAMPLES asks for more."""

    settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
