"""What a function's docstring says: a summary for the model, and a line for each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")


def summary_of(doc: str | None) -> str:
    """The first paragraph, on one line; empty when there is none."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n", 1)[0].split())


def parameter_docs(doc: str | None) -> Mapping[str, str]:
    """The parameters' descriptions, from an `Args:` section or `:param name:` lines."""
    lines = inspect.cleandoc(doc or "").split("\n")
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    depth: int | None = None  # how far the entries of an open section are indented
    inside = False
    for line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        sphinx = _SPHINX.match(text)
        if sphinx:
            current = found[sphinx[1]] = [sphinx[2]]
        elif _SECTION.match(line):
            inside, depth, current = True, None, None
        elif text and indent == 0:
            inside, current = False, None
        elif inside and text and (depth is None or indent <= depth):
            depth = indent
            entry = _ENTRY.match(text)
            current = None
            if entry:
                current = found[entry[1]] = [entry[2]]
        elif text and current is not None:
            current.append(text)
    return {name: " ".join(part for part in parts if part) for name, parts in found.items() if any(parts)}


__all__ = ["parameter_docs", "summary_of"]
