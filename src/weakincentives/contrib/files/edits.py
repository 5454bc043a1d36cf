"""Exact replacement of text in a file, and help for a model that got the text almost right."""

from __future__ import annotations

import re
from collections import defaultdict
from time import monotonic
from typing import Final, NamedTuple

from ...fence import check_wanted
from .pages import MAX_EDITED_BYTES

# Where in a file the lines are that are most like some given ones, in bounded time.
#
# Lines are compared by their 4-grams, without white space. Each line of the file votes for the window in which it would
# stand at its place, so the work is that of reading the file once, not of comparing every window.


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


_NUMBERED = re.compile(r" *\d+\t")


class EditRefusedError(ValueError):
    """The text to replace is absent or not unique; the message says where something like it is, and what to do."""


def apply_edit(path: str, content: str, old: str, new: str, *, every: bool = False) -> str:
    """The content with `old` replaced by `new`, once, or wherever it occurs.

    Line breaks are those of the file: where it has CRLF throughout, a plain line break in `old` and `new` means CRLF.
    `EditRefusedError` when `old` is empty, equal to `new`, absent, or occurs more than once and `every` is not set.
    """
    if not old:
        raise EditRefusedError("old_text is empty\nGive the exact text to replace; to make a new file, write it.")
    if "\r\n" in content and "\r\n" not in old and content.count("\n") == content.count("\r\n"):
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    if old == new:
        raise EditRefusedError(
            "old_text and new_text are equal\nNothing would change; say what the text should become."
        )
    found = content.count(old)
    if found == 0:
        raise EditRefusedError(_absent(path, content, old))
    if found > 1 and not every:
        raise EditRefusedError(_ambiguous(path, content, old, found))
    size = len(content) + found * (len(new) - len(old))
    if size > max(MAX_EDITED_BYTES, len(content)):
        raise EditRefusedError(
            f"{path} would have {size:,} characters with new_text in {found:,} places, which is too large\n"
            "Replace fewer occurrences, or use a program for it."
        )
    return content.replace(old, new)


def _ambiguous(path: str, content: str, old: str, found: int) -> str:
    places, at = list[str](), -1
    while len(places) < 10 and (at := content.find(old, at + 1)) >= 0:
        places.append(str(content.count("\n", 0, at) + 1))
    more = ", ..." if found > len(places) else ""
    return (
        f"old_text occurs {found} times in {path} (lines {', '.join(places)}{more})\n"
        "Add lines around it until it is unique, or set replace_all=true to change every one."
    )


def _absent(path: str, content: str, old: str) -> str:
    if all(_NUMBERED.match(line) for line in old.splitlines()):
        return (
            f"old_text was not found in {path}\n"
            "It starts with line numbers as they are shown when reading; leave the numbers and the tab out."
        )
    wanted = old.strip("\r\n").split("\n")
    near = nearest(content, wanted)
    less = f" The file is large; only its first {near.compared:,} lines were compared." if near.compared else ""
    if not near.starts:
        return f"old_text was not found in {path}\nRead the file again and copy the text exactly.{less}"
    lines = content.split("\n", max(near.starts) + len(wanted))
    shown = "\n".join([_place(lines, start, len(wanted)) for start in near.starts])
    return f"old_text was not found in {path}\nCopy the text exactly, with its spaces.{less} Similar text:\n{shown}"


def _place(lines: list[str], start: int, height: int) -> str:
    text = "\n".join([line.removesuffix("\r") for line in lines[start : start + height]])
    shown = text if len(text) <= 600 else f"{text[:600]}..."
    return f"line {start + 1}: {shown}" if height == 1 else f"lines {start + 1}-{start + height}:\n{shown}"
