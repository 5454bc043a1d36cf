"""What a session holds: the slices, notes and registrations, and the log of writes while a savepoint is open.

Content and registrations are immutable values in plain attributes. Writers replace them while they hold the lock;
readers just read them, so a reader never waits and never sees half of a dispatch. That also makes snapshots, forks
and clones a matter of copying a few references. Only what was just logged waits in a list until it is read: most
events are recorded for a reader who comes much later.

Each write in the log has an owner: the innermost open savepoint around the writer, or None for code outside of all
calls. Undoing a savepoint replays the writes of other owners on the content at its opening, for the keys it wrote
itself; all other keys stay as they are. A reducer sees only its own slice, so replaying key by key is exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

from ..errors import SessionError
from ..fence import Owner, current_owner
from ..interrupts import RLock
from ..persistent_map import with_entry, without_entry
from .events import SlicePolicy, own_policy
from .reducers import DispatchPlan, ReducerStep
from .snapshots import NO_NOTES, NO_SLICES, LogBuffer, Notes, Slices
from .vector import EMPTY, Vector

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

UNOWNED = Owner()
"""Owns what reducers derive from the engine's own events: no call undoes it."""

STATE, NOTES, INITIAL, POLICIES, REDUCERS = range(5)
"""The spaces that keys belong to: their places in a `Content`."""

Policies = Mapping[type[Any], SlicePolicy]
_Values = Mapping[Any, Any]
Content = tuple[_Values, _Values, _Values, _Values, _Values]
"""Everything that an undo restores, by space: slices, notes, initial content, policies, reducers."""

Transform = Callable[[Any], Any]
"""From the value of a key to its next value; None is a missing key. A missing slice has its initial content."""


class Write(NamedTuple):
    """One write. `event_type` is set when a reducer made it."""

    owner: Owner | None
    space: int
    key: Any
    transform: Transform
    event_type: type[Any] | None = None


class DroppedWrite(NamedTuple):
    """Another owner's write that cannot be repeated without the writes that were undone."""

    write: Write
    error: Exception


class SavepointMark:
    """What the log knows of an open savepoint: the content when it was opened, and how many writes came before.

    `for_all` stands for work outside of our calls: writes by code outside of all calls are its own too.
    """

    __slots__ = ("content", "failures", "for_all", "owner", "position")

    def __init__(self, owner: Owner, for_all: bool, content: Content, position: int) -> None:
        self.owner: Owner = owner
        self.for_all: bool = for_all
        self.content: Content = content
        self.position: int = position
        self.failures: list[DroppedWrite] = []
        """The writes that an undo drops, as far as `content` takes account of them already."""

    def owns(self, owner: Owner | None) -> bool:
        """Whether a write of that owner belongs to this savepoint."""
        return self.for_all if owner is None else owner.inside(self.owner)


def constant(value: Any) -> Transform:
    """A write that does not depend on what was there before."""
    return lambda _: value


def unchanged(value: Any) -> Any:
    """A write that only marks its key as written."""
    return value


def is_log_slice(policies: Policies, slice_type: type[Any]) -> bool:
    """Whether a slice is a LOG under these registrations."""
    return (policies.get(slice_type) or own_policy(slice_type)) is SlicePolicy.LOG


def without_own(
    mark: SavepointMark, now: Content, writes: Iterable[Write], failures: list[DroppedWrite] | None = None
) -> Content:
    """What `now` would be if the writes of one savepoint had not been made.

    `writes` are those since it was opened. Another owner's write that raises is left out and added to `failures`.
    """
    own: set[tuple[int, Any]] = set()
    others: dict[tuple[int, Any], list[Write]] = {}
    for write in writes:
        if mark.owns(write.owner):
            own.add((write.space, write.key))
            continue
        others.setdefault((write.space, write.key), []).append(write)
        if write.space == INITIAL:  # from here on it is what a missing slice has
            others.setdefault((STATE, write.key), []).append(write)
    failures = [] if failures is None else failures
    content: list[Any] = list(now)
    for space, key in own:
        if space != STATE:
            value = _replayed(mark.content[space].get(key), others.get((space, key), ()), None, failures)
            content[space] = _with(content[space], key, value)
    # What others made of a slice depends on its initial content. And a slice that only the undone writes made a LOG is
    # state again, with the items of others alone.
    own |= {(STATE, key) for space, key in own if space == INITIAL}
    own |= {(STATE, key) for space, key in own if space == POLICIES and is_log_slice(now[POLICIES], key)}
    for space, key in own:
        if space == STATE:
            value = None
            if not is_log_slice(content[POLICIES], key):
                initial = mark.content[INITIAL].get(key, EMPTY)
                value = _replayed(mark.content[STATE].get(key), others.get((STATE, key), ()), initial, failures)
            content[STATE] = _with(content[STATE], key, value)
    return tuple(content)  # pyright: ignore[reportReturnType] - the five maps again


def _replayed(value: Any, writes: Sequence[Write], default: Any, failures: list[DroppedWrite]) -> Any:
    for write in writes:
        if default is not None and write.space == INITIAL:  # a missing slice shows it; one that was written does not
            default = write.transform(default)
            continue
        before = default if value is None else value
        try:
            after = write.transform(before)
        except Exception as error:  # noqa: BLE001 - reducers and predicates are users' code
            failures.append(DroppedWrite(write, error))
            continue
        # A write that left the content as it was must not turn a missing slice into one that was written to.
        if after is not before:
            value = after
    return value


def _with(values: _Values, key: Any, value: Any) -> _Values:
    if values.get(key) is value:
        return values
    return without_entry(values, key) if value is None else with_entry(values, key, value)


def log_failures(failures: Iterable[DroppedWrite]) -> None:
    """Say which writes of others were dropped by an undo."""
    for write, error in failures:
        cause = "A write" if write.event_type is None else f"The reducer for {write.event_type.__qualname__}"
        logger.error(
            "%s to %s was dropped: it was made while another call ran, and fails without what that call had written, "
            "which was undone",
            cause, getattr(write.key, "__qualname__", ascii(write.key)), exc_info=error,
        )  # fmt: skip


def _depth(owner: Owner) -> int:
    return 0 if owner.around is None else 1 + _depth(owner.around)


def compacted(marks: Iterable[SavepointMark], now: Content, writes: Sequence[Write]) -> list[Write] | None:
    """The writes without those of others, which become part of what the savepoints remember; None if that is not exact.

    Each savepoint then remembers what an undo would restore at this moment. That is final if everything that can still
    be undone is the outer savepoint's own too, so all must be nested in one another. What stays of the savepoints' own
    writes is which keys they are of: first those of the outermost alone, and so on inwards.
    """
    chain = sorted(marks, key=lambda mark: _depth(mark.owner))
    for outer, inner in pairwise(chain):
        if not inner.owner.inside(outer.owner) or (inner.for_all and not outer.for_all):
            return None
    contents = [without_own(mark, now, writes[mark.position :], mark.failures) for mark in chain]
    kept: list[dict[tuple[Owner | None, int, Any], Write]] = [{} for _ in chain]
    for index, (owner, space, key, _, event_type) in enumerate(writes):
        # Code outside of all calls may have written before the inner one was opened: that is the outer one's alone.
        owning = sum(mark.position <= index and mark.owns(owner) for mark in chain)
        if owning:
            kept[owning - 1][owner, space, key] = Write(owner, space, key, unchanged, event_type)
    position = 0
    for mark, content, own in zip(chain, contents, kept, strict=True):
        mark.content, mark.position = content, position
        position += len(own)
    return [write for own in kept for write in own.values()]


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
        self.lock: RLock = RLock()
        self.state: Slices = NO_SLICES
        self.logged: LogBuffer = LogBuffer(NO_SLICES, [], 0)
        self.initial: Slices = NO_SLICES
        self.notes: Notes = NO_NOTES
        self.policies: Mapping[type[Any], SlicePolicy] = {}
        self.reducers: Mapping[type[Any], tuple[ReducerStep, ...]] = {}
        self.calls: list[Owner] = []
        """The owners of the open savepoints. Writes are noted only while there are some."""
        self.for_all: frozenset[Owner] = _NO_OWNERS
        """Those whose savepoint also owns what is written outside of all calls."""
        self.marks: dict[Owner, SavepointMark] = {}
        """What they remember. The first write after the opening makes it: a call that writes nothing costs nothing."""
        self.writes: list[Write] = []
        self._compact_at = COMPACT_AT
        self._plans: dict[type[Any], DispatchPlan] = {}
        self._reducing = 0

    # Reading: no lock, since every attribute holds an immutable value; but for what was just logged.

    @property
    def logs(self) -> Slices:
        """The content of the LOG slices now."""
        if self.logged.fresh:
            with self.lock:
                self.logs = self.logged.all()
        return self.logged.logs

    @logs.setter
    def logs(self, logs: Slices) -> None:
        self.logged = LogBuffer(logs, [], self.logged.epoch)

    def view(self, slice_type: type[Any]) -> Vector[Any]:
        """The content of a slice now."""
        content = self.state.get(slice_type)
        if content is None:
            content = self.logs.get(slice_type)
            if content is None:
                return self.initial.get(slice_type, EMPTY)
        return content

    def latest(self, slice_type: type[Any]) -> Any:
        """The newest item of a slice, or None: nearly always what was logged last, which then stays in its list."""
        fresh = self.logged.fresh
        if fresh and type(fresh[-1]) is slice_type:
            return fresh[-1]
        return self.view(slice_type).latest()

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
                self.logged = LogBuffer(logs, [], self.logged.epoch + 1)
        self.state, self.notes, self.initial, self.policies, self.reducers = content
        self._plans = {}

    def note_write(self, space: int, key: Any, transform: Transform, unowned: bool = False) -> None:
        """Note a write that is about to be made; should Ctrl-C come before it is, then an undo still covers it."""
        if len(self.writes) >= self._compact_at:
            self.compact()
        self.make_marks()
        self.writes.append(Write(UNOWNED if unowned else current_owner(), space, key, transform))

    def note_writes(self, writes: Iterable[tuple[int, Any, Transform, type[Any] | None]], unowned: bool) -> None:
        """Note several that are about to be made together."""
        if len(self.writes) >= self._compact_at:
            self.compact()
        self.make_marks()
        owner = UNOWNED if unowned else current_owner()
        self.writes += [Write(owner, *write) for write in writes]

    def make_marks(self) -> None:
        """Remember the content for savepoints that were opened since the last write."""
        for owner in tuple(self.calls):
            if owner not in self.marks:
                self.marks[owner] = SavepointMark(owner, owner in self.for_all, self.content, len(self.writes))

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
