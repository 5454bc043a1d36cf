"""Runs whose loop was another program's, laid out for a replay by our own.

Such a program runs tools of its own, which a replay cannot run, and begins calls while the model is still speaking. So
a turn on record may be several rows, with calls in between that are not ours. Here each becomes as many turns as there
are groups of our calls between those of the other program; these take effect before the turn that follows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ..runtime.record.rows import Step


def is_driven(steps: Sequence[Step]) -> bool:
    """Whether these are the steps of such a run."""
    return any(step.body.get("native") is True or step.body.get("continues") for step in steps)


def native_calls(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The calls of the other program's own tools."""
    return tuple(step for step in steps if step.kind == "call" and step.body.get("native") is True)


def as_our_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same steps with turns that our loop can go through; a row that is no longer a turn or call keeps its state.

    The numbers of steps stay, those of turns are counted anew.
    """
    made: list[Step] = []
    turn = 0
    for number, rows in groupby(steps, key=lambda step: step.turn):
        for step in _turn(list(rows)) if number else rows:
            turn += step.kind == "turn"
            made.append(replace(step, turn=turn))
    return tuple(made)


def _turn(rows: list[Step]) -> Iterator[Step]:
    """One turn: the rows of what was said, and of its calls."""
    said = [step for step in rows if step.kind == "turn"]
    asked: dict[str, Any] = {call[0]: call for step in said for call in step.body["calls"]}
    native = {step.call_id for step in rows if step.body.get("native") is True}
    ours = [call for call_id, call in asked.items() if call_id not in native]
    text = "".join(step.body["text"] for step in said)
    if not asked:  # an answer
        for step in rows:
            yield _said(step, text, []) if step is said[0] else _kept(step) if step.kind == "turn" else step
        return
    groups = _groups(rows, [call[0] for call in ours], native)
    for step in rows:
        calls = [asked[call_id] for call_id in groups.get(step.seq, ()) if call_id in asked]
        if calls:
            yield _said(step, text, calls)
            text = ""
        elif step.kind == "turn" or step.call_id in native:
            yield _kept(step)
        else:
            yield step


def _groups(rows: Sequence[Step], ours: Sequence[str], native: set[str | None]) -> Mapping[int, Sequence[str]]:
    """Our calls that follow one another, by the row before them: the turn's own, or the end of a native call."""
    groups: dict[int, list[str]] = {}
    place, left = rows[0].seq, list(ours)
    for step in rows:
        if step.call_id in native:
            place = step.seq if step.kind == "call" else place
        elif step.call_id in left:
            groups.setdefault(place, []).append(step.call_id)
            left.remove(step.call_id)
    if left:  # interrupted before they began
        groups.setdefault(place, []).extend(left)
    return groups


def _said(step: Step, text: str, calls: Sequence[Any]) -> Step:
    stop = "tool_use" if calls else "end_turn"
    body = {"text": text, "calls": list(calls), "usage": [0, 0, 0, 0], "stop": stop, "native": []}
    return replace(step, kind="turn", call_id=None, tool=None, outcome=None, body={**body, **_state(step)})


def _kept(step: Step) -> Step:
    return replace(step, kind="message", call_id=None, tool=None, outcome=None, body=_state(step))


def _state(step: Step) -> dict[str, Any]:
    return {"state": step.body["state"]} if "state" in step.body else {}


__all__ = ["as_our_steps", "is_driven", "native_calls"]
