"""The progress events that `on_event` receives while an evaluation runs, for a terminal or a web page."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..prompt.changes import NO_CHANGES, Changes
from ..prompt.events import Outcome


class TurnStarted(NamedTuple):
    """The model is about to be asked, for the `number`th time of this evaluation."""

    number: int


class TextDelta(NamedTuple):
    """A piece of the model's text; the whole of it where the adapter does not stream."""

    text: str


class Retrying(NamedTuple):
    """A request failed and is sent again after `delay` seconds; text of this turn begins anew.

    `reason` has credentials masked: services quote the keys they were sent.
    """

    reason: str
    attempt: int
    delay: float


class CallStarted(NamedTuple):
    """A call is about to be checked and run.

    `arguments` is what the model wrote, with a mark for each value of a field whose type is a secret.
    """

    call_id: str
    tool_name: str
    arguments: str


class CallFinished(NamedTuple):
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


class SectionsOpened(NamedTuple):
    """The model asked for sections that were summaries; the prompt was rendered anew."""

    section_keys: tuple[str, ...]


ProgressEvent = TurnStarted | TextDelta | Retrying | CallStarted | CallFinished | SectionsOpened
OnEvent = Callable[[ProgressEvent], object]
"""Called in the thread or task that evaluates; what it raises is logged and has no effect.

Where synchronous code has a deadline, requests run in a worker thread and text comes from there; never two at once.
"""

__all__ = [
    "CallFinished",
    "CallStarted",
    "OnEvent",
    "ProgressEvent",
    "Retrying",
    "SectionsOpened",
    "TextDelta",
    "TurnStarted",
]
