"""What differs between a run on record and the same run made again, row by row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatchcase
from typing import Any, Literal, final

from ..masking import leaving, visible, visible_line
from ..runtime.record.resources import resource_rows
from ..runtime.record.rows import FileStep, Step
from .recorded_model import Recording

DivergenceKind = Literal[
    "prompt", "tools", "decision", "outcome", "reply", "state", "files", "output", "missing", "extra"
]
"""prompt, tools: what the model was told, and what it could call; decision: a call was admitted then and is refused
now, or the other way round; outcome: it ended differently; reply: the model would read another answer; state, files: it
changed something else; output: the run ended differently; missing, extra: a call or turn of then is not made now, or
one is made that was not."""

KINDS: tuple[DivergenceKind, ...] = (
    "prompt", "tools", "decision", "outcome", "reply", "state", "files", "output", "missing", "extra",
)  # fmt: skip
_READ: frozenset[DivergenceKind] = frozenset({"decision", "outcome", "reply", "missing", "extra"})
_NOT_RUN = frozenset({"unknown_tool", "invalid", "refused", "conflict"})
_SAME_AS = {"replayed": "succeeded"}
_SAID = frozenset({"whole", "delta", "view"})
_CONTEXT_LINES = 2
_MAX_SHOWN = 2_000

Normaliser = Callable[[str], str] | re.Pattern[str] | str
"""Makes texts that differ for no reason the same: a function, or a pattern whose matches become `<...>`."""


@final
@dataclass(frozen=True, slots=True)
class Divergence:
    """One thing that is not as it was.

    Attributes:
        step: the number of the recorded step; of the one before it for something extra.
        path: what it is about: a tool, a slice, a file.
        recorded: as text, after normalising; empty where there was nothing.
        present: the same, now.
        diff: both as a unified diff.
        tainted: whether it may only follow from an earlier one: the recorded model answers something it did not
            read then, or the slice or file had parted before.
    """

    kind: DivergenceKind
    step: int
    path: str
    recorded: str
    present: str
    diff: str
    tainted: bool

    def __str__(self) -> str:
        """What is printed may come from a model or a tool: credentials are masked, hidden characters are marked."""
        mark = " (tainted)" if self.tainted else ""
        head = f"step {self.step}: {self.kind} of {visible_line(leaving(self.path))}{mark}"
        diff = leaving(self.diff)
        diff = diff if len(diff) <= _MAX_SHOWN else f"{diff[:_MAX_SHOWN]}\n[...]"
        return "\n".join([head, *(f"    {visible(line)}" for line in diff.split("\n"))])


@final
class Comparison:
    """Compares two recordings of one run.

    Args:
        ignore: kinds, or patterns of paths (`*.log`) or of `kind:path`, that do not count.
        normalise: applied to texts on both sides, in order.
        served: the recorded steps that were answered from the record.
        not_made: those among them that ended in a way that cannot be made again.
        until_turn: turns after this one are not compared.
        failed: the recorded steps that were made to fail.

    Attributes:
        turns_differ: whether a call or a turn is missing or extra, also when that is ignored.
    """

    def __init__(
        self,
        recorded: Recording,
        present: Recording,
        *,
        ignore: Iterable[str],
        normalise: Iterable[Normaliser],
        served: Collection[int],
        not_made: Collection[int],
        until_turn: int | None,
        failed: Collection[int],
        ran_out: bool,
    ) -> None:
        self._recorded = recorded
        self._present = present
        self._ignore = tuple(ignore)
        self._normalise = tuple(_as_function(item) for item in normalise)
        self._served = served
        self._not_made = not_made
        self._until_turn = until_turn
        self._failed = failed
        self._ran_out = ran_out
        self.turns_differ: bool = False
        self._found: list[Divergence] = []
        self._tainted_from: int | None = None
        self._turn = 0
        self._ours = _State(self._text)
        self._theirs = _State(self._text)
        self._ours_at: dict[str, str] = {}
        self._theirs_at: dict[str, str] = {}
        self._parted: set[str] = set()
        self._last_prompts = ("", "")

    def run(self) -> tuple[Divergence, ...]:
        """All that differs, in order."""
        then, now = list(_turns(self._recorded)), list(_turns(self._present))
        self._ours.apply(then[0].rows)
        self._theirs.apply(now[0].rows)
        for old in then[1:]:
            if self._until_turn is not None and old.number > self._until_turn:
                break
            self._turn = old.number
            if old.number >= len(now):
                if self._ran_out or self._recorded.end is not None:
                    text = "the model was asked"
                    self._add("missing", old.rows[-1].seq, f"turn {old.number}", text, "")
                break
            self._compare_turn(old, now[old.number])
        else:
            if self._until_turn is None:
                self._compare_end()
        return tuple(self._found)

    # Turns.

    def _compare_turn(self, old: _Turn, new: _Turn) -> None:
        seq = old.step.seq
        self._state(seq, old.rows, new.rows)
        texts = self._kept(self._recorded, old.prompt), self._kept(self._present, new.prompt)
        if texts != self._last_prompts:
            self._last_prompts = texts
            self._differ("prompt", seq, "prompt", *texts)
            self._differ("tools", seq, "tools", "\n".join(old.tools), "\n".join(new.tools))
        if old.number == 1:
            self._compare_tools(seq)
        is_last = self._recorded.end is None and old.number == len(self._recorded.turns)
        for call_id, step in old.calls.items():
            made = new.calls.get(call_id)
            if made is None:
                self._state(step.seq, old.rows_of[call_id], [], quiet=True)
                self._files(step.seq, step, None, quiet=True)
                self._add("missing", step.seq, step.tool or "", f"{step.outcome}", "")
            else:
                self._compare_call(step, made, old.rows_of[call_id], new.rows_of[call_id])
        for call_id, step in new.calls.items():
            if call_id not in old.calls:
                self._state(old.step.seq, [], new.rows_of[call_id], quiet=True)
                self._files(old.step.seq, None, step, quiet=True)
                if not is_last:  # a run that was interrupted may have called it, had it gone on
                    self._add("extra", old.step.seq, step.tool or "", "", f"{step.outcome}")

    def _compare_tools(self, seq: int) -> None:
        """What the model read of those tools that it had then and has now."""
        then, now = self._recorded.schemas(), self._present.schemas()
        for name in sorted(then.keys() & now.keys()):
            texts = [json.dumps(told[name], indent=1, sort_keys=True, ensure_ascii=False) for told in (then, now)]
            self._differ("tools", seq, name, *map(self._text, texts))

    def _compare_call(self, old: Step, new: Step, old_rows: Sequence[Step], new_rows: Sequence[Step]) -> None:
        if old.seq in self._failed or old.seq in self._not_made:
            self._state(old.seq, old_rows, new_rows, quiet=True)
            self._files(old.seq, old, new, quiet=True)
            return
        name = old.tool or ""
        then, now = old.outcome or "", new.outcome or ""
        served = old.seq in self._served
        if served:
            then, now = _SAME_AS.get(then, then), _SAME_AS.get(now, now)
        replies = self._reply(self._recorded, old, served=served), self._reply(self._present, new, served=served)
        if then != now:
            kind: DivergenceKind = "decision" if then in _NOT_RUN or now in _NOT_RUN else "outcome"
            # What the call changed follows from how it ended.
            self._add(kind, old.seq, name, f"{then}\n{replies[0]}", f"{now}\n{replies[1]}")
            self._state(old.seq, old_rows, new_rows, quiet=True)
            self._files(old.seq, old, new, quiet=True)
            return
        self._differ("decision" if now in _NOT_RUN else "reply", old.seq, name, *replies)
        self._state(old.seq, old_rows, new_rows)
        self._files(old.seq, old, new)

    def _reply(self, recording: Recording, step: Step, *, served: bool) -> str:
        if served and not step.body["success"]:  # what was undone is not on record, so it is not said again
            return self._text(step.body["result"].get("message", ""))
        text = self._kept(recording, step.body.get("text"))
        full = step.body.get("full")
        return text if full is None else f"{text}\n{self._kept(recording, full)}"

    def _compare_end(self) -> None:
        then, now = self._recorded.end, self._present.end
        if then is None:
            return
        if self._ran_out or now is None:
            turns = len(self._recorded.turns)
            self._add("extra", then.seq, f"turn {turns + 1}", "", "the model is asked once more")
            return
        self._state(then.seq, [then], [now])
        for name in ("text", "stop", "error", "message"):
            ours, theirs = then.body.get(name), now.body.get(name)
            self._differ("output", then.seq, name, self._kept(self._recorded, ours), self._kept(self._present, theirs))

    # State and files.

    def _state(self, seq: int, old: Sequence[Step], new: Sequence[Step], *, quiet: bool = False) -> None:
        """Compare what the rows did to the slices."""
        touched = sorted({*_slices(old), *_slices(new)})
        before = {name: (self._ours.items(name), self._theirs.items(name)) for name in touched}
        self._ours.apply(old)
        self._theirs.apply(new)
        for row in old:
            if row.kind == "message":  # another program's files, which the replay has as well
                for file in self._recorded.files.get(row.seq, ()):
                    self._ours_at[file.path] = self._theirs_at[file.path] = self._node(self._recorded, file.after)
        for name in touched:
            ours, theirs = self._ours.items(name), self._theirs.items(name)
            if ours == theirs:
                self._parted.discard(f"state:{name}")
                continue
            had_parted = f"state:{name}" in self._parted
            self._parted.add(f"state:{name}")
            if quiet or (had_parted and _edit(before[name][0], ours) == _edit(before[name][1], theirs)):
                continue
            self._add("state", seq, name, "\n".join(ours), "\n".join(theirs), tainted=had_parted)

    def _files(self, seq: int, old: Step | None, new: Step | None, *, quiet: bool = False) -> None:
        """Compare what is at the paths that the calls changed: a file that is as it was in the end has not parted."""
        ours, theirs = _changed(self._recorded, old), _changed(self._present, new)
        for path, file in ours.items():
            self._ours_at[path] = self._node(self._recorded, file.after)
        for path, file in theirs.items():
            self._theirs_at[path] = self._node(self._present, file.after)
        for path in sorted({*ours, *theirs}):
            known = ours.get(path) or theirs[path]
            at_first = self._node(self._recorded if path in ours else self._present, known.before)
            then, now = self._ours_at.get(path, at_first), self._theirs_at.get(path, at_first)
            if then == now:
                self._parted.discard(f"files:{path}")
                continue
            had_parted = f"files:{path}" in self._parted
            self._parted.add(f"files:{path}")
            if not quiet:
                self._add("files", seq, path, then, now, tainted=had_parted)

    def _node(self, recording: Recording, node: str | None) -> str:
        if node is None:
            return "nothing"
        kind, _, name = node.rpartition(":")
        if kind == "directory":
            return node
        content = recording.run.store.blob(name)
        try:
            return self._text(f"{kind}\n{content.decode()}")
        except UnicodeDecodeError:
            return f"{kind}\n{len(content)} bytes, {name}"

    # Texts.

    def _kept(self, recording: Recording, kept: Any) -> str:
        if kept is None:
            return ""
        return self._text(recording.run.text(kept) if isinstance(kept, str | dict) else str(kept))

    def _text(self, text: str) -> str:
        for function in self._normalise:
            text = function(text)
        return text

    def _differ(self, kind: DivergenceKind, seq: int, path: str, recorded: str, present: str) -> None:
        if recorded != present:
            self._add(kind, seq, path, recorded, present)

    def _add(
        self, kind: DivergenceKind, seq: int, path: str, recorded: str, present: str, *, tainted: bool = False
    ) -> None:
        self.turns_differ = self.turns_differ or kind in {"missing", "extra"}
        if any(kind == item or fnmatchcase(path, item) or fnmatchcase(f"{kind}:{path}", item) for item in self._ignore):
            return
        is_late = self._tainted_from is not None and self._turn >= self._tainted_from
        found = Divergence(kind, seq, path, recorded, present, _diff(recorded, present), tainted or is_late)
        self._found.append(found)
        if self._tainted_from is None and (kind in _READ or kind in {"prompt", "tools"}):
            # The turn's other calls were decided on before their answers were read, but after the prompt.
            self._tainted_from = self._turn + 1 if kind in _READ else self._turn


@final
@dataclass(frozen=True, slots=True)
class _Turn:
    """What the model was told and said, and the calls it made; turn 0 is what was there before it was asked."""

    number: int
    rows: list[Step]
    prompt: Any
    tools: Sequence[str]
    calls: dict[str, Step]
    rows_of: dict[str, list[Step]]  # with the row that says that it was started, if there is one

    @property
    def step(self) -> Step:
        return self.rows[-1]


def _turns(recording: Recording) -> Iterator[_Turn]:
    prompt: Any = None
    tools: Sequence[str] = ()
    rows: list[Step] = []
    messages: list[Step] = []
    number = 0
    turn: _Turn | None = None
    for step in recording.steps:
        if step.kind == "message":  # before whatever comes next, in the middle of a turn or after it
            messages.append(step)
            continue
        if step.kind in {"started", "call"}:
            assert turn is not None
            turn.rows_of.setdefault(step.call_id or "", []).extend([*messages, step])
            messages = []
            if step.kind == "call":
                turn.calls[step.call_id or ""] = step
            continue
        if step.kind == "end":
            continue
        rows.extend([*messages, step])
        messages = []
        if step.kind == "prompt":
            prompt, tools = step.body["text"], step.body["tools"]
        if step.kind in {"begin", "turn"}:
            if turn is not None:
                yield turn
            turn = _Turn(number, rows, prompt, tools, {}, {})
            number += 1
            rows = []
    if turn is not None:
        yield turn


@final
class _State:
    """What the slices held, item by item, as normalised texts; of resources, what they said of themselves."""

    def __init__(self, normalise: Callable[[str], str]) -> None:
        self._normalise = normalise
        self._slices: dict[str, tuple[str, ...]] = {}

    def items(self, name: str) -> tuple[str, ...]:
        return self._slices.get(name, ())

    def apply(self, rows: Iterable[Step]) -> None:
        for row in rows:
            for name, _, change in row.body.get("state", {}).get("slices", ()):
                if change is None:
                    self._slices.pop(name, None)
                    continue
                keep, replaced, added = change
                items = list(self._slices.get(name, ())[:keep])
                for index, item in replaced.items():
                    items[int(index)] = self._item(item)
                self._slices[name] = (*items, *map(self._item, added))
            for name, what, data in resource_rows(row):
                if what in _SAID:
                    said = () if what == "whole" else self.items(_resource(name))
                    self._slices[_resource(name)] = (*said, self._item([data]))

    def _item(self, item: Sequence[Any]) -> str:
        return self._normalise(json.dumps(item[0], indent=1, sort_keys=True, ensure_ascii=False))


def _changed(recording: Recording, step: Step | None) -> dict[str, FileStep]:
    """What a step did to files, by path; those that were only read are not among them."""
    files = () if step is None else recording.files.get(step.seq, ())
    return {file.path: file for file in files if file.before != file.after}


def _slices(rows: Iterable[Step]) -> set[str]:
    found: set[str] = set()
    for row in rows:
        found.update(name for name, _, _ in row.body.get("state", {}).get("slices", ()))
        found.update(_resource(name) for name, what, _ in resource_rows(row) if what in _SAID)
    return found


def _resource(name: str) -> str:
    """What a resource is called, beside slices."""
    return f"{name} (resource)"


def _edit(before: Sequence[str], after: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What was taken off the end and what was put there: the same for slices that had parted before."""
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    return before[same:], after[same:]


def _diff(recorded: str, present: str) -> str:
    return "\n".join(["--- recorded", "+++ present", *diff_lines(recorded, present, context=_CONTEXT_LINES)])


def diff_lines(old: str, new: str, *, context: int) -> list[str]:
    """A unified diff without its head; of texts that differ it has a line, also when only line breaks differ."""
    if not (old and new) or old.endswith("\n") == new.endswith("\n"):
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
    before, after = (text.split("\n") if text else [] for text in (old, new))
    return [*unified_diff(before, after, lineterm="", n=context)][2:]


def _as_function(item: Normaliser) -> Callable[[str], str]:
    if callable(item):
        return item
    pattern = re.compile(item) if isinstance(item, str) else item
    return lambda text: pattern.sub("<...>", text)


def checked_ignore(ignore: Iterable[str]) -> tuple[str, ...]:
    """What `ignore=` says; TypeError for a single text, which would be taken letter by letter."""
    if isinstance(ignore, str):
        raise TypeError(f"ignore= takes several kinds or paths, such as ({ignore!r},).")
    return tuple(ignore)


__all__ = ["KINDS", "Comparison", "Divergence", "DivergenceKind", "Normaliser", "checked_ignore", "diff_lines"]
