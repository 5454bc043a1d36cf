"""What changed between two versions of a file, as a unified diff of bounded size and cost."""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from hashlib import blake2b

from .pages import SNIFFED_BYTES, is_binary

MAX_COMPARED_LINES = 5000
MAX_COMPARED_BYTES = 2_000_000
MAX_LINE_CHARS = 10_000
"""Longer lines are compared by their hash and shown cut."""
MAX_SHOWN_LINES = 200
MAX_SHOWN_CHARS = 12_000
CONTEXT = 3


def unified(
    path: str,
    before: bytes | None,
    after: bytes | None,
    *,
    max_lines: int | None = MAX_SHOWN_LINES,
    max_chars: int | None = MAX_SHOWN_CHARS,
) -> str:
    r"""The difference as text without a line break at the end; empty when there is none.

    None stands for a file that does not exist. Binary files, and texts that differ in too many lines to be compared,
    are named in one line. A longer diff than the limits allow is cut and says so.

    >>> print(unified("a.txt", b"one\ntwo\n", b"one\n2\n"))
    --- a/a.txt
    +++ b/a.txt
    @@ -1,2 +1,2 @@
     one
    -two
    +2
    """
    if before == after:
        return ""
    above, middle = 0, (before, after)
    large = max(len(before or b""), len(after or b"")) > MAX_LINE_CHARS
    if large:
        above, middle = _compared(before, after)
        if max(len(middle[0] or b""), len(middle[1] or b"")) > MAX_COMPARED_BYTES:
            if is_binary(before or b"") or is_binary(after or b""):
                return _binary(path, before, after)
            return f"{path} {_verb(before, after)} ({_size(before)} -> {_size(after)} bytes; too much differs to show)"
    old, new = _lines(middle[0]), _lines(middle[1])
    if old is None or new is None:
        return _binary(path, before, after)
    if old == new:
        return f"Empty file {path} {_verb(before, after)}"
    if large:
        old, new = _shortened(old), _shortened(new)
    head, tail = _common(old, new)
    if len(old) + len(new) > MAX_COMPARED_LINES + 2 * (head + tail):
        return f"{path} {_verb(before, after)} ({len(old):,} -> {len(new):,} lines; too many differ to show)"
    titles = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    text, count = _hunks((old, new), (head, tail), titles, above)
    if (max_lines is None or count <= max_lines) and (max_chars is None or len(text) <= max_chars):
        return text
    return f"{_start(text, max_lines, max_chars)}\n[the diff goes on: {count:,} lines in all]"


def _shortened(lines: list[str]) -> list[str]:
    """The lines, with a hash in place of the rest of long ones: equal only when they were."""
    return [line if len(line) <= MAX_LINE_CHARS else _cut(line) for line in lines]


def _cut(line: str) -> str:
    digest = blake2b(line.encode(), digest_size=8).hexdigest()
    return f"{line[:MAX_LINE_CHARS]} [cut: the line has {len(line):,} characters, hash {digest}]"


def _compared(before: bytes | None, after: bytes | None) -> tuple[int, tuple[bytes | None, bytes | None]]:
    """What differs of two big texts, with a few lines around it; and how many lines were left out above."""
    if before is None or after is None or is_binary(before) or is_binary(after):
        return 0, (before, after)
    start = _same_length(min(len(before), len(after)), lambda low, to: before[low:to] == after[low:to])
    for _ in range(CONTEXT + 1):
        start = before.rfind(b"\n", 0, start - 1) + 1 if start > 0 else 0
    old, new = len(before), len(after)
    tail = _same_length(
        min(old, new) - start, lambda low, to: before[old - to : old - low] == after[new - to : new - low]
    )
    end = old - tail
    for _ in range(CONTEXT + 1):
        end = before.find(b"\n", end) + 1 or len(before)
    cut = len(before) - end
    return before.count(b"\n", 0, start), (before[start:end], after[start : len(after) - cut])


def _same_length(most: int, same: Callable[[int, int], bool]) -> int:
    """How many bytes are equal, by halves: comparing two slices is quick. `same` is of those from one place on."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _hunks(
    texts: tuple[list[str], list[str]], common: tuple[int, int], titles: tuple[str, str], above: int
) -> tuple[str, int]:
    """The diff and its number of lines. Only the middle that differs is compared, however long the file is.

    `above` lines of the file come before those given.
    """
    (old, new), (head, tail) = texts, common
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    skip = head - CONTEXT if head > CONTEXT else 0
    drop = tail - CONTEXT if tail > CONTEXT else 0
    # One line on each side has nothing in common with the other: both ends were taken off.
    if gone and come and len(gone) + len(come) > 2 and not set(gone).isdisjoint(come):
        lines = list(
            unified_diff(old[skip : len(old) - drop], new[skip : len(new) - drop], *titles, lineterm="", n=CONTEXT)
        )
        if skip or above:
            lines = [_shifted(line, skip + above) if line.startswith("@@ ") else line for line in lines]
        return "\n".join(lines), len(lines)
    # The usual edit: one place, nothing in common there. It needs no search for what stayed.
    around = head - skip + tail - drop
    old_span, new_span = _span(above + skip, len(gone) + around), _span(above + skip, len(come) + around)
    text = f"--- {titles[0]}\n+++ {titles[1]}\n@@ -{old_span} +{new_span} @@"
    if head:
        text += "\n " + "\n ".join(old[skip:head])
    if gone:
        text += "\n-" + "\n-".join(gone)
    if come:
        text += "\n+" + "\n+".join(come)
    if tail:
        text += "\n " + "\n ".join(old[len(old) - tail : len(old) - drop])
    return text, 3 + around + len(gone) + len(come)


def _span(skip: int, count: int) -> str:
    """Where a hunk starts and how long it is; an empty one is named after the line before it."""
    return f"{skip + 1}" if count == 1 else f"{skip + 1 if count else skip},{count}"


def _shifted(line: str, by: int) -> str:
    """A hunk's heading with its line numbers moved: the compared part began later in the file."""
    _, old, new, _ = line.split(" ", 3)
    return f"@@ {_moved(old, by)} {_moved(new, by)} @@"


def _moved(place: str, by: int) -> str:
    start, comma, count = place[1:].partition(",")
    return f"{place[0]}{int(start) + by}{comma}{count}"


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    shortest = min(len(new), len(old))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _start(text: str, max_lines: int | None, max_chars: int | None) -> str:
    if max_lines is not None:
        text = "\n".join(text.split("\n", max_lines)[:max_lines])
    return text if max_chars is None else text[:max_chars]


def _lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    if data.find(b"\0", 0, SNIFFED_BYTES) >= 0:  # as `is_binary`, without the call: every write asks twice
        return None
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        lines.pop()
    return lines


def _binary(path: str, before: bytes | None, after: bytes | None) -> str:
    return f"Binary file {path} {_verb(before, after)} ({_size(before)} -> {_size(after)} bytes)"


def _verb(before: bytes | None, after: bytes | None) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _size(data: bytes | None) -> str:
    return f"{0 if data is None else len(data):,}"
