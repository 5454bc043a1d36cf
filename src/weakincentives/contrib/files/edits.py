"""Exact replacement of text in a file, and help for whoever got the text almost right."""

from __future__ import annotations

import re

from .nearest import nearest
from .pages import MAX_EDITED_BYTES

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


__all__ = ["EditRefusedError", "replaced"]
