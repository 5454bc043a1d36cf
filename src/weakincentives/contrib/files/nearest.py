"""Where in a file the lines are that are most like some given ones, in bounded time.

Lines are compared by their 4-grams, without white space. Each line of the file votes for the window in which it would
stand at its place, so the work is that of reading the file once, not of comparing every window.
"""

from __future__ import annotations

from collections import defaultdict
from time import monotonic
from typing import Final, NamedTuple

from ...fence import check_wanted

MAX_LINES: Final = 20_000
MAX_CHARS: Final = 4_000_000
MAX_LINE_CHARS: Final = 2000
"""Of a longer line the beginning counts."""
MAX_WANTED: Final = 200
"""Of more lines the first are looked for."""
MAX_SECONDS: Final = 0.25
MAX_PLACES: Final = 3
LINE_COUNTS: Final = 0.3
WINDOW_COUNTS: Final = 0.5
_GRAM: Final = 4
_ROUND: Final = 256
"""The clock is read after so many lines, or so many votes."""


class Nearest(NamedTuple):
    """Where similar lines start, from 0, best first; `compared` is how many were looked at, 0 when all were."""

    starts: tuple[int, ...]
    compared: int = 0


def nearest(content: str, wanted: list[str], *, seconds: float = MAX_SECONDS) -> Nearest:
    r"""The places in the content that are most like the wanted lines, at most three.

    >>> nearest("def tea():\n    return 1\n\ndef coffee():\n    return 2\n", ["def  coffe():", "  return 2"])
    Nearest(starts=(3,), compared=0)
    """
    deadline = monotonic() + seconds
    grams = [_grams(line) for line in wanted[:MAX_WANTED]]
    if not any(grams):
        return Nearest(())
    index: dict[str, list[int]] = defaultdict(list)
    for number, found in enumerate(grams):
        for gram in found:
            index[gram].append(number)
    lines = content[:MAX_CHARS].split("\n", MAX_LINES)
    complete = len(content) <= MAX_CHARS and len(lines) <= MAX_LINES
    if not complete:
        lines.pop()
    scores: dict[int, float] = defaultdict(float)
    compared, work = len(lines), 0
    for number, line in enumerate(lines):
        work += 1 + _vote(number, _grams(line), grams, index, scores)
        if work > _ROUND:
            work = 0
            check_wanted()
            if monotonic() > deadline:
                compared, complete = number + 1, False
                break
    enough = WINDOW_COUNTS * sum(1 for found in grams if found)
    best = sorted((-score, start) for start, score in scores.items() if score >= enough)[:MAX_PLACES]
    return Nearest(tuple(start for _, start in best), 0 if complete else compared)


def _vote(
    number: int, found: set[str], grams: list[set[str]], index: dict[str, list[int]], scores: dict[int, float]
) -> int:
    """Let one line of the file vote; how much work that was."""
    shared: dict[int, int] = defaultdict(int)
    work = 0
    for gram in found:
        for at in index.get(gram, ()):
            if at <= number:  # a window does not begin before the file
                shared[at] += 1
                work += 1
    for at, count in shared.items():
        alike = 2 * count / (len(found) + len(grams[at]))
        if alike >= LINE_COUNTS:
            scores[number - at] += alike
    return work // 16


def _grams(line: str) -> set[str]:
    squeezed = "".join(line[:MAX_LINE_CHARS].split())
    if len(squeezed) < _GRAM:
        return {squeezed} if squeezed else set()
    return {squeezed[at : at + _GRAM] for at in range(len(squeezed) - _GRAM + 1)}


__all__ = ["Nearest", "nearest"]
