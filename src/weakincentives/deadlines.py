"""Deadlines: the wall-clock moment by which a run must be over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from .clock import SYSTEM_CLOCK, Clock
from .errors import DeadlineExceededError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment in the future; `ValueError` for a naive or past one.

    >>> from datetime import timedelta
    >>> Deadline.after(timedelta(minutes=5)).expired
    False
    """

    expires_at: datetime
    clock: Clock = field(default=SYSTEM_CLOCK, repr=False, compare=False)
    _until: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None or self.expires_at.utcoffset() is None:
            raise ValueError("Deadline needs an aware time: use datetime.now(UTC) + timedelta(...).")
        if self.expires_at <= self.clock.now():
            raise ValueError(f"Deadline {self.expires_at.isoformat()} has passed already.")
        object.__setattr__(self, "_until", self.expires_at.timestamp())  # every call looks at the time more than once

    @classmethod
    def after(cls, duration: timedelta, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """The deadline that is `duration` from now; `ValueError` unless that is positive and within the calendar."""
        if not isinstance(duration, timedelta):
            raise TypeError(f"Deadline.after takes a timedelta: write timedelta(seconds={duration!r}).")
        try:
            expires_at = clock.now() + duration
        except OverflowError:
            raise ValueError(f"{duration} is longer than the calendar goes; leave it out for no deadline.") from None
        return cls(expires_at, clock)

    def remaining(self) -> timedelta:
        """What is left; zero once the deadline has passed, never negative."""
        return max(self.expires_at - self.clock.now(), timedelta(0))

    def seconds_left(self) -> float:
        """What is left in seconds; 0.0 once the deadline has passed, never negative."""
        left = self._until - self.clock.time()
        return left if left > 0 else 0.0

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.clock.time() >= self._until

    def check(self) -> None:
        """Raise `DeadlineExceededError` when the deadline has passed."""
        if self.expired:
            raise DeadlineExceededError(f"The deadline {self.expires_at.isoformat()} has passed.")


__all__ = ["Deadline"]
