"""`wink diff` and `wink fork`: what differs between two steps of a run, and a new run that begins like another one."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import Any

from ...runtime.record import FileStep, RecordedRun
from ...runtime.record.files import last_nodes, node_of
from ...runtime.record.sql import SqlRunStore
from ...testing.divergences import diff_lines
from ..output import UsageError, show, show_json, shown_line
from ..run_stores import existing_run, existing_store, new_run_id

_MAX_ITEMS = 20
_MAX_ITEM = 200
_BEFORE_CHANGE = 60
_MAX_DIFF_LINES = 200


def run_diff(arguments: argparse.Namespace) -> int:
    """Print what slices and files hold after one step and not after the other."""
    with existing_store(arguments.store, arguments.seal, reads=True) as store:
        run = existing_run(store, arguments.store, arguments.run_id, arguments.before, arguments.after)
        if arguments.json:
            show_json(_diff_json(run, arguments.before, arguments.after))
        else:
            for line in _diff_lines(store, run, arguments.before, arguments.after):
                show(line)
    return 0


def run_fork(arguments: argparse.Namespace) -> int:
    """Make the run and print its name."""
    with existing_store(arguments.store, arguments.seal) as store:
        existing_run(store, arguments.store, arguments.run_id, arguments.step)
        if arguments.new_id is not None and store.info(new_run_id("--as", arguments.new_id)) is not None:
            raise UsageError(f"there is a run {arguments.new_id!r} already; choose another name with --as")
        new_id = store.fork(arguments.run_id, at=arguments.step, new_id=arguments.new_id)
        if arguments.json:
            show_json({"run_id": new_id, "parent": arguments.run_id, "forked_at": arguments.step})
            return 0
        where = f"{shlex.quote(arguments.store)} {shlex.quote(new_id)}"
        show(f"Run {shown_line(new_id)} has the steps of {shown_line(arguments.run_id)} up to {arguments.step}.")
        reason = store.open(new_id).not_resumable
        show(f"It cannot go on: {shown_line(reason)}." if reason else f"To go on with it: wink resume {where} TARGET")
    return 0


def _diff_json(run: RecordedRun, before: int, after: int) -> dict[str, Any]:
    found = run.diff(before, after)
    files = found.files
    return {
        "run_id": run.info.run_id, "before": before, "after": after,
        "slices": {name: {"before": list(old), "after": list(new)} for name, (old, new) in found.slices.items()},
        "files": {"added": files.added, "changed": files.changed, "removed": files.removed},
    }  # fmt: skip


def _diff_lines(store: SqlRunStore, run: RecordedRun, before: int, after: int) -> Iterator[str]:
    found = run.diff(before, after)
    if not found.slices and not found.files:
        yield f"Steps {before} and {after} of {shown_line(run.info.run_id)} have the same state and the same files."
        return
    for name, (old, new) in found.slices.items():
        yield f"state {shown_line(name)}: {len(old)} -> {len(new)} items"
        lines = [*_item_lines(old, new)]
        yield from lines[:_MAX_ITEMS]
        if len(lines) > _MAX_ITEMS:
            yield f"  ... {len(lines) - _MAX_ITEMS} more; all of them: --json"
    steps: dict[str, list[FileStep]] = {}
    for step in store.files(run.info.run_id):
        steps.setdefault(step.path, []).append(step)
    for what, paths in (("added", found.files.added), ("changed", found.files.changed),
                        ("removed", found.files.removed)):  # fmt: skip
        for path in paths:
            yield f"{what} {shown_line(path)}"
            yield from _file_lines(store, steps[path], before, after)


def _item_lines(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """The items that are gone and those that are new, in their order."""
    before, after = ([json.dumps(item, ensure_ascii=False) for item in items] for items in (old, new))
    # Most slices only grow. What is the same at the beginning is left out: the time that the rest takes is quadratic.
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    same = min(len(before), len(after)) if same is None else same
    before, after = before[same:], after[same:]
    for tag, first, last, begin, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            gone, new_ones = before[first:last], after[begin:end]
            is_pair = len(gone) == len(new_ones) == 1
            same = len(commonprefix([gone[0], new_ones[0]])) if is_pair else 0  # noqa: RUF071 - of texts, not of paths
            yield from (f"  - {_short(item, same)}" for item in gone)
            yield from (f"  + {_short(item, same)}" for item in new_ones)


def _short(item: str, same: int) -> str:
    """An item on one line; of a long one what stands around the place where it begins to differ."""
    at = max(0, same - _BEFORE_CHANGE) if len(item) > _MAX_ITEM else 0
    line = shown_line(item)
    if line != item:  # masked or marked, so the place is another
        at = 0
    cut = line[at : at + _MAX_ITEM]
    return f"{'...' if at else ''}{cut}{'...' if at + _MAX_ITEM < len(line) else ''}"


def _file_lines(store: SqlRunStore, steps: Sequence[FileStep], before: int, after: int) -> Iterator[str]:
    """What differs within a text, as a unified diff without its head; of other content only its size."""
    old, new = (_content(store, steps, seq) for seq in (before, after))
    if isinstance(old, bytes) or isinstance(new, bytes):
        yield f"  {len(old)} -> {len(new)} bytes"
        return
    lines = diff_lines(old, new, context=1)
    yield from (f"  {line}" for line in lines[:_MAX_DIFF_LINES])
    if len(lines) > _MAX_DIFF_LINES:
        yield f"  ... {len(lines) - _MAX_DIFF_LINES} more lines"


def _content(store: SqlRunStore, steps: Sequence[FileStep], seq: int) -> str | bytes:
    path = steps[0].path
    nodes = {path: steps[0].before, **last_nodes(step for step in steps if step.seq <= seq)}
    node = node_of(nodes[path], store)
    content = b"" if node is None else node.content
    try:
        return content if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return content
