"""The log of writes that a session keeps while a savepoint is open, so that an undo takes back one call's alone.

Each write has an owner: the innermost open savepoint around the writer, or None for code outside of all calls. Undoing
a savepoint replays the writes of everybody else on the content at its opening, for the keys it wrote itself; all other
keys stay as they are. A reducer sees only its own slice, so replaying key by key is exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..fence import Owner
from ..persistent_map import with_entry, without_entry
from .events import SlicePolicy, own_policy
from .vector import EMPTY

logger = logging.getLogger(__name__)

NOBODY = Owner()
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


class Failure(NamedTuple):
    """A write of somebody else that cannot be repeated without the writes that were undone."""

    write: Write
    error: Exception


class Mark:
    """What the log knows of an open savepoint: the content when it was opened, and how many writes came before.

    `for_all` stands for work outside of our calls: writes by code outside of all calls are its own too.
    """

    __slots__ = ("content", "failures", "for_all", "owner", "position")

    def __init__(self, owner: Owner, for_all: bool, content: Content, position: int) -> None:
        self.owner = owner
        self.for_all = for_all
        self.content = content
        self.position = position
        self.failures: list[Failure] = []
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


def without_own(mark: Mark, now: Content, writes: Iterable[Write], failures: list[Failure] | None = None) -> Content:
    """What `now` would be if the writes of one savepoint had not been made.

    `writes` are those since it was opened. A write of somebody else that raises is left out and added to `failures`.
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


def _replayed(value: Any, writes: Sequence[Write], default: Any, failures: list[Failure]) -> Any:
    for write in writes:
        if default is not None and write.space == INITIAL:
            default = write.transform(default)
            continue
        before = default if value is None else value
        try:
            after = write.transform(before)
        except Exception as error:  # noqa: BLE001 - reducers and predicates are users' code
            failures.append(Failure(write, error))
            continue
        if after is not before:
            value = after
    return value


def _with(values: _Values, key: Any, value: Any) -> _Values:
    if values.get(key) is value:
        return values
    return without_entry(values, key) if value is None else with_entry(values, key, value)


def log_failures(failures: Iterable[Failure]) -> None:
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


def compacted(marks: Iterable[Mark], now: Content, writes: Sequence[Write]) -> list[Write] | None:
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


__all__ = [
    "INITIAL",
    "NOBODY",
    "NOTES",
    "POLICIES",
    "REDUCERS",
    "STATE",
    "Content",
    "Failure",
    "Mark",
    "Policies",
    "Transform",
    "Write",
    "compacted",
    "constant",
    "is_log_slice",
    "log_failures",
    "unchanged",
    "without_own",
]
