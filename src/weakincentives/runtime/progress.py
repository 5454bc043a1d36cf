"""The events that listeners receive while an evaluation runs, for a terminal or a web page.

One closed set of frozen types. `on_event` receives them as they happen, `MainLoop.stream` gives them one after another,
`RecordedRun.events` rebuilds them from a record, and `to_json` makes a line of each. The names of types and fields are
public: they appear in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, cast, final

from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.events import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What all of them have. Two events are equal when they say the same, whenever and wherever that was.

    Attributes:
        run_id: which run; None where an evaluation was given no ids.
        step: how far in the run's record a reader is with this event: all that the steps up to this one tell was told.
            None for a run that is not on record.
        turn: how often the model had been asked; in a sub-agent, its own.
        at: seconds since the epoch.
        path: the names of the sub-agents that it happened in, the outermost first; () for the run itself. Its `run_id`
            and `step` are those of the run then, too.
    """

    run_id: str | None = field(default=None, compare=False, repr=False)
    step: int | None = field(default=None, compare=False, repr=False)
    turn: int = field(default=0, compare=False, repr=False)
    at: float = field(default=0.0, compare=False, repr=False)
    path: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The event as plain data; `event` is its name."""
        names = [each.name for each in fields(self)]
        names = names[_COMMON:] + names[:_COMMON]  # what it says, then where and when
        if not self.path:
            names.remove("path")
        return {"event": self.name(), **{name: _plain(getattr(self, name)) for name in names}}

    def to_json(self) -> str:
        """The event as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def name(cls) -> str:
        """What this kind of event is called in JSON, such as "text_delta"."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


_COMMON = len(fields(RunEvent))


@final
@dataclass(frozen=True, slots=True)
class MessageReceived(RunEvent):
    """A user's message, as the model reads it; `interjected` while the one before it was answered."""

    text: str
    interjected: bool = False


@final
@dataclass(frozen=True, slots=True)
class Resumed(RunEvent):
    """A run on record goes on after its `step`, in another process or once more in this one.

    What is on record is not told again as if it happened now: `RecordedRun.events` has it. `attempt` says how often the
    run was taken up; 1 for a fork that goes on for the first time.
    """

    attempt: int


@final
@dataclass(frozen=True, slots=True)
class TurnStarted(RunEvent):
    """The model is about to be asked, for the `number`th time of this run or message. Text of this turn begins anew."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class TextDelta(RunEvent):
    """A piece of the model's text; the whole of it where the adapter does not stream."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class ReasoningDelta(RunEvent):
    """A piece of what the model says of its reasoning, from providers that send it. It is not part of the answer."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Retrying(RunEvent):
    """A request failed and is sent again after `delay` seconds; text of this turn begins anew.

    `reason` has credentials masked: services quote the keys they were sent.
    """

    reason: str
    attempt: int
    delay: float


@final
@dataclass(frozen=True, slots=True)
class CallStarted(RunEvent):
    """A call is about to be checked and run.

    `arguments` is what the model wrote, with a mark for each value of a field whose type is a secret.
    """

    call_id: str
    tool_name: str
    arguments: str


@final
@dataclass(frozen=True, slots=True)
class CallFinished(RunEvent):
    """A call is over.

    Attributes:
        text: what the model reads.
        changes: what the call changed, or, unless `kept`, what was undone of it.
        kept: whether the changes stayed.
    """

    call_id: str
    tool_name: str
    outcome: Outcome
    text: str
    duration: float = 0.0
    changes: Changes = NO_CHANGES
    kept: bool = False


@final
@dataclass(frozen=True, slots=True)
class SectionsOpened(RunEvent):
    """The model asked for sections that were summaries; the prompt was rendered anew."""

    section_keys: tuple[str, ...]


ProgressEvent = (
    MessageReceived | Resumed | TurnStarted | TextDelta | ReasoningDelta | Retrying |
    CallStarted | CallFinished | SectionsOpened)  # fmt: skip
OnEvent = Callable[[ProgressEvent], object]
"""Called in the thread or task that evaluates; what it raises is logged and has no effect.

Where synchronous code has a deadline, requests run in a worker thread and text comes from there; never two at once.
"""


def _plain(value: Any) -> Any:
    if isinstance(value, Changes):
        files = value.files
        return {
            "slices": [{"name": each.name, "added": each.added, "contended": each.contended} for each in value.slices],
            "files": {"added": list(files.added), "changed": list(files.changed), "removed": list(files.removed)},
        }
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


__all__ = [
    "CallFinished", "CallStarted", "MessageReceived", "OnEvent", "ProgressEvent", "ReasoningDelta", "Resumed",
    "Retrying", "RunEvent", "SectionsOpened", "TextDelta", "TurnStarted",
]  # fmt: skip
