"""The values a call passes through, each its own type, so that a stage that was skipped is a type error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..prompt.events import Outcome
from ..prompt.tool import Tool
from ..prompt.tree import BoundTool
from ..results import ToolResult

T = TypeVar("T")

if TYPE_CHECKING:

    def make(cls: type[T], fields: tuple[Any, ...]) -> T:
        """Make a named tuple of all its fields, in a third of the time its own constructor takes."""
        ...

else:
    make = tuple.__new__

KEPT: frozenset[str] = frozenset({"succeeded", "replayed"})
"""Outcomes of calls whose changes stay."""


class ToolCall(NamedTuple):
    """What the model asks for. `arguments` is JSON text or a mapping, as the provider gave it."""

    id: str
    name: str
    arguments: str | bytes | Mapping[str, Any] | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The arguments as plain data, unchecked; empty when they are not a JSON object."""
        if isinstance(self.arguments, Mapping):
            return self.arguments
        try:
            data = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownVariableType]


class ToolReply(NamedTuple):
    """The one answer to a call.

    Attributes:
        text: what the model reads, capped, with a last line on what was undone.
        result: what the handler returned, or the refusal as a failed result.
        is_error: whether something unexpected happened; False for failures the handler reported itself.
        duplicate: the id was brought before, so nothing ran now. The rest is the answer it got then, where that is
            known; it is for the caller, since the model has its answer.
    """

    call_id: str
    text: str
    result: ToolResult[Any]
    outcome: Outcome
    is_error: bool = False
    duplicate: bool = False

    @property
    def success(self) -> bool:
        """Whether the call's changes stayed."""
        return self.outcome in KEPT

    @property
    def message(self) -> str:
        """The result's message."""
        return self.result.message


class Request(NamedTuple):
    """A call of a known tool with params of the right type."""

    call: ToolCall
    bound: BoundTool
    params: Any


class Screened(NamedTuple):
    """A request that is not one repetition too many and has time to run; its policies were not asked yet."""

    request: Request
    tool: Tool[Any, Any]
    repeats: int
    started: float


class Admitted(Screened):
    """A screened request that every policy allowed. Only gate.py makes one."""

    __slots__ = ()


class Ran(NamedTuple):
    """How a handler ended.

    Attributes:
        error: what it raised, for the operator.
        raises: what must reach the caller once the call is settled.
    """

    result: ToolResult[Any]
    outcome: Outcome
    error: BaseException | None = None
    raises: BaseException | None = None


class Refused(Exception):  # noqa: N818 - not a fault: the model reads it and goes on
    """The call does not run; carries what the model should read."""

    def __init__(self, outcome: Outcome, text: str, *, params: Any = None, duplicate: bool = False) -> None:
        super().__init__(text)
        self.outcome: Outcome = outcome
        self.text = text
        self.params = params
        self.duplicate = duplicate


__all__ = ["KEPT", "Admitted", "Ran", "Refused", "Request", "Screened", "ToolCall", "ToolReply", "make"]
