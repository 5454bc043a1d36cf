"""The events of an evaluation, for the log and for subscribers: rendered, called, executed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from time import time
from typing import Any, ClassVar, Literal, final
from uuid import uuid4

from ..budget import TokenUsage
from ..masking import MAX_LEAVING_CHARS, redact, visible
from ..results import ToolResult
from ..run_context import RunContext
from ..session import SlicePolicy
from .changes import NO_CHANGES, Changes

# Ids of events: one for every call, so they must cost next to nothing.


next_number: Callable[[], int] = count().__next__
"""The number of an event within its process."""
_process = ""
"""The random part of the ids of this process; it changes after a fork, so it is never copied."""


def _renew() -> None:
    global _process  # noqa: PLW0603 - a process has one
    _process = uuid4().hex


def event_id_of(process: str, number: int) -> str:
    """The id of that event of that process."""
    return f"{process}-{number:x}"


def new_event_id() -> str:
    """A new id, unique across processes: a random part for each process and a number within it."""
    return event_id_of(_process, next_number())


_renew()
os.register_at_fork(after_in_child=_renew)


# An exception as the log keeps it: text alone, so that a crashed call keeps none of its objects alive.


MAX_ERROR_CHARS = 8 * 1024
"""How much of an exception's text the log keeps: some exceptions carry a whole file."""


@final
@dataclass(frozen=True, slots=True)
class RecordedError:
    """What is kept of an exception once its call is over. It holds no exception, no traceback and no frame.

    Attributes:
        type_name: the class of the exception, with its module unless it is built in.
        text: what the exception said with credentials masked and hidden characters marked, cut when it is very long.
        trace: the formatted traceback, masked, marked and cut likewise. Empty for expected failures
            (`ToolError`) and for exceptions that were never raised.

    >>> str(RecordedError.of(LookupError("no such order")))
    'no such order'
    """

    type_name: str
    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException, trace: str = "") -> RecordedError:
        """The record of an exception; `trace` is its traceback, if the caller has formatted it already."""
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return cls(f"{module}{kind.__qualname__}", masked_text(error)[:MAX_ERROR_CHARS], trace)

    def __str__(self) -> str:
        return self.text


def text_of(value: object) -> str:
    """What an exception says, or another object of a user's class; nothing when that fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - its class is users' code
        return ""


def masked_text(error: BaseException) -> str:
    """What an exception says, with credentials masked and hidden characters marked: it is read in terminals.

    Masked before it is shortened, since a cut may hide what a credential is recognised by.
    """
    return visible(redact(text_of(error)[:MAX_LEAVING_CHARS]))


Outcome = Literal[
    "succeeded",
    "failed",
    "unknown_tool",
    "invalid",
    "refused",
    "conflict",
    "deadline",
    "timeout",
    "cancelled",
    "crashed",
    "undone",
    "expanded",
    "unknown",
    "replayed",
]
"""How a call ended.

succeeded, or replayed from the ledger; failed: its result says so; not admitted: unknown_tool, invalid (arguments),
refused (a policy, a repetition), conflict (other params under the same key); stopped: deadline, timeout, cancelled;
crashed: an unexpected exception; undone: it succeeded, but a subscriber or policy failed afterwards; expanded: the
model asked to open sections; unknown: whether its effect happened is not known.
"""

_new = object.__new__

_NOT_ADMITTED: frozenset[str] = frozenset({"unknown_tool", "invalid", "refused", "conflict"})


class _Fields:
    """The fields of `ToolInvoked` while they can still be set."""

    __slots__ = (
        "_number",
        "_process",
        "adapter",
        "call_id",
        "changes",
        "duration",
        "error",
        "event_id",
        "outcome",
        "params",
        "prompt_name",
        "rendered_output",
        "result",
        "run_context",
        "session_id",
        "success",
        "timestamp",
        "tool_name",
        "undone_calls",
        "usage",
        "within",
    )

    _process: str  # with the number, what the event's id is made of
    _number: int
    error: RecordedError | None  # here and not below: it is for the operator and is neither compared nor saved


@final
@dataclass(frozen=True, slots=True, init=False)
class ToolInvoked(_Fields):
    """One call and how it ended; exactly one is recorded for each call id, however the call ended.

    Attributes:
        tool_name: the tool the model asked for, also one that does not exist.
        params: the parsed params; the raw arguments when they could not be parsed.
        result: what the handler returned, or the refusal as a failed result.
        success: whether the call's changes stayed.
        timestamp: when the call began, in seconds since the epoch.
        duration: seconds from there until it was over; 0 for a call that never began.
        call_id: the model's id of the call.
        rendered_output: the text the model read.
        changes: what the call changed, or what was undone of it.
        outcome: how it ended; without one, succeeded or failed by `success`.
        within: the `event_id` of the call that this one was made in, or None.
        undone_calls: the `event_id`s of calls made inside this one that had succeeded and were undone with it. To fold
            the log into a state, leave them out.
        error: the exception behind a failure as text, for the operator: `str(event.error)` is what it said, unmasked,
            and `error.trace` where it was raised. Not saved with the session.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool_name: str
    params: Any
    result: ToolResult[Any] | None
    success: bool
    timestamp: float
    duration: float
    call_id: str | None
    session_id: str | None
    prompt_name: str | None
    adapter: str | None
    usage: TokenUsage | None
    rendered_output: str
    run_context: RunContext | None
    event_id: str
    changes: Changes
    outcome: Outcome
    within: str | None
    undone_calls: tuple[str, ...]

    def __new__(  # noqa: D102, PLR0917 - as the attributes say; the engine passes them by position, for speed
        cls,
        tool_name: str = "",
        params: Any = None,
        result: ToolResult[Any] | None = None,
        success: bool | None = None,
        timestamp: float | None = None,
        duration: float = 0.0,
        call_id: str | None = None,
        session_id: str | None = None,
        prompt_name: str | None = None,
        adapter: str | None = None,
        usage: TokenUsage | None = None,
        rendered_output: str = "",
        run_context: RunContext | None = None,
        event_id: str | None = None,
        changes: Changes = NO_CHANGES,
        outcome: Outcome | None = None,
        error: RecordedError | BaseException | None = None,
        within: str | None = None,
        undone_calls: tuple[str, ...] = (),
    ) -> ToolInvoked:
        if isinstance(error, BaseException):
            error = RecordedError.of(error)
        if success is None:
            success = result.success if result is not None else outcome in (None, "succeeded", "replayed")
        if outcome is None:
            outcome = "succeeded" if success else "failed"
        made = tool_invoked(
            tool_name, params, result, success, time() if timestamp is None else timestamp, duration, call_id,
            session_id, prompt_name, adapter, usage, rendered_output, run_context, changes, outcome, error,
        )  # fmt: skip
        link_event(made, event_id, within, undone_calls)
        return made

    def __getattr__(self, name: str) -> str:
        """The event's id, made when it is first asked for: most events are never asked."""
        if name != "event_id":
            raise AttributeError(f"'ToolInvoked' object has no attribute {name!r}", name=name, obj=self)
        named = event_id_of(self._process, self._number)
        _set_event_id(self, named)
        return named

    @property
    def admitted(self) -> bool:
        """Whether the call passed the gate: rate limits and quotas count these.

        A replay and a call that failed count. A deadline that passed before the handler began (no duration), a
        refusal, invalid arguments, an unknown tool and a conflict do not.
        """
        outcome = self.outcome
        return outcome not in _NOT_ADMITTED and (outcome != "deadline" or self.duration > 0)


_set_event_id = _Fields.__dict__["event_id"].__set__
_set_within = _Fields.__dict__["within"].__set__
_set_undone_calls = _Fields.__dict__["undone_calls"].__set__


def link_event(event: ToolInvoked, event_id: str | None, within: str | None, undone_calls: tuple[str, ...]) -> None:
    """Set the links of a new event to others, before it is published; without an id it keeps its own."""
    if event_id is not None:
        _set_event_id(event, event_id)
    _set_within(event, within)
    _set_undone_calls(event, tuple(undone_calls))


def tool_invoked(  # noqa: PLR0917 - one is made for every call, so all of it by position
    tool_name: str,
    params: Any,
    result: ToolResult[Any] | None,
    success: bool,
    timestamp: float,
    duration: float,
    call_id: str | None,
    session_id: str | None,
    prompt_name: str | None,
    adapter: str | None,
    usage: TokenUsage | None,
    rendered_output: str,
    run_context: RunContext | None,
    changes: Changes,
    outcome: Outcome,
    error: RecordedError | None,
) -> ToolInvoked:
    """A `ToolInvoked` of all its fields, in half the time its own constructor takes; it gets an id when asked."""
    # Filled first and frozen then, like `ToolContext`.
    self: Any = _new(_Fields)
    self.tool_name = tool_name
    self.params = params
    self.result = result
    self.success = success
    self.timestamp = timestamp
    self.duration = duration
    self.call_id = call_id
    self.session_id = session_id
    self.prompt_name = prompt_name
    self.adapter = adapter
    self.usage = usage
    self.rendered_output = rendered_output
    self.run_context = run_context
    self.changes = changes
    self.outcome = outcome
    self.error = error
    self.within = None
    self.undone_calls = ()
    self._process = _process
    self._number = next_number()
    self.__class__ = ToolInvoked
    return self


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CallsUndone:
    """Calls that had succeeded were undone, by a transaction around them or by a snapshot that was restored.

    `undone_calls` are the `event_id`s of their `ToolInvoked`, oldest first.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    undone_calls: tuple[str, ...]
    session_id: str | None = None
    timestamp: float = field(default_factory=time)
    event_id: str = field(default_factory=new_event_id)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt was rendered and is about to be sent.

    Attributes:
        text: what the model reads as the user's message.
        system: what it reads in the system's role, without the adapter's own `system=`.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    prompt_name: str
    prompt_ns: str = ""
    prompt_key: str = ""
    text: str = ""
    system: str = ""
    tool_names: tuple[str, ...] = ()
    adapter: str | None = None
    session_id: str | None = None
    run_context: RunContext | None = None
    timestamp: float = field(default_factory=time)
    event_id: str = field(default_factory=new_event_id)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """An evaluation is over. `output` is the parsed answer, where the prompt has an output type."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    prompt_name: str
    prompt_ns: str = ""
    prompt_key: str = ""
    text: str | None = None
    output: Any = None
    stop_reason: str | None = None
    usage: TokenUsage | None = None
    adapter: str | None = None
    session_id: str | None = None
    run_context: RunContext | None = None
    duration: float = 0.0
    timestamp: float = field(default_factory=time)
    event_id: str = field(default_factory=new_event_id)
