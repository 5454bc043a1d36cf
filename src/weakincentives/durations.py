"""Durations in seconds, checked where they are given: NaN is never over, and infinity is too long for a timer."""

from __future__ import annotations

from typing import Final

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
    """The duration that was given as `name`; with `zero` it may be none at all.

    `TypeError` when it is not a number, `ValueError` when it is not finite, too small or longer than `MAX_SECONDS`.

    >>> checked_seconds("timeout", 5)
    5.0
    >>> checked_seconds("timeout", float("nan"))
    Traceback (most recent call last):
    ...
    ValueError: timeout must be a positive number of seconds of at most 1,000,000,000, got nan.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}.")
    if 0 < value <= MAX_SECONDS or (zero and value == 0):
        return float(value)
    least = "number of seconds from 0 to" if zero else "positive number of seconds of at most"
    raise ValueError(f"{name} must be a {least} {MAX_SECONDS:,.0f}, got {_shown(value)}.")


def _shown(value: float) -> str:
    return repr(value) if abs(value) < MAX_SECONDS * MAX_SECONDS or not isinstance(value, int) else "a huge integer"


__all__ = ["MAX_SECONDS", "checked_seconds", "is_finite_number"]
