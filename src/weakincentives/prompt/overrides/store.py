"""Overrides, and where they are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

from .descriptor import PromptDescriptor


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


__all__ = ["Described", "PromptOverride", "PromptOverridesStore", "SectionOverride", "ToolOverride"]
