"""Token counts in one vocabulary; providers name them differently and leave out what they like."""

from __future__ import annotations

from typing import Any

from ..budget import TokenUsage


def openai_usage(usage: Any) -> TokenUsage:
    """Of Chat Completions (`prompt_tokens`) and Responses (`input_tokens`) alike."""
    if usage is None:
        return TokenUsage()
    details_in = _get(usage, "input_tokens_details") or _get(usage, "prompt_tokens_details")
    details_out = _get(usage, "output_tokens_details") or _get(usage, "completion_tokens_details")
    return TokenUsage(
        input=_count(usage, "input_tokens") or _count(usage, "prompt_tokens"),
        output=_count(usage, "output_tokens") or _count(usage, "completion_tokens"),
        cached=_count(details_in, "cached_tokens"),
        reasoning=_count(details_out, "reasoning_tokens"),
    )


def anthropic_usage(usage: Any) -> TokenUsage:
    """Of Messages, where `input_tokens` leaves out what the cache was asked for."""
    if usage is None:
        return TokenUsage()
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    return TokenUsage(
        input=_count(usage, "input_tokens") + read + written,
        output=_count(usage, "output_tokens"),
        cached=read,
        reasoning=_count(_get(usage, "output_tokens_details"), "thinking_tokens"),
    )


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _count(source: Any, name: str) -> int:
    found = None if source is None else _get(source, name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


__all__ = ["anthropic_usage", "openai_usage"]
