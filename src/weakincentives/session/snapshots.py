"""Snapshots of a session, and what changed since one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from immutables import Map

from .events import SlicePolicy
from .vector import EMPTY, Vector

Slices = Map[type[Any], Vector[Any]]
"""The content of slices by their type; a type that is missing has its initial content."""

NO_SLICES: Slices = Map()

Logs = Mapping[type[Any], Vector[Any]]
"""The LOG slices likewise; never changed in place. There are few of them, so copying beats a persistent map."""

NO_LOGS: Logs = {}


@final
class Snapshot:
    """A session's content at one moment, for `session.restore` and `session.changes`.

    It is a reference to immutable data: taking one costs the same for any amount of data, and dropping it frees what
    nobody else holds. `session.release` empties it early.
    """

    __slots__ = ("home", "logs", "state")

    def __init__(self, home: object, state: Slices, logs: Logs) -> None:
        self.home = home
        self.state: Slices | None = state
        self.logs = logs

    def release(self) -> None:
        """Let go of the content; it cannot be restored any more."""
        self.state = None
        self.logs = NO_LOGS

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.state)} slices>" if self.state is not None else "<Snapshot, released>"


@final
@dataclass(frozen=True, slots=True)
class SliceChange:
    """One slice that was written to: its content before and after, as views that never change."""

    slice_type: type[Any]
    policy: SlicePolicy
    before: Vector[Any]
    after: Vector[Any]

    @property
    def added(self) -> int:
        """How many items more there are; negative when there are fewer."""
        return len(self.after) - len(self.before)


def compare(before: Slices | Logs, after: Slices | Logs, initial: Slices, policy: SlicePolicy) -> list[SliceChange]:
    """The slices whose content was replaced between two moments: linear in slice types, not in items."""
    if before is after:
        return []
    changes: list[SliceChange] = []
    for slice_type in dict.fromkeys((*before, *after)):
        nothing = initial.get(slice_type, EMPTY)
        old, new = before.get(slice_type, nothing), after.get(slice_type, nothing)
        if old is not new:
            changes.append(SliceChange(slice_type, policy, old, new))
    return changes


__all__ = ["NO_LOGS", "NO_SLICES", "Logs", "SliceChange", "Slices", "Snapshot", "compare"]
