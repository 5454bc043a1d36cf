"""The correlation ids of a run, and the heartbeat that shows it is alive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import urandom
from typing import Self

from .clock import SYSTEM_CLOCK, Clock
from .interrupts import Lock


def _new_id() -> str:
    return urandom(16).hex()


@dataclass(frozen=True, slots=True)
class RunContext:
    """Correlation ids of one run; they reach handlers, events and logs unchanged.

    `attempt` counts from 1: a batch counts each time that it tries a request again, and a run on record each process
    that goes on with it.
    """

    run_id: str = field(default_factory=_new_id)
    request_id: str = field(default_factory=_new_id)
    session_id: str | None = None
    attempt: int = 1
    worker_id: str = ""
    trace_id: str | None = None
    span_id: str | None = None

    def __post_init__(self) -> None:
        if self.attempt < 1:
            raise ValueError(f"RunContext attempt counts from 1, got {self.attempt}.")

    def next_attempt(self) -> Self:
        """The same request tried again: a new run id, one more attempt."""
        return replace(self, run_id=_new_id(), attempt=self.attempt + 1)

    def log_extra(self) -> dict[str, str | int]:
        """The ids that are set, ready for `logger.info(..., extra=...)`."""
        pairs = {
            "run_id": self.run_id,
            "request_id": self.request_id,
            "session_id": self.session_id,
            "attempt": self.attempt,
            "worker_id": self.worker_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
        }
        return {key: value for key, value in pairs.items() if value is not None and value != ""}


class Heartbeat:
    """Says that long work is alive. Safe to use from any thread.

    Each `beat()` is stamped and told to the listeners in order (a lease extends itself, say). A listener that
    raises makes `beat()` raise: a lost lease must not go unnoticed by the work that depends on it.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = clock.monotonic()
        self._count = 0
        self._listeners: list[Callable[[], object]] = []

    def beat(self) -> None:
        """Record a sign of life."""
        with self._lock:
            self._last = self._clock.monotonic()
            self._count += 1
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    @property
    def count(self) -> int:
        """How many beats there were."""
        return self._count

    def elapsed(self) -> float:
        """Seconds since the last beat, or since construction when there was none."""
        return self._clock.monotonic() - self._last

    def add_listener(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` at every beat; the returned function takes it off again."""
        with self._lock:
            self._listeners.append(listener)

        def remove() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return remove


__all__ = ["Heartbeat", "RunContext"]
