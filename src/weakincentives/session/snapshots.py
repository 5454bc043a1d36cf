"""Snapshots of a session, and what changed since one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from .events import SlicePolicy
from .vector import EMPTY, Vector

Slices = Mapping[type[Any], Vector[Any]]
"""The content of slices by their type; a type that is missing has its initial content.

A dict that is never changed in place. There are few types, so copying it beats a persistent map.
"""

NO_SLICES: Slices = {}

Notes = Mapping[Any, Any]
"""What is remembered beside the slices. There may be one for each file: see `persistent_map.py`."""

NO_NOTES: Notes = {}


class LogBuffer(NamedTuple):
    """LOG slices, and what was recorded after them; `fresh` only grows, and ends with this value.

    In one `epoch` all slices only grow; emptying them begins another.
    """

    logs: Slices
    fresh: list[object]
    epoch: int

    def all(self, until: int | None = None) -> Slices:
        """The slices with what is fresh, or its first so many, in them."""
        found: dict[type[Any], list[object]] = {}
        for event in self.fresh[:until]:
            found.setdefault(type(event), []).append(event)
        return {**self.logs, **{kind: self.logs.get(kind, EMPTY).extend(events) for kind, events in found.items()}}


@final
class Snapshot:
    """A session's content at one moment, for `session.restore` and `session.changes`.

    It holds what each slice showed then: `initial` and `policies` say so of slices that are not in `state`.
    It is a reference to immutable data: taking one costs the same for any amount of data, and dropping it frees what
    is not shared. `session.release` empties it early.
    """

    __slots__ = ("_fresh", "_logged", "home", "initial", "notes", "policies", "state")

    def __init__(  # noqa: PLR0917 - one is made for every snapshot, so all of it by position
        self,
        home: object,
        state: Slices,
        logged: LogBuffer,
        notes: Notes,
        initial: Slices,
        policies: Mapping[type[Any], SlicePolicy],
    ) -> None:
        self.home: object = home
        self.state: Slices | None = state
        self.notes: Notes = notes
        self.initial: Slices = initial
        self.policies: Mapping[type[Any], SlicePolicy] = policies
        self._logged = logged
        self._fresh = len(logged.fresh)

    @property
    def epoch(self) -> int:
        """Of the LOG slices."""
        return self._logged.epoch

    def logs(self) -> Slices:
        """The content of the LOG slices."""
        if self._fresh:
            logged = self._logged
            self._logged, self._fresh = LogBuffer(logged.all(self._fresh), [], logged.epoch), 0
        return self._logged.logs

    def release(self) -> None:
        """Let go of the content; it cannot be restored any more."""
        self.state = None
        self.notes = NO_NOTES
        self.initial = NO_SLICES
        self._logged, self._fresh = LogBuffer(NO_SLICES, [], self._logged.epoch), 0

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.state)} slices>" if self.state is not None else "<Snapshot, released>"


@final
@dataclass(frozen=True, slots=True)
class SliceChange:
    """One slice that was written to: its content before and after, as views that never change.

    `contended` says that others wrote to it during the call: `before` then includes what they wrote.
    """

    slice_type: type[Any]
    policy: SlicePolicy
    before: Vector[Any]
    after: Vector[Any]
    contended: bool = False

    @property
    def added(self) -> int:
        """How many items more there are; negative when there are fewer."""
        return len(self.after) - len(self.before)


def compare(
    before: Slices,
    after: Slices,
    initial: Slices,
    policy: SlicePolicy,
    same: Callable[[Vector[Any], Vector[Any]], bool] | None = None,
) -> list[SliceChange]:
    """The slices whose content was replaced between two moments: linear in slice types, not in items."""
    if before is after:
        return []
    changes: list[SliceChange] = []
    for slice_type in dict.fromkeys((*before, *after)):
        nothing = initial.get(slice_type, EMPTY)
        old, new = before.get(slice_type, nothing), after.get(slice_type, nothing)
        if old is not new and not (same is not None and same(old, new)):
            changes.append(SliceChange(slice_type, policy, old, new))
    return changes


def same_log(old: Vector[Any], new: Vector[Any]) -> bool:
    """Whether two views of a slice that only grows show the same: what is fresh may have come to both on its own."""
    return len(old) == len(new) and old.latest() is new.latest()
