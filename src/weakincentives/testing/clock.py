"""A clock that moves only when it is advanced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still until `advance`; wall time can also be set back, monotonic time cannot.

    >>> clock = FakeClock()
    >>> before = clock.now()
    >>> clock.advance(timedelta(minutes=1))
    >>> (clock.now() - before).total_seconds()
    60.0
    """

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("FakeClock needs an aware start, such as datetime(2025, 1, 1, tzinfo=UTC).")
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The wall time."""
        return self._now

    def time(self) -> float:
        """The wall time as seconds since the epoch."""
        return self._now.timestamp()

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._monotonic

    def advance(self, by: timedelta | float) -> None:
        """Move both times forward; `ValueError` for a negative step."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else float(by)
        if seconds < 0:
            raise ValueError("Time does not go backwards; use set() to change the wall clock.")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, now: datetime) -> None:
        """Change the wall time alone, as a clock adjustment does, also backwards."""
        self._now = now
