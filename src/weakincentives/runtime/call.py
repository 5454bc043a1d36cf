"""The values a call passes through, each its own type, so that a stage that was skipped is a type error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, final

from ..lazy_modules import hashlib
from ..prompt.changes import Changes
from ..prompt.events import Outcome, ToolInvoked
from ..prompt.tool import Tool
from ..prompt.tree import BoundTool
from ..results import ToolResult

T = TypeVar("T")

KEPT: frozenset[str] = frozenset({"succeeded", "replayed"})
"""Outcomes of calls whose changes stay."""

MAX_ID_CHARS = 16 * 1024
"""A call whose id is longer is refused: some providers put a signature of kilobytes into an id, none a megabyte."""


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


def short_id(call_id: str, limit: int = MAX_ID_CHARS) -> str:
    """The id, or its beginning with a digest of the rest when it is longer than `limit`."""
    if len(call_id) <= limit:
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{call_id[: limit - len(digest) - 1]}#{digest}"


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


# The values between the stages are slotted but not frozen: a frozen dataclass takes three times as long to make, and a
# call makes seven of them. No stage changes one that it was given.


@final
@dataclass(slots=True, eq=False)
class Request:
    """A call that was checked: a known tool, params of the right type, not repeated too often, and time to run.

    Its policies were not asked yet. `started` is when it began, on the monotonic clock.
    """

    call: ToolCall
    bound: BoundTool
    params: Any
    repeats: int
    started: float


@final
@dataclass(slots=True, eq=False)
class Admitted:
    """A request that every policy allowed. Only the gate makes one."""

    request: Request
    tool: Tool[Any, Any]


@final
@dataclass(slots=True, eq=False)
class HandlerOutcome:
    """How a handler ended.

    Attributes:
        error: what it raised, for the operator.
        raises: what must reach the caller once the call is over.
    """

    result: ToolResult[Any]
    outcome: Outcome
    error: BaseException | None = None
    raises: BaseException | None = None


@final
@dataclass(slots=True, eq=False)
class Accepted:
    """A call whose handles are closed: a success that can still be undone, or a failure that was undone.

    `text` is what the model will read, `changes` what the call changed, or what was undone of it.
    """

    admitted: Admitted
    ended: HandlerOutcome
    text: str
    changes: Changes


@final
@dataclass(slots=True, eq=False)
class Told:
    """A call whose subscribers have seen its event; if one of them failed, it was undone and the event says so."""

    accepted: Accepted
    event: ToolInvoked


@final
@dataclass(slots=True, eq=False)
class Committed:
    """A call that is decided: its event is in the log, and what a success changed stays."""

    event: ToolInvoked
    ended: HandlerOutcome


class Refused(Exception):  # noqa: N818 - not a fault: the model reads it and goes on
    """The call does not run; carries what the model should read."""

    def __init__(self, outcome: Outcome, text: str, *, params: Any = None, duplicate: bool = False) -> None:
        super().__init__(text)
        self.outcome: Outcome = outcome
        self.text = text
        self.params = params
        self.duplicate = duplicate
