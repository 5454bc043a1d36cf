"""Changing a prompt's words without changing its code."""

from .apply import check, usable
from .local import LocalPromptOverridesStore
from .store import (
    Described,
    PromptDescriptor,
    PromptOverride,
    PromptOverridesStore,
    SectionDescriptor,
    SectionOverride,
    ToolDescriptor,
    ToolOverride,
)

__all__ = [
    "Described",
    "LocalPromptOverridesStore",
    "PromptDescriptor",
    "PromptOverride",
    "PromptOverridesStore",
    "SectionDescriptor",
    "SectionOverride",
    "ToolDescriptor",
    "ToolOverride",
    "check",
    "usable",
]
