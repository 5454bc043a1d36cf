"""Whole slices from time to time, and where each one changed: so that reading a late step needs few of those before.

A frame is written when the changes since the last one weigh more than the slice, so a record is at most twice as large
as its changes, and what a slice held is read from one frame and less than its weight in changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from ...errors import RunFormatError, SessionFormatError
from ...session import Snapshot
from ...session.deltas import FindType, dump_notes, dump_slice
from .large_items import LargeItems, is_whole, size_of
from .protocol import RunStore
from .rows import FrameStep, Step, digest_of

NOTES = "notes"
"""The notes of a session, in the place of the name of a slice; names of classes have a colon."""

IN_STEP = ""
"""In the place of a blob: the step itself has the whole slice."""

COMPLETE = ""
"""In the place of a slice: all rows of the steps up to this one are there. Those after it are written later, so that
not every step has to write to one more table."""

_EVERY = 128
"""Steps after which rows are written at the latest."""
_LIGHT = 32 * 1024
"""Bytes of changes after which they are, and that are read without a frame."""
_HEAVIEST = 64 * 1024 * 1024
"""Bytes of the largest frame that is written."""
_SAMPLE = 16
"""Of longer lists, so many items are weighed."""


@final
class FrameWriter:
    """Says where slices changed, and when one is to be written whole; for the rows of one run, in order."""

    def __init__(self, find: FindType) -> None:
        self._find = find
        self._complete = 0  # the last step whose rows are on record
        self._pending: dict[tuple[str, int], FrameStep] = {}  # rows of the steps after it
        self._pending_weight = 0
        self._weights: dict[str, int] = {}  # of the changes since the slice was last whole
        self._replacing: dict[str, int] = {}  # of those among them that do more than add items
        self._lengths: dict[str, int] = {}
        self._checks: dict[str, int] = {}  # how heavy they must be for the slice to be weighed again

    def resume(self, frames: Sequence[FrameStep], steps: Sequence[Step]) -> bool:
        """Go on after these rows; False when they were written without frames, so that these would not be complete."""
        complete = [frame.seq for frame in frames if frame.slice == COMPLETE]
        if not complete:
            return False
        self._complete = complete[0]
        changed = {(frame.slice, frame.seq) for frame in frames if frame.blob is None}
        for step in steps:
            for name, change, whole in _changes(step.body.get("state", {})):
                if step.seq > self._complete:
                    self._add(name, step.seq, change, whole)
                else:
                    self._weigh(name, change, is_whole=(name, step.seq) not in changed)
        return True

    def frames(
        self, seq: int, state: Mapping[str, Any], now: Snapshot, large: LargeItems
    ) -> tuple[list[FrameStep], dict[str, bytes]]:
        """The rows to write with a step that changed slices so, and their blobs; then `wrote` is to be called."""
        for name, change, whole in _changes(state):
            self._add(name, seq, change, whole or seq == 1)
        if seq > 1 and seq - self._complete < _EVERY and self._pending_weight <= _LIGHT:
            return [], {}
        blobs: dict[str, bytes] = {}
        rows = dict(self._pending)
        for name in self._weights:
            frame = self._whole(name, now, large)
            if frame is not None:
                blob = digest_of(frame)
                blobs[blob] = frame
                rows[name, seq] = FrameStep(name, seq, blob)
        return [*rows.values(), FrameStep(COMPLETE, seq, IN_STEP)], blobs

    def wrote(self, frames: Sequence[FrameStep]) -> None:
        """The rows that `frames` gave are on record."""
        for frame in frames:
            if frame.blob:
                self._weights[frame.slice] = self._replacing[frame.slice] = 0
        if frames:
            self._complete = frames[-1].seq
            self._pending.clear()
            self._pending_weight = 0

    def _add(self, name: str, seq: int, change: Any, is_whole: bool) -> None:
        self._pending[name, seq] = FrameStep(name, seq, IN_STEP if is_whole else None)
        self._pending_weight += self._weigh(name, change, is_whole=is_whole)

    def _weigh(self, name: str, change: Any, *, is_whole: bool) -> int:
        keep, replaced, added = change or _NOTHING
        items = [*replaced.values(), *added]
        sample = items if len(items) <= _SAMPLE else items[:: len(items) // _SAMPLE]
        weight = size_of(sample) * len(items) // max(1, len(sample))
        only_adds = not replaced and keep == self._lengths.get(name, 0) and name != NOTES
        self._lengths[name] = keep + len(added)
        if is_whole:
            self._weights[name] = self._replacing[name] = 0
        else:
            self._weights[name] = self._weights.get(name, 0) + weight
            if not only_adds:
                self._replacing[name] = self._replacing.get(name, 0) + weight
        return weight

    def _whole(self, name: str, now: Snapshot, large: LargeItems) -> bytes | None:
        """The slice as a blob, if the changes are heavier than it is; those that only add to it never are."""
        weight, replacing = self._weights[name], self._replacing.get(name, 0)
        if replacing <= max(_LIGHT, self._checks.get(name, 0)):
            return None
        data = _json(dump_notes(now, self._find) if name == NOTES else self._slice(now, name, large)).encode()
        if len(data) > _HEAVIEST:
            self._checks[name] = 2 * replacing
            return None
        self._checks[name] = len(data)
        return data if weight > len(data) else None

    def _slice(self, now: Snapshot, name: str, large: LargeItems) -> list[Any]:
        """The slice; its large items as they are on record, since later patches are made to these."""
        made = dump_slice(now, name, self._find)
        items = made[2][2]
        for index, item in large[name].items():
            items[index] = {"whole": item}
        return made


def state_changes(store: RunStore, run_id: str, until: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Changes that give what the session held after a step, applied in order to an empty one, with their steps.

    Raises `RunFormatError` for rows that do not follow one another.
    """
    large = LargeItems()
    for seq, change in _needed_changes(store, run_id, until):
        try:
            state, large = large.read(change)
        except SessionFormatError as error:
            raise RunFormatError(f"Step {seq} of {run_id!r} cannot be read: {error}.") from error
        yield seq, state


def _needed_changes(store: RunStore, run_id: str, until: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    frames = store.frames(run_id, until=until)
    complete = next((frame.seq for frame in frames if frame.slice == COMPLETE), 0)  # 0: there were no frames then
    wanted: dict[int, dict[str, bool]] = {}
    for frame in frames:
        if frame.slice == COMPLETE:
            continue
        if not frame.blob:
            wanted.setdefault(frame.seq, {})[frame.slice] = frame.blob == IN_STEP
        else:
            whole = json.loads(store.blob(frame.blob))
            yield frame.seq, {"notes": whole} if frame.slice == NOTES else {"slices": [whole]}
    for step in store.steps(run_id, seqs=sorted(wanted)):
        names, state = wanted[step.seq], step.body.get("state", {})
        slices = [
            [name, policy, _complete(change) if names[name] else change]
            for name, policy, change in state.get("slices", ())
            if name in names
        ]
        yield step.seq, {"slices": slices, "notes": state.get("notes", ()) if NOTES in names else ()}
    for step in store.steps(run_id, after=complete, until=until):
        yield step.seq, step.body.get("state", {})


def _changes(state: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Each slice with its change, and whether that alone gives the whole slice."""
    for name, _, change in state.get("slices", ()):
        yield name, change, is_whole(change)
    if "notes" in state:
        yield NOTES, [0, {}, state["notes"]], False


def _complete(change: Any) -> Any:
    """A change that replaces all it keeps, as one that keeps nothing."""
    if change is None:
        return None
    keep, replaced, added = change
    return [0, {}, [*(replaced[str(index)] for index in range(keep)), *added]]


_json = json.JSONEncoder(separators=(",", ":")).encode
_NOTHING: tuple[int, dict[str, Any], list[Any]] = (0, {}, [])

__all__ = ["COMPLETE", "IN_STEP", "NOTES", "FrameWriter", "state_changes"]
