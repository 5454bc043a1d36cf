"""How long to wait before a failed request is sent again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..clock import checked_seconds

# How a request to a model can fail, sorted by what helps: waiting, or a person.


FailureKind = Literal[
    "throttled", "overloaded", "timeout", "connection", "server", "key", "model", "context", "refused", "malformed"
]
"""throttled, overloaded, timeout, connection, server: waiting may help; key: it is missing or wrong; model: it does not
exist; context: the conversation is too long; refused: the request was; malformed: the answer makes no sense."""

_WAITING_HELPS: frozenset[str] = frozenset({"throttled", "overloaded", "timeout", "connection", "server"})


_MAX_RETRY_AFTER = 24 * 3600.0


class RequestFailed(Exception):  # noqa: N818 - between an adapter and the loop; users see PromptEvaluationError
    """Raised by `ProviderAdapter.ask`. The loop waits and asks again where that helps, or ends the evaluation.

    Attributes:
        retry_after: seconds the provider asked to wait, or None; also where that cannot be meant (`sensible_wait`).
    """

    def __init__(self, kind: FailureKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.retry_after = None if retry_after is None else sensible_wait(retry_after)

    @property
    def waiting_helps(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _WAITING_HELPS


def sensible_wait(seconds: float) -> float | None:
    """Seconds that a provider asked to wait, at least 0; None for what cannot be meant: not finite, more than a day."""
    return max(seconds, 0.0) if math.isfinite(seconds) and seconds <= _MAX_RETRY_AFTER else None


@dataclass(frozen=True, slots=True)
class Throttle:
    """Waits that double, with jitter; what the provider asked for (`retry-after`) is never shortened.

    Attributes:
        max_attempts: requests in all for one turn, the first included.
        base: seconds of the first wait.
        max_wait: no wait gets longer by doubling; a provider that asks for more ends the evaluation.
        random: a number from 0 to 1; each wait is between half and all of its length.

    >>> Throttle(base=1, random=lambda: 1.0).wait(3, RequestFailed("overloaded", "busy"))
    4.0
    """

    max_attempts: int = 6
    base: float = 0.5
    max_wait: float = 60.0
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("Throttle needs max_attempts of 1 or more.")
        object.__setattr__(self, "base", checked_seconds("base", self.base, zero=True))
        object.__setattr__(self, "max_wait", checked_seconds("max_wait", self.max_wait, zero=True))

    def wait(self, attempt: int, failure: RequestFailed) -> float | None:
        """Seconds until attempt `attempt + 1`; None when there should be none."""
        if not failure.waiting_helps or attempt >= self.max_attempts:
            return None
        if failure.retry_after is not None:
            # Everybody was told the same moment: come a little later, never sooner.
            return None if failure.retry_after > self.max_wait else failure.retry_after + self.base * self.random() / 4
        return min(self.base * 2.0 ** (attempt - 1), self.max_wait) * (0.5 + self.random() / 2)
