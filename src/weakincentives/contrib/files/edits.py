"""Exact replacement of text in a file, and help for whoever got the text almost right."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

MAX_SEARCHED_LINES = 3000
MAX_SHOWN = 3
_NUMBERED = re.compile(r" *\d+\t")


class EditRefusedError(ValueError):
    """The text to replace is absent or not unique; the message says where something like it is, and what to do."""


def replaced(path: str, content: str, old: str, new: str, *, every: bool = False) -> str:
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
    near = _near(content.split("\n"), old.strip("\r\n").split("\n"))
    if not near:
        return f"old_text was not found in {path}\nRead the file again and copy the text exactly."
    shown = "\n".join(near)
    return f"old_text was not found in {path}\nCopy the text exactly, with its spaces. Similar text:\n{shown}"


def _near(lines: list[str], wanted: list[str]) -> list[str]:
    """The places most like the text, best first, each with its line number; lines count without their white space."""
    height = len(wanted)
    target = "\n".join([" ".join(line.split()) for line in wanted])
    if not target.strip() or len(target) > 4000:
        return []
    squeezed = [" ".join(line.split()) for line in lines[:MAX_SEARCHED_LINES]]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(target)
    scored: list[tuple[float, int]] = []
    for start in range(max(1, len(squeezed) - height + 1)):
        window = "\n".join(squeezed[start : start + height])
        if not window.strip() or len(window) > 4 * len(target) + 80:
            continue
        matcher.set_seq1(window)
        if matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6:
            score = matcher.ratio()
            if score > 0.6:
                scored.append((-score, start))
    scored.sort()
    return [_place(lines, start, height) for _, start in scored[:MAX_SHOWN]]


def _place(lines: list[str], start: int, height: int) -> str:
    text = "\n".join([line.removesuffix("\r") for line in lines[start : start + height]])
    shown = text if len(text) <= 600 else f"{text[:600]}..."
    return f"line {start + 1}: {shown}" if height == 1 else f"lines {start + 1}-{start + height}:\n{shown}"


__all__ = ["EditRefusedError", "replaced"]
