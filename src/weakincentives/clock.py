"""The only place that reads the time, so that tests can set it."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic as _monotonic
from time import time as _time
from typing import Final, Protocol


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

    time: staticmethod[[], float] = staticmethod(_time)
    monotonic: staticmethod[[], float] = staticmethod(_monotonic)


SYSTEM_CLOCK: Clock = SystemClock()
"""What everything uses that was not given a clock."""


# Durations in seconds, checked where they are given: NaN is never over, and infinity is too long for a timer.


MAX_SECONDS: Final = 1e9
"""About 31 years. Timers and locks of the system take no more than 292."""


def is_finite_number(value: object) -> bool:
    """Whether it is an integer or a float that has a value; False for NaN, infinities and booleans.

    >>> is_finite_number(0.5), is_finite_number(float("nan")), is_finite_number(True)
    (True, False, False)
    """
    # Compared, not converted: an integer may be larger than every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and -float("inf") < value < float("inf")


def checked_seconds(name: str, value: object, *, zero: bool = False) -> float:
    """The duration that was given as `name`, at most `MAX_SECONDS`; with `zero` it may be none at all.

    `TypeError` when it is not a number, `ValueError` when it is not finite, or too small.

    >>> checked_seconds("timeout", 5)
    5.0
    >>> checked_seconds("timeout", float("nan"))
    Traceback (most recent call last):
    ...
    ValueError: timeout must be a positive, finite number of seconds, got nan.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}.")
    if is_finite_number(value) and (value > 0 or (zero and value == 0)):
        return float(min(value, MAX_SECONDS))
    what = "finite number of seconds, 0 or more" if zero else "positive, finite number of seconds"
    shown = repr(value) if value > -MAX_SECONDS or isinstance(value, float) else "a huge negative integer"
    raise ValueError(f"{name} must be a {what}, got {shown}.")
