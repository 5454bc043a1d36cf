"""One question to a model and its answer, in words no provider owns: what a new adapter has to translate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..budget import TokenUsage
from .tool_spec import ToolSpec
from .transcript import CallMessage, Message

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause", "error"]
"""Why a model, or an evaluation, stopped.

end_turn: it had nothing more to say; tool_use: it waits for answers; max_tokens: it was cut; refusal: it declined;
pause: the provider wants to be asked again; error: only in `PromptExecuted`, of an evaluation that raised.
"""


class ModelRequest(NamedTuple):
    """What to ask.

    Attributes:
        messages: the whole conversation, the rendered prompt included.
        tools: what may be called.
        system: words that stand above the conversation, or None.
        output_schema: the JSON schema of the final answer, or None for plain text.
        timeout: seconds until the deadline, or None when there is none.
        on_text: takes text as it comes; None when nobody listens and streaming is needless.
        out_of_time: whether the deadline has passed; to be asked between the pieces of a stream.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    system: str | None = None
    output_schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    on_text: Callable[[str], object] | None = None
    out_of_time: Callable[[], bool] | None = None


class ModelTurn(NamedTuple):
    """What came back. `native` is what must go back as it came; see `ModelMessage`."""

    text: str = ""
    calls: tuple[CallMessage, ...] = ()
    usage: TokenUsage = TokenUsage()
    stop_reason: StopReason = "end_turn"
    native: tuple[dict[str, Any], ...] = ()


__all__ = ["ModelRequest", "ModelTurn", "StopReason"]
