"""The only place that asks what time it is, so that tests can say."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic as _monotonic
from time import time as _time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps and deadlines, monotonic time for durations."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    def time(self) -> float:
        """The current time as seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)

    time = staticmethod(_time)
    monotonic = staticmethod(_monotonic)


SYSTEM_CLOCK: Clock = SystemClock()
"""What everything uses that was not given a clock."""

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]
