"""The older import path of the progress events; they live in `weakincentives.runtime.progress`."""

from ..runtime.progress import (
    CallFinished,
    CallStarted,
    OnEvent,
    ProgressEvent,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)

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
