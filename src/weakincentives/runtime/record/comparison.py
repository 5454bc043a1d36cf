"""Two runs beside one another: which calls both made, and where they part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, final

from ...masking import leaving, visible_line
from .reading import RecordedRun
from .rows import Step
from .secret_arguments import SecretArguments


@final
@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call of one run and the same call of the other; None where the other made none like it.

    `is_same` says that both made it, and that it ended the same and had the same answer. Secret fields are masked in
    `arguments`, which is JSON text.
    """

    tool: str
    arguments: str
    first: Step | None
    second: Step | None
    is_same: bool


@final
@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs, aligned by tool and arguments.

    Attributes:
        calls: all calls of both, in order.
        parted: the first call that differs; None when all are the same.
        same_answer: whether both ended with the same text, or with the same error.
    """

    calls: tuple[ComparedCall, ...]
    parted: ComparedCall | None
    same_answer: bool

    def __str__(self) -> str:
        lines = [_line(call) for call in self.calls]
        same = sum(call.is_same for call in self.calls)
        answer = "the same answer" if self.same_answer else "another answer"
        return "\n".join([*lines, f"{same} of {len(self.calls)} calls are the same; {answer}."])


def compare(first: RecordedRun, second: RecordedRun) -> RunComparison:
    """Align two runs by (tool, arguments), as a diff aligns lines, and say where they part.

    Either may be under way; a call that had not ended is not in it. `RecordError` when a store cannot be read.
    """
    ours, theirs = _calls(first), _calls(second)
    calls = tuple(_aligned(_opcodes([key for key, _ in ours], [key for key, _ in theirs]), ours, theirs, first, second))
    parted = next((call for call in calls if not call.is_same), None)
    return RunComparison(calls, parted, _answer(first) == _answer(second))


Key = tuple[str, str]


def _calls(run: RecordedRun) -> list[tuple[Key, Step]]:
    arguments: dict[str, str] = {}
    found: list[tuple[Key, Step]] = []
    for step in run.steps():
        if step.kind == "turn":
            arguments.update({call_id: _canonical(text) for call_id, _, text in step.body["calls"]})
        elif step.kind == "call":
            found.append(((step.tool or "", arguments.get(step.call_id or "", "")), step))
    return found


def _canonical(arguments: Any) -> str:
    """The same text for the same arguments, however they were written."""
    try:
        data = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return str(arguments)
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


def _opcodes(ours: Sequence[Key], theirs: Sequence[Key]) -> list[tuple[str, int, int, int, int]]:
    """How to get from one to the other, as `SequenceMatcher` says it.

    What both begin with is left to no matcher: for calls that are alike, such as polls, its time is quadratic.
    """
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    rest = SequenceMatcher(None, ours[same:], theirs[same:], autojunk=False).get_opcodes()
    later = [(kind, i + same, j + same, k + same, m + same) for kind, i, j, k, m in rest]
    return [("equal", 0, same, 0, same), *later]


def _aligned(
    opcodes: Sequence[tuple[str, int, int, int, int]],
    ours: Sequence[tuple[Key, Step]],
    theirs: Sequence[tuple[Key, Step]],
    first: RecordedRun,
    second: RecordedRun,
) -> Iterator[ComparedCall]:
    ours_secret, theirs_secret = SecretArguments(first), SecretArguments(second)
    for kind, start, end, other_start, other_end in opcodes:
        if kind == "equal":
            for (key, one), (_, other) in zip(ours[start:end], theirs[other_start:other_end], strict=True):
                same = one.outcome == other.outcome and _reply(first, one) == _reply(second, other)
                yield ComparedCall(key[0], ours_secret.arguments(*key), one, other, same)
        else:
            for key, one in ours[start:end]:
                yield ComparedCall(key[0], ours_secret.arguments(*key), one, None, False)
            for key, other in theirs[other_start:other_end]:
                yield ComparedCall(key[0], theirs_secret.arguments(*key), None, other, False)


def _reply(run: RecordedRun, step: Step) -> str:
    return run.text(step.body["text"])


def _answer(run: RecordedRun) -> tuple[str | None, str | None]:
    steps = run.steps()
    if not steps or steps[-1].kind != "end":
        return None, None
    last = steps[-1]
    return (run.text(last.body["text"]) if "text" in last.body else None), last.body.get("message")


def _line(call: ComparedCall) -> str:
    mark = " " if call.is_same else "-" if call.second is None else "+" if call.first is None else "!"
    outcomes = [step.outcome or "" for step in (call.first, call.second) if step is not None]
    ended = " -> ".join(dict.fromkeys(outcomes))
    return visible_line(leaving(f"{mark} {call.tool} {call.arguments}: {ended}"))


__all__ = ["ComparedCall", "RunComparison", "compare"]
