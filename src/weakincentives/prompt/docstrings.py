"""What a function's docstring says: a summary and guidance for the model, and a line for each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import final

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


@final
@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in its parts.

    Attributes:
        summary: the first paragraph, on one line; empty when there is none.
        parameters: the parameters' descriptions, from an `Args:` section or `:param name:` lines.
    """

    summary: str
    parameters: Mapping[str, str]
    _rest: tuple[tuple[str, str | None], ...]  # each line below the first paragraph, and whom it describes

    def rest(self, *, without: Collection[str]) -> str:
        """Everything below the first paragraph, but for the descriptions of these parameters."""
        kept: list[str] = []
        for line, owner in reversed(self._rest):
            # Read from the end: a heading is kept when something indented is left below it.
            below = next((text for text in reversed(kept) if text), "")
            if owner not in without and (line or below) and (not _SECTION.match(line) or below.startswith(" ")):
                kept.append(line)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def read_docstring(doc: str | None) -> Docstring:
    """Take a docstring apart; None is an empty one."""
    text = inspect.cleandoc(doc or "")
    summary = _PARAGRAPH.split(text, maxsplit=1)[0]
    lines = [line.rstrip() for line in text.split("\n")]
    owners, parameters = _parameters(lines)
    start = summary.count("\n") + 1
    return Docstring(" ".join(summary.split()), parameters, tuple(zip(lines[start:], owners[start:], strict=True)))


def _parameters(lines: list[str]) -> tuple[list[str | None], dict[str, str]]:
    """For each line the parameter that it describes, or None; and the descriptions."""
    owners: list[str | None] = []
    found: dict[str, list[str]] = {}
    current: str | None = None
    depth: int | None = None  # how far the entries of an open section are indented
    inside = False
    for line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        sphinx = _SPHINX.match(text)
        if sphinx:
            current, found[sphinx[1]] = sphinx[1], [sphinx[2]]
        elif _SECTION.match(line):
            inside, depth, current = True, None, None
        elif text and indent == 0:
            inside, current = False, None
        elif inside and text and (depth is None or indent <= depth):
            depth = indent
            entry = _ENTRY.match(text)
            current = None
            if entry:
                current, found[entry[1]] = entry[1], [entry[2]]
        elif text and current is not None:
            found[current].append(text)
        owners.append(current if text else None)
    described = {name: " ".join(part for part in parts if part) for name, parts in found.items()}
    return owners, {name: text for name, text in described.items() if text}


__all__ = ["Docstring", "read_docstring"]
