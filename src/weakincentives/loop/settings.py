"""An adapter's settings and their defaults: turns, calls, requests. The same for all its evaluations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..clock import checked_seconds
from .request import DEFAULT_SECONDS, MAX_ANSWER_BYTES, Throttle


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """An adapter's own settings, the same for all its evaluations.

    Attributes:
        max_turns: how often the model may be asked in one evaluation.
        output_retries: how often it is told that its final answer could not be parsed.
        max_expansions: how often it may open sections.
        max_calls_per_turn: how many calls one answer may hold; more end the evaluation, and none of them runs.
        request_timeout: seconds one request may take in all, from the first byte sent to the last one read.
        max_answer_bytes: how much a server may send in answer to one request.
        throttle: how failed requests are repeated.
        manual: return at `stop_reason="tool_use"` instead of running the calls.
        hide_errors: tell the model only that something unexpected happened, not the exception's text.
        system: the system prompt of every conversation, where the provider supports one.
    """

    max_turns: int = 50
    output_retries: int = 2
    max_expansions: int = 20
    max_calls_per_turn: int = 256
    request_timeout: float = DEFAULT_SECONDS
    max_answer_bytes: int = MAX_ANSWER_BYTES
    throttle: Throttle = field(default_factory=Throttle)
    manual: bool = False
    hide_errors: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.output_retries < 0 or self.max_expansions < 0:
            raise ValueError("max_turns must be 1 or more, output_retries and max_expansions 0 or more.")
        if self.max_calls_per_turn < 1 or self.max_answer_bytes < 1:
            raise ValueError("max_calls_per_turn and max_answer_bytes must be 1 or more.")
        object.__setattr__(self, "request_timeout", checked_seconds("request_timeout", self.request_timeout))


def check_setting_names(adapter: type[Any], names: Iterable[str]) -> None:
    """TypeError for a setting that the adapter does not take: it names the adapter as the user wrote it."""
    unknown = [name for name in names if name not in AdapterSettings.__dataclass_fields__]
    if not unknown:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - for errors only
    from inspect import signature  # noqa: PLC0415

    inits = [cls.__dict__["__init__"] for cls in adapter.__mro__ if "__init__" in cls.__dict__ and cls is not object]
    taken = {name for init in inits for name, one in signature(init).parameters.items() if one.kind is one.KEYWORD_ONLY}
    taken |= AdapterSettings.__dataclass_fields__.keys()
    name = unknown[0]
    hints = [f"Did you mean {close}=?" for close in get_close_matches(name, sorted(taken), n=1)]
    if "extra" in taken:
        hints.append(f"A setting of the provider's own goes into extra={{{name!r}: ...}}.")
    elif not hints:
        hints.append(f"It takes: {', '.join(sorted(taken))}.")
    raise TypeError(f"{adapter.__name__}() does not take {name}=. {' '.join(hints)}")


__all__ = ["AdapterSettings", "check_setting_names"]
