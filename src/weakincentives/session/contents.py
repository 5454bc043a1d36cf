"""What a session holds: the slices, notes and registrations, and the log of writes while a savepoint is open.

Content and registrations are immutable values in plain attributes. Writers replace them while they hold the lock;
readers just read them, so a reader never waits and never sees half of a dispatch. That also makes snapshots, forks
and clones a matter of copying a few references. Only what was just logged waits in a list until somebody looks: most
events are recorded for a reader who comes much later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import RLock, get_ident
from typing import Any, NamedTuple, TypeVar

from ..errors import ReducerError, SessionError
from ..fence import Owner, current_owner
from .events import SlicePolicy, own_policy
from .operations import apply
from .snapshots import NO_LOGS, NO_NOTES, NO_SLICES, Logged, Logs, Notes, Slices
from .vector import EMPTY, Vector
from .write_log import NOBODY, POLICIES, Content, Mark, Transform, Write, compacted, is_log_slice

# What recording an event does to the slices: which reducers run, and what one of them makes of a slice.


AnyReducer = Callable[[Vector[Any], Any], object]


class Step(NamedTuple):
    """One reducer to run for an event, and the slice it reduces."""

    slice_type: type[Any]
    reducer: AnyReducer


class Plan(NamedTuple):
    """What recording an event of one type does; worked out once, until something is registered."""

    appends: bool
    is_log: bool
    steps: tuple[tuple[Step, bool], ...]
    is_pending: bool
    """Whether it is a LOG only because of a call that may still be undone."""


def with_step(step: Step, steps: tuple[Step, ...] | None) -> tuple[Step, ...]:
    """The steps of an event with one more; an equal one is replaced where it stands."""
    if steps is None or step not in steps:
        return (*(steps or ()), step)
    return tuple(step if known == step else known for known in steps)


def reduced(step: Step, content: Vector[Any], event: object, append_only: bool) -> Vector[Any]:
    """The slice's content after the event; `ReducerError` when the reducer raises."""
    slice_type, reducer = step
    try:
        return apply(reducer(content, event), content, slice_type, append_only=append_only)
    except Exception as error:
        text = str(error).encode("ascii", "backslashreplace").decode()
        raise ReducerError(
            f"The reducer of {slice_type.__qualname__} for {type(event).__qualname__} raised "
            f"{type(error).__qualname__}: {text}. Nothing of this dispatch was applied."
        ) from error


def repeated(step: Step, event: object, content: Vector[Any]) -> Vector[Any]:
    """The same once more, on the content as it is without what an undo took away; raises what the reducer raises."""
    slice_type, reducer = step
    return apply(reducer(content, event), content, slice_type, append_only=False)


T = TypeVar("T")

COMPACT_AT = 10_000
"""How long the log of writes may become before the writes of others become part of what the savepoints remember."""

_NO_OWNERS: frozenset[Owner] = frozenset()


class Contents:
    """Slices, notes and registrations behind one lock. Methods that write need the lock."""

    __slots__ = (
        "_compact_at", "_plans", "_reducing", "calls", "for_all", "initial", "lock", "logged", "marks", "notes",
        "policies", "reducers", "state", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lock = RLock()
        self.state: Slices = NO_SLICES
        self.logged = Logged(NO_LOGS, [], 0)
        self.initial: Slices = NO_SLICES
        self.notes: Notes = NO_NOTES
        self.policies: Mapping[type[Any], SlicePolicy] = {}
        self.reducers: Mapping[type[Any], tuple[Step, ...]] = {}
        self.calls: list[Owner] = []
        """The owners of the open savepoints. Writes are noted only while there are some."""
        self.for_all: frozenset[Owner] = _NO_OWNERS
        """Those whose savepoint also owns what is written outside of all calls."""
        self.marks: dict[Owner, Mark] = {}
        """What they remember. The first write after the opening makes it: a call that writes nothing costs nothing."""
        self.writes: list[Write] = []
        self._compact_at = COMPACT_AT
        self._plans: dict[type[Any], Plan] = {}
        self._reducing = 0

    # Reading: no lock, since every attribute holds an immutable value; but for what was just logged.

    @property
    def logs(self) -> Logs:
        """The content of the LOG slices now."""
        if self.logged.fresh:
            with self.lock:
                self.logs = self.logged.all()
        return self.logged.logs

    @logs.setter
    def logs(self, logs: Logs) -> None:
        self.logged = Logged(logs, [], self.logged.epoch)

    def view(self, slice_type: type[Any]) -> Vector[Any]:
        """The content of a slice now."""
        content = self.state.get(slice_type)
        if content is None:
            content = self.logs.get(slice_type)
            if content is None:
                return self.initial.get(slice_type, EMPTY)
        return content

    def policy(self, slice_type: type[Any]) -> SlicePolicy:
        """What was registered for the slice, else what its class says, else STATE."""
        registered = self.policies.get(slice_type)
        return registered or own_policy(slice_type) or SlicePolicy.STATE

    @property
    def content(self) -> Content:
        """Everything that an undo restores."""
        return self.state, self.notes, self.initial, self.policies, self.reducers

    # Writing.

    def store(self, content: Content) -> None:
        """Make this the content. Slices that are LOGs no longer have nothing among the logs."""
        policies = content[POLICIES]
        if policies is not self.policies:
            logs = {kind: items for kind, items in self.logs.items() if is_log_slice(policies, kind)}
            if len(logs) < len(self.logs):
                self.logged = Logged(logs, [], self.logged.epoch + 1)
        self.state, self.notes, self.initial, self.policies, self.reducers = content
        self._plans = {}

    def note_write(
        self, space: int, key: Any, transform: Transform, event_type: type[Any] | None = None, unowned: bool = False
    ) -> None:
        """Note a write that is about to be made; should Ctrl-C come before it is, then an undo still covers it."""
        if len(self.writes) >= self._compact_at:
            self.compact()
        self.make_marks()
        self.writes.append(Write(NOBODY if unowned else current_owner(), space, key, transform, event_type))

    def note_writes(self, writes: Iterable[tuple[int, Any, Transform, type[Any] | None]], unowned: bool) -> None:
        """Note several that are about to be made together."""
        if len(self.writes) >= self._compact_at:
            self.compact()
        self.make_marks()
        owner = NOBODY if unowned else current_owner()
        self.writes += [Write(owner, *write) for write in writes]

    def make_marks(self) -> None:
        """Remember the content for savepoints that were opened since the last write."""
        for owner in tuple(self.calls):
            if owner not in self.marks:
                self.marks[owner] = Mark(owner, owner in self.for_all, self.content, len(self.writes))

    def compact(self) -> None:
        """Make the log of writes shorter, and what it remembers of others part of what the savepoints do."""
        for owner in [owner for owner in self.calls if owner.holder is None]:  # opening it was interrupted
            with suppress(ValueError):
                self.calls.remove(owner)
        self.marks = {owner: mark for owner, mark in self.marks.items() if owner in self.calls}
        shorter = self.pure(compacted, self.marks.values(), self.content, self.writes)
        if shorter is not None:
            self.writes = shorter
        self._compact_at = max(COMPACT_AT, 2 * len(self.writes))

    def forget_mark(self, owner: Owner) -> None:
        """Forget what a savepoint remembered; without any open one the log of writes ends."""
        self.marks.pop(owner, None)
        self.for_all -= {owner}
        if not self.calls:
            self.writes, self.marks, self._compact_at = [], {}, COMPACT_AT

    def is_pending(self, slice_type: type[Any]) -> bool:
        """Whether a LOG slice was none when one of the open savepoints began: its items may become state again."""
        return any(not is_log_slice(mark.content[POLICIES], slice_type) for mark in self.marks.values())

    def pure(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run users' reducers and predicates; what they write to this session is refused."""
        self._reducing = get_ident()
        try:
            return function(*arguments)
        finally:
            self._reducing = 0

    def refuse_impure_writes(self) -> None:
        """Raise when a reducer or predicate of this thread is running: its dispatch would overwrite the change."""
        if self._reducing and self._reducing == get_ident():
            raise SessionError(
                "A reducer or predicate wrote to its session. They are pure: return an operation instead."
            )
