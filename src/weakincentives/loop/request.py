"""One request to a model and its answer, independent of the provider; how it can fail, and when it is sent again."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..budget import TokenUsage
from ..clock import checked_seconds
from ..errors import SchemaError
from ..interrupts import WeakTable
from ..prompt.tool import Tool
from ..results import render_value
from ..runtime.messages import CallMessage, Message
from ..runtime.response import StopReason
from ..serde import dump

DEFAULT_SECONDS = 600.0
"""How long one request may take in all."""

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""How much a model server may send in answer to one request, headers not counted, packed or unpacked."""

# What a model is told about a tool: name, description with guidance and examples, schema.


class ToolSpec(NamedTuple):
    """One tool, ready to be translated into a provider's format. Treat `schema` as read-only: it is shared.

    Attributes:
        guidance: what else the model should know, or None.
        examples: what to send, what came back and why, as plain data.
    """

    name: str
    description: str
    schema: dict[str, Any]
    examples: tuple[dict[str, Any], ...] = ()
    read_only: bool = False
    guidance: str | None = None

    @property
    def text(self) -> str:
        """The description, then the guidance and the examples: providers have one place for all three."""
        parts = [self.description] if self.guidance is None else [self.description, self.guidance]
        if self.examples:
            lines = [
                f"- {item['description']}: {_json(item['input'])} -> {_json(item['output'])}" for item in self.examples
            ]
            parts.append("\n".join(["Examples:", *lines]))
        return "\n\n".join(parts)


_specs: WeakTable[Tool[Any, Any], ToolSpec] = WeakTable()


def tool_spec(tool: Tool[Any, Any]) -> ToolSpec:
    """Everything a provider can be told about the tool; made once for each tool, not for each request."""
    spec = _specs.get(tool)
    if spec is None:
        examples = tuple(
            {"description": item.description, "input": _plain(item.input), "output": _output(item.output)}
            for item in tool.examples
        )
        read_only = tool.annotations.read_only
        spec = ToolSpec(tool.name, tool.description, tool.schema(), examples, read_only, tool.guidance)
        _specs.put(tool, spec)
    return spec


def _plain(params: object) -> Any:
    return {} if params is None else dump(params)


def _output(value: object) -> Any:
    """Results may be of any type; one without a JSON form is shown as the model would read it."""
    try:
        return dump(value, computed=True)
    except SchemaError:
        return render_value(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


OnText = Callable[[str], object]
"""Takes text as it comes."""


class ModelRequest(NamedTuple):
    """What to ask.

    Attributes:
        messages: the whole conversation, the rendered prompt included.
        tools: what may be called.
        system: the system prompt, or None.
        output_schema: the JSON schema of the final answer, or None for plain text.
        timeout: seconds until the deadline, or None when there is none.
        on_text: takes text as it comes; None when there is no listener and streaming is not needed.
        out_of_time: whether the deadline has passed; to be asked between the pieces of a stream.
        on_reasoning: takes what the model says of its reasoning, where the provider sends it.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    system: str | None = None
    output_schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    on_text: OnText | None = None
    out_of_time: Callable[[], bool] | None = None
    on_reasoning: OnText | None = None


class ModelTurn(NamedTuple):
    """The model's answer to a request. `native` is what must be sent back unchanged; see `ModelMessage`."""

    text: str = ""
    calls: tuple[CallMessage, ...] = ()
    usage: TokenUsage = TokenUsage()
    stop_reason: StopReason = "end_turn"
    native: tuple[dict[str, Any], ...] = ()


# How a request to a model can fail, sorted by what helps: waiting, or a person.


FailureKind = Literal[
    "throttled", "overloaded", "timeout", "connection", "server", "key", "model", "context", "refused", "malformed"
]
"""throttled, overloaded, timeout, connection, server: waiting may help; key: it is missing or wrong; model: it does not
exist; context: the conversation is too long; refused: the request was; malformed: the answer makes no sense."""

_WAITING_HELPS: frozenset[str] = frozenset({"throttled", "overloaded", "timeout", "connection", "server"})


_MAX_RETRY_AFTER = 24 * 3600.0


class RequestFailed(Exception):  # noqa: N818 - between an adapter and the loop; users see PromptEvaluationError
    """Raised by `TurnAdapter.ask`. The loop waits and asks again where that helps, or ends the evaluation.

    Attributes:
        retry_after: seconds the provider asked to wait, or None; also where that cannot be meant (`sensible_wait`).
    """

    def __init__(self, kind: FailureKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.retry_after: float | None = None if retry_after is None else sensible_wait(retry_after)

    @property
    def waiting_helps(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _WAITING_HELPS


def sensible_wait(seconds: float) -> float | None:
    """Seconds that a provider asked to wait, at least 0; None for what cannot be meant: not finite, more than a day."""
    return max(seconds, 0.0) if math.isfinite(seconds) and seconds <= _MAX_RETRY_AFTER else None


@dataclass(frozen=True, slots=True)
class Throttle:
    """Waits that double, with jitter; what the provider asked for (`retry-after`) is never shortened.

    Attributes:
        max_attempts: requests in all for one turn, the first included.
        base: seconds of the first wait.
        max_wait: no wait gets longer by doubling; a provider that asks for more ends the evaluation.
        random: a number from 0 to 1; each wait is between half and all of its length.

    >>> Throttle(base=1, random=lambda: 1.0).wait(3, RequestFailed("overloaded", "busy"))
    4.0
    """

    max_attempts: int = 6
    base: float = 0.5
    max_wait: float = 60.0
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("Throttle needs max_attempts of 1 or more.")
        object.__setattr__(self, "base", checked_seconds("base", self.base, zero=True))
        object.__setattr__(self, "max_wait", checked_seconds("max_wait", self.max_wait, zero=True))

    def wait(self, attempt: int, failure: RequestFailed) -> float | None:
        """Seconds until attempt `attempt + 1`; None when there should be none."""
        if not failure.waiting_helps or attempt >= self.max_attempts:
            return None
        if failure.retry_after is not None:
            # Everybody was told the same moment: come a little later, never sooner.
            return None if failure.retry_after > self.max_wait else failure.retry_after + self.base * self.random() / 4
        return min(self.base * 2.0 ** (attempt - 1), self.max_wait) * (0.5 + self.random() / 2)
