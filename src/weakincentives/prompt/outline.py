"""A prompt as a tree: which sections it has, how each is shown, which tools it brings. For records and viewers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard, cast

from .tree import SectionNode

ShownAs = Literal["full", "summary", "hidden"]
"""hidden: switched off, or below a section that is shown as a summary."""

_WAYS = ("full", "summary", "hidden")
_DEEPEST = 100


class SectionOutline(NamedTuple):
    """One section of a prompt as it was rendered.

    Attributes:
        key: its name among its siblings.
        title: as its heading has it.
        visibility: how it is shown.
        tools: the names of the tools that it brings itself. They are offered where it is shown in full.
        children: the sections below it, in order.
    """

    key: str
    title: str
    visibility: ShownAs
    tools: tuple[str, ...] = ()
    children: tuple[SectionOutline, ...] = ()


def outline(nodes: Sequence[SectionNode], shown: Mapping[int, bool]) -> tuple[SectionOutline, ...]:
    """The tree of these nodes; `shown` has those that are in the prompt, by index, and whether they are so in full."""

    def made(start: int, end: int) -> Iterable[SectionOutline]:
        while start < end:
            node = nodes[start]
            in_full = shown.get(start)
            visibility: ShownAs = "hidden" if in_full is None else "full" if in_full else "summary"
            tools = tuple(bound.tool.name for bound in node.tools)
            title = node.section.title
            yield SectionOutline(node.section.key, title, visibility, tools, tuple(made(start + 1, node.end)))
            start = node.end

    return tuple(made(0, len(nodes)))


def outline_data(sections: Iterable[SectionOutline]) -> list[dict[str, Any]]:
    """The tree as JSON data; what is empty is left out."""
    made: list[dict[str, Any]] = []
    for section in sections:
        data: dict[str, Any] = {"key": section.key, "title": section.title, "visibility": section.visibility}
        if section.tools:
            data["tools"] = list(section.tools)
        if section.children:
            data["children"] = outline_data(section.children)
        made.append(data)
    return made


def outline_from(data: object, *, depth: int = 0) -> tuple[SectionOutline, ...]:
    """The tree that `outline_data` made; ValueError for anything else."""
    if not isinstance(data, list) or depth > _DEEPEST:
        raise ValueError("sections are a list, not nested deeper than anything is")
    made: list[SectionOutline] = []
    for item in cast("list[object]", data):
        known: Mapping[str, Any] = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        key, title, visibility = known.get("key"), known.get("title"), known.get("visibility")
        tools: object = known.get("tools", [])
        if not isinstance(key, str) or not isinstance(title, str) or visibility not in _WAYS or not _are_texts(tools):
            raise ValueError("a section has a key, a title and a visibility, and names of tools")
        children = outline_from(known.get("children", []), depth=depth + 1)
        made.append(SectionOutline(key, title, visibility, tuple(tools), children))
    return tuple(made)


def _are_texts(items: object) -> TypeGuard[list[str]]:
    return isinstance(items, list) and all(isinstance(item, str) for item in cast("list[object]", items))


__all__ = ["SectionOutline", "ShownAs", "outline", "outline_data", "outline_from"]
