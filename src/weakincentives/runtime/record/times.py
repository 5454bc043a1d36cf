"""The clock of a session whose run is recorded: what handlers read from it is kept with their calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import final

from ...clock import Clock
from ...fence import current_owner


@final
class NotedClock:
    """Passes on what another clock says, and keeps it for the row of the call in which it was asked.

    The engine's own readings do not go through it: it has the session's clock from before. Outside of handlers, and
    after `close`, nothing is kept. Safe to use from any thread.

    Attributes:
        run_id: of the run whose calls it keeps them for.
        original: the clock that the session had before.
        clock: the one that is asked; a replay sets another.
    """

    def __init__(self, clock: Clock, run_id: str) -> None:
        self.run_id: str = run_id
        self.original: Clock = clock
        self.clock: Clock = clock
        self._times: dict[str, dict[str, list[float]]] | None = {}

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        now = self.clock.now()
        self._keep("time", now.timestamp())
        return now

    def time(self) -> float:
        """The current time as seconds since the epoch."""
        return self._keep("time", self.clock.time())

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return self._keep("monotonic", self.clock.monotonic())

    def _keep(self, which: str, reading: float) -> float:
        call_id = None if self._times is None else handling(self.run_id)
        if self._times is not None and call_id is not None:
            self._times.setdefault(call_id, {}).setdefault(which, []).append(reading)
        return reading

    def taken(self, call_id: str) -> Mapping[str, list[float]] | None:
        """What was read in a call, in order, for its row; None when nothing was."""
        return None if self._times is None else self._times.pop(call_id, None)

    def close(self) -> None:
        """Keep nothing more."""
        self._times = None


def handling(run_id: str | None = None) -> str | None:
    """The id of the call whose handler this code is part of; that of the outermost, since only that has a row.

    The outermost of all, or of one run.
    """
    owner, call = current_owner(), None
    while owner is not None and owner.holder is not None:
        if run_id is None or (owner.recorder is not None and owner.recorder.run_id == run_id):
            call = getattr(owner.holder, "call", call)
        owner = owner.around
    return None if call is None else call.call_id


__all__ = ["NotedClock", "handling"]
