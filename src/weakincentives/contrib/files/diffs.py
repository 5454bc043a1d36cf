"""What changed between two versions of a file, as a unified diff of bounded size and cost."""

from __future__ import annotations

from difflib import unified_diff

from .pages import SNIFFED_BYTES

MAX_COMPARED_LINES = 5000
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
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"Binary file {path} {_verb(before, after)} ({_size(before)} -> {_size(after)} bytes)"
    if old == new:
        return f"Empty file {path} {_verb(before, after)}"
    head, tail = _common(old, new)
    if len(old) + len(new) > MAX_COMPARED_LINES + 2 * (head + tail):
        return f"{path} {_verb(before, after)} ({len(old):,} -> {len(new):,} lines; too many differ to show)"
    titles = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    text, count = _hunks(old, new, head, tail, titles)
    if (max_lines is None or count <= max_lines) and (max_chars is None or len(text) <= max_chars):
        return text
    return f"{_start(text, max_lines, max_chars)}\n[the diff goes on: {count:,} lines in all]"


def _hunks(old: list[str], new: list[str], head: int, tail: int, titles: tuple[str, str]) -> tuple[str, int]:
    """The diff and its number of lines. Only the middle that differs is compared, however long the file is."""
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    skip = head - CONTEXT if head > CONTEXT else 0
    drop = tail - CONTEXT if tail > CONTEXT else 0
    # One line on each side has nothing in common with the other: both ends were taken off.
    if gone and come and len(gone) + len(come) > 2 and not set(gone).isdisjoint(come):
        lines = list(
            unified_diff(old[skip : len(old) - drop], new[skip : len(new) - drop], *titles, lineterm="", n=CONTEXT)
        )
        if skip:
            lines = [_shifted(line, skip) if line.startswith("@@ ") else line for line in lines]
        return "\n".join(lines), len(lines)
    # The usual edit: one place, nothing in common there. It needs no search for what stayed.
    around = head - skip + tail - drop
    old_span, new_span = _span(skip, len(gone) + around), _span(skip, len(come) + around)
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
    if data.find(b"\0", 0, SNIFFED_BYTES) >= 0:  # as is_binary, without the call: every write asks twice
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


def _verb(before: bytes | None, after: bytes | None) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _size(data: bytes | None) -> str:
    return f"{0 if data is None else len(data):,}"


__all__ = ["unified"]
