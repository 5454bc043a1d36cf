"""What of a prompt can be overridden, with hashes of the words it has in the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, final

from ..tool import Tool
from ..tree import Node, Tree


@final
@dataclass(frozen=True, slots=True)
class SectionDescriptor:
    """A section that accepts overrides: its dotted path, its body as declared and the hash of it."""

    path: str
    body: str
    content_hash: str
    params_type: type[Any] | None = field(default=None, repr=False, compare=False)


@final
@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """A tool that accepts overrides: what it says of itself and its parameters, and the hash of its contract."""

    name: str
    description: str
    params: Mapping[str, str]
    content_hash: str
    tool: Tool[Any, Any] = field(repr=False, compare=False)


@final
@dataclass(frozen=True, slots=True)
class PromptDescriptor:
    """All of a prompt that can be overridden. Made from the code alone: no override shows in it."""

    ns: str
    key: str
    sections: Mapping[str, SectionDescriptor]
    tools: Mapping[str, ToolDescriptor]


def describe(ns: str, key: str, tree: Tree) -> PromptDescriptor:
    """The descriptor of a tree without overrides."""
    sections = [_section(node) for node in tree.nodes if node.section.accepts_overrides]
    tools = [_tool(bound.tool) for bound in tree.tools.values() if bound.tool.accepts_overrides]
    return PromptDescriptor(
        ns,
        key,
        {section.path: section for section in sections if section is not None},
        {tool.name: tool for tool in tools},
    )


def _section(node: Node) -> SectionDescriptor | None:
    body = node.section.body
    if body is None:
        return None
    return SectionDescriptor(node.key, body.source, content_hash(body.source), node.section.params_type)


def _tool(tool: Tool[Any, Any]) -> ToolDescriptor:
    schema = tool.schema()
    params = {name: str(item.get("description", "")) for name, item in schema["properties"].items()}
    words = [tool.description] if tool.guidance is None else [tool.description, tool.guidance]
    contract = json.dumps([*words, schema], sort_keys=True)  # without guidance, as it was before there was any
    return ToolDescriptor(tool.name, tool.description, params, content_hash(contract), tool)


def content_hash(text: str) -> str:
    """What tells one text from another."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


__all__ = ["PromptDescriptor", "SectionDescriptor", "ToolDescriptor", "content_hash", "describe"]
