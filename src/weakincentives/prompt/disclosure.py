"""The two tools with which a model looks into sections that are shown as summaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, cast, runtime_checkable

from ..errors import VisibilityExpansionRequired
from ..results import ToolResult
from .tool import Tool
from .tool_context import ToolContext
from .tool_metadata import ToolAnnotations
from .tree import BoundTool


@runtime_checkable
class Disclosing(Protocol):
    """A rendered prompt, as far as these tools need it."""

    @property
    def summarised(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as summaries."""
        ...

    def read_section(self, section_key: str) -> str:
        """The whole text of one of them."""
        ...


@dataclass(frozen=True, slots=True)
class OpenSections:
    """Which sections to open, and why."""

    section_keys: tuple[str, ...] = field(
        metadata={"description": "The keys of the sections, as their notes give them."}
    )
    reason: str = field(metadata={"description": "Why they are needed, in one sentence."})


@dataclass(frozen=True, slots=True)
class ReadSection:
    """Which section to read."""

    section_key: str = field(metadata={"description": "The key of the section, as its note gives it."})


def _open(params: OpenSections, *, context: ToolContext) -> ToolResult[None]:
    keys = tuple(dict.fromkeys(params.section_keys))
    openable = _openable(context)
    unknown = [key for key in keys if key not in openable]
    if unknown or not keys:
        return ToolResult.error(_not_there("open_sections", unknown, openable))
    raise VisibilityExpansionRequired(
        f"The model opens {', '.join(keys)}: {params.reason}", section_keys=keys, reason=params.reason
    )


def _read(params: ReadSection, *, context: ToolContext) -> ToolResult[str]:
    key, openable = params.section_key, _openable(context)
    if key not in openable:
        return ToolResult.error(_not_there("read_section", [key], openable))
    text = cast(Disclosing, context.rendered_prompt).read_section(key)
    return ToolResult.ok(text, message=f"Section {key}; its tools are offered only once it is opened.")


def _openable(context: ToolContext) -> tuple[str, ...]:
    rendered = cast(object, context.rendered_prompt)
    return rendered.summarised if isinstance(rendered, Disclosing) else ()


def _not_there(tool_name: str, unknown: list[str], openable: tuple[str, ...]) -> str:
    problem = f"Not a summarised section: {', '.join(unknown)}" if unknown else "No sections were named"
    if not openable:
        return f"{problem}\nEvery section is open already; read the prompt"
    return f"{problem}\nSummarised sections: {', '.join(openable)}\nCall {tool_name} with one of these keys"


@cache
def disclosure_tools() -> tuple[BoundTool, ...]:
    """What a prompt offers while any of its sections is a summary. Made when first needed: schemas take a moment."""
    opening = Tool[OpenSections, None](
        name="open_sections",
        description="Open sections that are shown as summaries, so that their full text and their tools are available.",
        handler=_open,
        blocking=False,
        annotations=ToolAnnotations(destructive=False, idempotent=True, open_world=False),
        accepts_overrides=False,
    )
    reading = Tool[ReadSection, str](
        name="read_section",
        description="Read the full text of one summarised section without opening it.",
        handler=_read,
        blocking=False,
        annotations=ToolAnnotations(read_only=True, open_world=False),
        accepts_overrides=False,
    )
    return BoundTool(opening), BoundTool(reading)


def note(section_key: str, *, has_tools: bool) -> str:
    """The line below a summary that tells the model how to see more."""
    more = "its text and its tools" if has_tools else "its text"
    return (
        f'_This is a summary. For {more} call `open_sections` with section_keys ["{section_key}"]; '
        f'to only read it, call `read_section` with section_key "{section_key}"._'
    )


__all__ = ["Disclosing", "OpenSections", "ReadSection", "disclosure_tools", "note"]
