"""Whether a store is sound: everything in it is read again, and what is wrong is said in sentences."""
# ruff: noqa: S608 - statements are put together from constants; whatever comes from outside is a value

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, final, get_args

from ...errors import RecordError, SessionFormatError
from ...session.encoding import present_name
from ..ledger.sql import SqlTransaction
from .frames import COMPLETE, IN_STEP, NOTES
from .large_items import LargeItems, is_whole
from .rows import StepKind
from .seals import RowForm
from .statements import plain_text

T = TypeVar("T")

_PAGE = 1000
MARK = '"blob":"'
"""How the body of a step refers to content."""
_IN_BODY = re.compile(MARK + r"([0-9a-f]{40})\"")

_NODE = re.compile(r"file:[0-7]+:[0-9a-f]{40}|directory:[0-7]+|symlink:[0-9a-f]{40}")

Read = Callable[[Callable[[SqlTransaction], T]], T]
"""Runs queries."""

Used = dict[str, tuple[str, str]]
"""The names of content in the store, each with its digest and where it is referred to."""


def digests_in(body: str) -> list[str]:
    """The content that the text of a body refers to.

    A text of a program that looks the same keeps content, which is no harm.
    """
    return _IN_BODY.findall(body)


def problems_of_run(
    read: Read[Any], run_id: str, form: RowForm, content: Callable[[str], bytes], used: Used
) -> Iterator[str]:
    """What is wrong with the rows of one run; the content that they refer to is added to `used`."""
    frames = _Frames(read, run_id, content)
    expected = 1
    for seq, kind, stored in _steps(read, run_id):
        where = f"Run {run_id!r}, step {seq}"
        if seq != expected:
            missing = f"{expected}" if seq == expected + 1 else f"{expected} to {seq - 1}"
            yield f"Run {run_id!r}: step {missing} is missing."
        expected = seq + 1
        if kind not in get_args(StepKind):
            yield f"{where}: {kind!r} is not a kind of step."
        try:
            text = form.body_text(stored)
            body = json.loads(text)
        except (RecordError, ValueError):
            text, body = "", None
        if isinstance(body, dict):
            yield from frames.problems_at(seq, cast("dict[str, Any]", body).get("state", {}))
        else:
            yield f"{where}: its body cannot be read."
            frames.give_up()
        for digest in digests_in(text):
            used.setdefault(form.name(digest), (digest, where))
    for what, seq, stored, is_node in _references(read, run_id):
        where = f"Run {run_id!r}, step {seq}, {plain_text(what)}"
        try:
            reference = form.reference(stored)
        except RecordError as error:
            yield f"{where}: {error}"
            continue
        if is_node and _NODE.fullmatch(reference) is None:
            yield f"{where}: {reference!r} is not a file."
        elif not reference.startswith("directory:"):
            digest = reference.rpartition(":")[2]
            used.setdefault(form.name(digest), (digest, where))


def _steps(read: Read[Any], run_id: str) -> Iterator[tuple[int, str, str]]:
    statement = (
        "SELECT seq, kind, body FROM wink_steps WHERE run_id = :run_id AND seq > :after ORDER BY seq "
        f"LIMIT {_PAGE}"
    )  # fmt: skip
    after = 0
    while True:
        rows = read(lambda transaction, after=after: transaction.rows(statement, run_id=run_id, after=after))
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def _references(read: Read[Any], run_id: str) -> Iterator[tuple[str, int, str, bool]]:
    """What the rows of files refer to, and those of slices, with which of both it is."""
    files = "SELECT path, seq, before, after FROM wink_files WHERE run_id = :run_id ORDER BY path, seq"
    for path, seq, *nodes in read(lambda transaction: transaction.rows(files, run_id=run_id)):
        yield from ((path, seq, node, True) for node in nodes if node is not None)
    frames = "SELECT slice, seq, blob FROM wink_frames WHERE run_id = :run_id AND blob <> '' ORDER BY slice, seq"
    for name, seq, blob in read(lambda transaction: transaction.rows(frames, run_id=run_id)):
        yield name, seq, blob, False


@final
class _Frames:
    """The frames of one run, compared with what the changes of its steps add up to.

    Only rows up to the last of the empty name count: those after it are not read yet.
    """

    def __init__(self, read: Read[Any], run_id: str, content: Callable[[str], bytes]) -> None:
        self._run_id = run_id
        self._content = content
        statement = "SELECT slice, seq, blob FROM wink_frames WHERE run_id = :run_id"
        rows = read(lambda transaction: transaction.rows(statement, run_id=run_id))
        self._complete = max((seq for name, seq, _ in rows if name == COMPLETE), default=0)
        self._rows: dict[int, dict[str, str | None]] = {}
        for name, seq, blob in rows:
            if name != COMPLETE and seq <= self._complete:
                self._rows.setdefault(seq, {})[plain_text(name)] = blob
        self._slices: dict[str, list[Any]] = {}
        self._notes: dict[str, Any] = {}
        self._large = LargeItems()
        self._readable = True

    def give_up(self) -> None:
        """A step cannot be read, so what comes after it cannot be compared."""
        self._readable = False

    def problems_at(self, seq: int, state: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with the rows of a step that changed the session so; steps are given in order."""
        if not self._readable:
            return
        where = f"Run {self._run_id!r}, step {seq}"
        rows = self._rows.get(seq, {})
        try:
            changed = self._apply(state)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, SessionFormatError):
            yield f"{where}: its changes of the session cannot be read."
            self.give_up()
            return
        if seq > self._complete:
            return
        for name, whole in changed.items():
            if name not in rows:
                yield f"{where}: {name} was changed, but its row among the frames is missing."
            elif rows[name] == IN_STEP and not whole and seq > 1:
                yield f"{where}: {name} is not in it as a whole, as the frames say."
        for name, blob in rows.items():
            if blob and not self._is_right(name, blob):
                yield f"{where}: the frame of {name} is not what its changes add up to."

    def _apply(self, state: Mapping[str, Any]) -> dict[str, bool]:
        """Which slices a step changed, and whether the step alone says what they hold."""
        changed: dict[str, bool] = {}
        whole, self._large = self._large.read(state)
        for (name, _, change), (_, _, recorded) in zip(whole.get("slices", ()), state.get("slices", ()), strict=True):
            items = self._slices.pop(present_name(name), [])
            changed[name] = is_whole(recorded)
            if change is not None:
                self._slices[present_name(name)] = _patched(items, change)
        for key, value in state.get("notes", ()):
            changed[NOTES] = False
            self._notes[_json(key)] = value
            if value is None:
                del self._notes[_json(key)]
        return changed

    def _is_right(self, name: str, reference: str) -> bool:
        try:
            whole = json.loads(self._content(reference.rpartition(":")[2]))
        except RecordError:
            return True  # said of the content itself
        except ValueError:
            return False
        try:
            if name == NOTES:
                return _same({_json(key): value for key, value in whole}, self._notes)
            state, _ = LargeItems().read({"slices": [whole]})
            return _same(_patched([], state["slices"][0][2]), self._slices.get(present_name(name), []))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, SessionFormatError):
            return False


def _patched(items: list[Any], change: Any) -> list[Any]:
    keep, replaced, added = change
    made = items[:keep]
    for index, item in replaced.items():
        made[int(index)] = item
    return [*made, *added]


def _same(one: Any, other: Any) -> bool:
    return one == other or _json(one) == _json(other)  # a NaN is not equal to itself


def problems_of_blobs(names: Iterable[str], used: Used, content: Callable[[str], bytes]) -> Iterator[str]:
    """What is wrong with the content that is there, and which is not."""
    known: set[str] = set()
    for name in names:
        known.add(name)
        try:
            content(name)
        except RecordError as error:
            yield f"{used[name][1]}: {error}" if name in used else str(error)
    for name, (digest, where) in used.items():
        if name not in known:
            yield f"{where}: the record lacks the content {digest}."


_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode

__all__ = ["MARK", "Used", "digests_in", "problems_of_blobs", "problems_of_run"]
