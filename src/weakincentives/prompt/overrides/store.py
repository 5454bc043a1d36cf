"""Overrides, and where they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, final, runtime_checkable

from ..tool import Tool
from ..tree import Node, Tree

# What of a prompt can be overridden, with hashes of the words it has in the code.


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


@final
@dataclass(frozen=True, slots=True)
class SectionOverride:
    """Another body for a section. `content_hash` is that of the body it was written for."""

    content_hash: str
    body: str


@final
@dataclass(frozen=True, slots=True)
class ToolOverride:
    """Other words for a tool; None, or a parameter left out, keeps the tool's own.

    `content_hash` is that of the contract it was written for.
    """

    content_hash: str
    description: str | None = None
    params: dict[str, str] = field(default_factory=dict[str, str])


@final
@dataclass(frozen=True, slots=True)
class PromptOverride:
    """One set of overrides of one prompt: section bodies by dotted path, tools by name."""

    ns: str
    key: str
    tag: str = "latest"
    sections: dict[str, SectionOverride] = field(default_factory=dict[str, SectionOverride])
    tools: dict[str, ToolOverride] = field(default_factory=dict[str, ToolOverride])


class Described(Protocol):
    """What can be seeded: a `Prompt`."""

    @property
    def descriptor(self) -> PromptDescriptor:
        """What of it can be overridden."""
        ...


@runtime_checkable
class PromptOverridesStore(Protocol):
    """Keeps overrides by namespace, key and tag.

    A name that is not usable, or data that is damaged, raises `PromptValidationError`. Calls may come from any thread.
    """

    def resolve(self, descriptor: PromptDescriptor, tag: str) -> PromptOverride | None:
        """The overrides of that tag that still fit the prompt; None when there are none.

        What was written for other words than the prompt has now is left out, with a warning in the log that says
        which; so is what the prompt does not have or does not allow to be overridden.
        """
        ...

    def upsert(self, descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
        """Keep the overrides, all of them or, when one does not fit the prompt, none: `PromptValidationError`."""
        ...

    def seed(self, prompt: Described, *, tag: str = "latest") -> PromptOverride:
        """Write down the prompt's words as overrides, to be edited; what would be used of them now.

        What was edited is never replaced, also when the prompt's own words changed since and it is not used any more:
        take it out to have the new words.
        """
        ...

    def delete(self, ns: str, key: str, tag: str = "latest") -> bool:
        """Forget the overrides of that tag; says whether there were any."""
        ...
