"""Changing a prompt's words without changing its code."""

from .apply import check, usable
from .descriptor import PromptDescriptor, SectionDescriptor, ToolDescriptor
from .local import LocalPromptOverridesStore
from .store import Described, PromptOverride, PromptOverridesStore, SectionOverride, ToolOverride

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
