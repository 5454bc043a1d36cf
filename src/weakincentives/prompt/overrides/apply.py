"""From stored overrides to a tree that speaks their words."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from ...errors import PromptValidationError
from ..placeholders import Body
from ..tool import Tool
from ..tree import Tree
from .store import PromptDescriptor, PromptOverride, SectionDescriptor, SectionOverride, ToolOverride, content_hash

logger = logging.getLogger(__name__)


def usable(descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
    """The overrides that still fit the prompt; each of the others is left out with a warning."""
    sections: dict[str, SectionOverride] = {}
    tools: dict[str, ToolOverride] = {}
    for path, section in override.sections.items():
        known = descriptor.sections.get(path)
        if not _ignored(override, f"section {path!r}", known and known.content_hash, section.content_hash):
            sections[path] = section
    for name, tool in override.tools.items():
        contract = descriptor.tools.get(name)
        if not _ignored(override, f"tool {name!r}", contract and contract.content_hash, tool.content_hash):
            tools[name] = tool
    return replace(override, sections=sections, tools=tools)


def without_unedited(override: PromptOverride) -> PromptOverride:
    """The overrides without the sections that are still what seeding once wrote: their body has the hash beside it.

    Of a tool that cannot be told, since its hash is that of more than its words.
    """
    sections = {
        path: section
        for path, section in override.sections.items()
        if content_hash(section.body) != section.content_hash
    }
    return replace(override, sections=sections)


def check(descriptor: PromptDescriptor, override: PromptOverride) -> None:
    """`PromptValidationError` when any of the overrides does not fit the prompt: stale, unknown, or not renderable."""
    for path, section in override.sections.items():
        known = descriptor.sections.get(path)
        _require(override, f"section {path!r}", known and known.content_hash, section.content_hash)
        assert known is not None
        _body(known, section)
    for name, tool in override.tools.items():
        contract = descriptor.tools.get(name)
        _require(override, f"tool {name!r}", contract and contract.content_hash, tool.content_hash)
        assert contract is not None
        _tool(contract.tool, tool)


def apply(tree: Tree, descriptor: PromptDescriptor, override: PromptOverride) -> Tree:
    """The tree with the overrides in it. `PromptValidationError` for a body whose placeholders do not exist.

    Words that are the same as the code's replace nothing.
    """
    override = usable(descriptor, override)
    bodies = {
        path: _body(descriptor.sections[path], section)
        for path, section in override.sections.items()
        if section.body.strip() != descriptor.sections[path].body
    }
    tools = {name: _tool(descriptor.tools[name].tool, tool) for name, tool in override.tools.items()}
    return tree.overridden(bodies, tools) if bodies or tools else tree


def _body(section: SectionDescriptor, override: SectionOverride) -> Body:
    return Body(override.body, section.params_type, path=section.path.split("."), what="override")


def _tool(tool: Tool[Any, Any], override: ToolOverride) -> Tool[Any, Any]:
    # An empty text is what seeding wrote for a parameter without a description.
    return tool.with_descriptions(override.description, {name: text for name, text in override.params.items() if text})


def _ignored(override: PromptOverride, what: str, current: str | None, written_for: str) -> bool:
    if current == written_for:
        return False
    logger.warning("Ignored the override of %s in %s/%s (tag %s): %s", what, override.ns, override.key, override.tag,
                   _problem(current))  # fmt: skip
    return True


def _require(override: PromptOverride, what: str, current: str | None, written_for: str) -> None:
    if current != written_for:
        raise PromptValidationError(
            f"The override of {what} in {override.ns}/{override.key} cannot be kept: {_problem(current)}"
        )


def _problem(current: str | None) -> str:
    if current is None:
        return "the prompt has none, or it does not accept overrides. Take it out."
    return "the prompt's own words changed since it was written. Take it out, seed again and redo the edit."


__all__ = ["apply", "check", "usable", "without_unedited"]
