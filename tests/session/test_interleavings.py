"""Undo against a sequential model: what is left is what all other writes alone would have made."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conftest import examples

from weakincentives.errors import ReducerError, SessionError
from weakincentives.fence import Fence, Owner, enter_owner, leave_owner
from weakincentives.session import Append, Replace, Session, SliceOp, SlicePolicy, Vector, append_all, reducer
from weakincentives.session.savepoints import (
    changes_in,
    close_savepoint,
    open_savepoint,
    undo_savepoint,
    unowned_recorder,
)


@dataclass(frozen=True)
class Remove:
    """Takes a number out of the slice of int; raises when it is not there."""

    number: int


@dataclass(frozen=True)
class Both:
    """Changes the slices of int and str."""

    number: int


@dataclass(frozen=True)
class Extra:
    """Has a reducer only while one is registered."""

    number: int


@dataclass(frozen=True)
class Happened:
    """A LOG event that counts in a STATE slice too, as ToolInvoked may."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    number: int


@dataclass(frozen=True)
class Line:
    """STATE until it is made a LOG."""

    number: int


@dataclass(frozen=True)
class Total:
    value: int = 0

    @reducer(on=Happened)
    def add(self, event: Happened) -> Total:
        return Total(self.value + event.number)


def remove(view: Vector[int], event: Remove) -> SliceOp[int]:
    numbers = list(view)
    numbers.remove(event.number)
    return Replace(numbers)


def add_number(view: Vector[int], event: Both) -> SliceOp[int]:
    return Append(event.number * 10 + len(view))


def add_word(view: Vector[str], event: Both) -> SliceOp[str]:
    return Replace([*view, str(event.number)][-3:])


def extra(view: Vector[str], event: Extra) -> SliceOp[str]:
    return Append(f"extra {event.number}")


# The model.

Fold = Callable[[Any], Any]
"""From the content of one key to the next; None is a missing key."""


@dataclass(eq=False)
class Part:
    space: str
    key: Any
    fold: Fold
    gone: bool = False


@dataclass(eq=False)
class Written:
    call: Call | None
    parts: list[Part]
    is_owned: bool = True


@dataclass(eq=False)
class Call:
    owner: Owner
    around: Call | None
    for_all: bool
    since: int

    def owns(self, written: Written) -> bool:
        if not written.is_owned:
            return False
        call = written.call
        if call is None:
            return self.for_all
        while call is not None:
            if call is self:
                return True
            call = call.around
        return False


@dataclass
class Model:
    """All writes since the beginning; the state is the fold of those that were not undone."""

    writes: list[Written] = field(default_factory=list[Written])
    lines: list[Line] = field(default_factory=list[Line])
    """What was appended to Line while it was a LOG: never undone while it is one."""

    def fold(self, *, drop: bool = False) -> dict[tuple[str, Any], Any]:
        values: dict[tuple[str, Any], Any] = {}
        for written in self.writes:
            for part in written.parts:
                if not part.gone:
                    self._apply(part, values, drop)
        return values

    def _apply(self, part: Part, values: dict[tuple[str, Any], Any], drop: bool) -> None:
        place = part.space, part.key
        before = values.get(place)
        if before is None and part.space == "slice":
            before = values.get(("initial", part.key), NOTHING)
        try:
            after = part.fold(before)
        except ValueError:
            assert drop, "only undoing a call can make a write fail"
            part.gone = True
            return
        if after is None:
            values.pop(place, None)
        elif not (part.space == "slice" and after is before):
            values[place] = after

    def view(self, slice_type: type[Any], values: dict[tuple[str, Any], Any] | None = None) -> list[Any]:
        values = self.fold() if values is None else values
        if slice_type is Line and ("policy", Line) in values:
            return list(self.lines)
        return values.get(("slice", slice_type), values.get(("initial", slice_type), NOTHING))

    def is_log(self) -> bool:
        return ("policy", Line) in self.fold()

    def undo(self, call: Call) -> None:
        was_log = self.is_log()
        for written in self.writes[call.since :]:
            if call.owns(written):
                for part in written.parts:
                    part.gone = True
        self.fold(drop=True)
        if was_log and not self.is_log():
            self.lines = []

    def moment(self) -> Moment:
        """What a snapshot holds."""
        values = self.fold()
        return Moment(values, list(self.lines) if ("policy", Line) in values else None)

    def restored(self, moment: Moment, slice_type: type[Any]) -> list[Any] | None:
        """What a restore writes to a slice; None for one that has its initial content, as it has it now."""
        if slice_type is Line and moment.lines is not None:
            return moment.lines
        shown = moment.values.get(("initial", slice_type))
        is_kept = shown is not None and shown is self.fold().get(("initial", slice_type))
        return moment.values.get(("slice", slice_type), None if is_kept else shown)


@dataclass(frozen=True)
class Moment:
    """What every slice and note showed; `lines` are those of Line while it was a LOG."""

    values: dict[tuple[str, Any], Any] = field(default_factory=dict[tuple[str, Any], Any])
    lines: list[Line] | None = None


NOTHING: list[Any] = []
"""The content of a slice that was never written to: the same list always, as a write that changes nothing is none."""


def constant(value: Any) -> Fold:
    return lambda _: value


SLICES = (int, str, Total, Line, Extra)
NOTES = ("a", "b")
_small = st.integers(0, 4)


class Interleavings(RuleBasedStateMachine):
    """Any number of calls, nested or side by side, writing in any order; each step is one writer's."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.model = Model()
        self.calls: list[Call] = []
        self.happened: list[Happened] = []
        self.snapshots: list[tuple[Any, Moment]] = []

    @initialize()
    def configure(self) -> None:
        session = self.session
        session[int].register(Remove, remove)
        session[int].register(Both, add_number)
        session[str].register(Both, add_word)
        session[Total].register(Happened, count)

    # Who writes.

    def writer(self, number: int) -> Call | None:
        """One of the open calls, or none."""
        return None if not self.calls or number == 0 else self.calls[number % len(self.calls)]

    @contextmanager
    def writing(self, call: Call | None, through_handle: bool) -> Generator[Session]:
        """The session as the writer has it: a guarded handle from anywhere, or the plain one inside the call."""
        if call is None:
            yield self.session
        elif through_handle:
            yield self.session.guarded(Fence(None, call.owner))
        else:
            token = enter_owner(call.owner)
            try:
                yield self.session
            finally:
                leave_owner(token)

    def wrote(self, call: Call | None, *parts: Part, is_owned: bool = True) -> None:
        self.model.writes.append(Written(call, list(parts), is_owned))

    # Calls.

    @rule(inside=st.integers(0, 5), for_all=st.sampled_from([False, False, False, True]))
    def open(self, inside: int, for_all: bool) -> None:
        around = self.writer(inside)
        owner = Owner()
        owner.around = None if around is None else around.owner
        owner.holder = self
        open_savepoint(self.session, owner, for_all)
        self.calls.append(Call(owner, around, for_all, len(self.model.writes)))

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 5))
    def keep(self, number: int) -> None:
        self.close(self.calls[number % len(self.calls)])

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 5))
    def fail(self, number: int) -> None:
        call = self.calls[number % len(self.calls)]
        self.undo(call)
        self.close(call)

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 5))
    def start_over(self, number: int) -> None:
        self.undo(self.calls[number % len(self.calls)])

    def undo(self, call: Call) -> None:
        expected = {change.slice_type: list(change.before) for change in changes_in(self.session, call.owner)}
        undo_savepoint(self.session, call.owner)
        self.model.undo(call)
        for slice_type, items in expected.items():
            assert list(self.session[slice_type].all()) == items

    def close(self, call: Call) -> None:
        close_savepoint(self.session, call.owner)
        call.owner.holder = None
        self.calls.remove(call)

    @rule()
    def compact(self) -> None:
        """The log of writes is made shorter whenever it has become long; that must not be noticed."""
        if self.calls:
            core_of(self.session).compact()

    # Writes.

    @rule(by=_small, handle=st.booleans(), number=_small)
    def append(self, by: int, handle: bool, number: int) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            session[int].append(number)
        self.wrote(call, Part("slice", int, lambda items: [*items, number]))

    @rule(by=_small, handle=st.booleans(), numbers=st.lists(_small, max_size=3))
    def seed(self, by: int, handle: bool, numbers: list[int]) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            session[int].seed(numbers)
        self.wrote(call, Part("slice", int, constant(numbers)))

    @rule(by=_small, handle=st.booleans(), number=_small, slice_type=st.sampled_from([int, Total, Line]))
    def clear(self, by: int, handle: bool, number: int, slice_type: type[Any]) -> None:
        call = self.writer(by)
        if slice_type is Line and self.model.is_log():
            return
        with self.writing(call, handle) as session:
            if slice_type is int:
                session[int].clear(lambda item: item <= number)
            else:
                session[slice_type].clear()
        if slice_type is int:
            self.wrote(call, Part("slice", int, lambda items: [item for item in items if item > number]))
        else:
            self.wrote(call, Part("slice", slice_type, constant(NOTHING)))

    @rule(by=_small, handle=st.booleans(), number=_small)
    def remove_number(self, by: int, handle: bool, number: int) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            if number not in self.model.view(int):
                with pytest.raises(ReducerError):
                    session.dispatch(Remove(number))
                return
            session.dispatch(Remove(number))
        self.wrote(call, Part("slice", int, lambda items: without(items, number)))

    @rule(by=_small, handle=st.booleans(), number=_small)
    def change_two(self, by: int, handle: bool, number: int) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            session.dispatch(Both(number))
        self.wrote(
            call,
            Part("slice", int, lambda items: [*items, number * 10 + len(items)]),
            Part("slice", str, lambda words: [*words, str(number)][-3:]),
        )

    @rule(by=_small, handle=st.booleans(), number=_small, key=st.sampled_from(NOTES))
    def note(self, by: int, handle: bool, number: int, key: str) -> None:
        call, value = self.writer(by), number or None
        with self.writing(call, handle) as session:
            session.note(key, value)
        self.wrote(call, Part("notes", key, constant(value)))

    @rule(by=_small, handle=st.booleans(), number=_small, recorded=st.booleans())
    def happen(self, by: int, handle: bool, number: int, recorded: bool) -> None:
        """An event of the engine belongs to no call, one that a call dispatches to the call; its log entry stays."""
        call, event = self.writer(by), Happened(number)
        with self.writing(call, handle) as session:
            if recorded:
                unowned_recorder(session)(event)
            else:
                session.dispatch(event)
        self.happened.append(event)
        initial = self.model.fold().get(("initial", Total), [])
        methods = self.model.fold().get(("reducers", Happened), [])
        parts = [Part("slice", Total, lambda totals: [Total((totals or [Total()])[-1].value + 100)])]
        if "add" in methods:
            parts.append(Part("slice", Total, lambda totals: [Total((totals or initial)[-1].value + number)]))
        self.wrote(call, *parts, is_owned=not recorded)

    @rule(by=_small, handle=st.booleans(), number=st.integers(1, 4))
    def install(self, by: int, handle: bool, number: int) -> None:
        call, initial = self.writer(by), Total(number)
        with self.writing(call, handle) as session:
            session.install(Total, initial=initial)
        self.wrote(
            call,
            Part("initial", Total, constant([initial])),
            Part("reducers", Happened, lambda known: known if known and "add" in known else [*(known or []), "add"]),
        )

    @rule(by=_small, handle=st.booleans())
    def register(self, by: int, handle: bool) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            session[str].register(Extra, extra)
        self.wrote(call, Part("reducers", Extra, constant(["extra"])))

    @rule(by=_small, handle=st.booleans(), number=_small)
    def dispatch_extra(self, by: int, handle: bool, number: int) -> None:
        call, event = self.writer(by), Extra(number)
        with self.writing(call, handle) as session:
            session.dispatch(event)
        if ("reducers", Extra) in self.model.fold():
            self.wrote(call, Part("slice", str, lambda words: [*words, f"extra {number}"]))
        else:
            self.wrote(call, Part("slice", Extra, lambda events: [*events, event]))

    @rule(by=_small, handle=st.booleans())
    def make_log(self, by: int, handle: bool) -> None:
        call = self.writer(by)
        with self.writing(call, handle) as session:
            if self.model.view(Line) and not self.model.is_log():
                with pytest.raises(SessionError):
                    session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
                return
            session[Line].register(Line, append_all, policy=SlicePolicy.LOG)
        parts = [Part("policy", Line, constant(True))]
        if not self.model.is_log():
            parts.append(Part("slice", Line, constant(None)))
        self.wrote(call, *parts)

    @rule(by=_small, handle=st.booleans(), number=_small, directly=st.booleans())
    def add_line(self, by: int, handle: bool, number: int, directly: bool) -> None:
        call, line = self.writer(by), Line(number)
        with self.writing(call, handle) as session:
            if directly:
                session[Line].append(line)
            else:
                session.record(line)
        if self.model.is_log():
            self.model.lines.append(line)
        self.wrote(call, Part("slice", Line, lambda lines: [*lines, line]))

    @rule()
    def take_snapshot(self) -> None:
        """At any time, also in the middle of calls that are undone later."""
        self.snapshots.append((self.session.snapshot(), self.model.moment()))

    @rule(by=_small, handle=st.booleans(), is_reset=st.sampled_from([False, False, True]), age=st.integers(0, 20))
    def restore_by_hand(self, by: int, handle: bool, is_reset: bool, age: int) -> None:
        """A snapshot, however old and whatever was undone since; or a reset."""
        call, moment = self.writer(by), Moment()
        with self.writing(call, handle) as session:
            if self.snapshots and not is_reset:
                snapshot, moment = self.snapshots[-1 - age % len(self.snapshots)]
                session.restore(snapshot)
            else:
                session.reset()
        is_log = self.model.is_log()
        parts = [Part("notes", key, constant(moment.values.get(("notes", key)))) for key in NOTES]
        parts += [
            Part("slice", slice_type, constant(self.model.restored(moment, slice_type)))
            for slice_type in SLICES
            if not (slice_type is Line and is_log)
        ]
        self.wrote(call, *parts)

    # What must hold after each step.

    @invariant()
    def the_session_is_as_the_model_says(self) -> None:
        values = self.model.fold()
        for slice_type in SLICES:
            assert list(self.session[slice_type].all()) == self.model.view(slice_type, values), slice_type
        for key in NOTES:
            assert self.session.noted(key) == values.get(("notes", key))
        assert list(self.session[Happened].all()) == self.happened
        assert (self.session[Line].policy is SlicePolicy.LOG) == (("policy", Line) in values)

    @invariant()
    def without_open_calls_nothing_is_noted(self) -> None:
        core = core_of(self.session)
        if not self.calls:
            assert not core.writes
            assert not core.marks
            assert not core.for_all

    def teardown(self) -> None:
        for call in list(self.calls):
            self.close(call)
        self.without_open_calls_nothing_is_noted()


def core_of(session: Session) -> Any:
    return getattr(session, "_core")  # noqa: B009 - what is noted is of no concern to users


def count(view: Vector[Total], event: Happened) -> SliceOp[Total]:
    return Replace([Total((list(view) or [Total()])[-1].value + 100)])


def without(items: list[int], number: int) -> list[int]:
    left = list(items)
    left.remove(number)
    return left


EXAMPLES = int(os.environ.get("WINK_EXAMPLES", "3000"))


class TestInterleavings(Interleavings.TestCase):  # type: ignore[name-defined]
    """Undoing a call leaves what everybody else's writes alone would have made, in every schedule."""

    settings = settings(max_examples=examples(50), stateful_step_count=25, deadline=None)


@pytest.mark.torture
class TestInterleavingsForLong(Interleavings.TestCase):  # type: ignore[name-defined]
    """The same for thousands of longer schedules; WINK_EXAMPLES asks for more."""

    settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
