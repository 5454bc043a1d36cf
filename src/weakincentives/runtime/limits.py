"""Users' code around a handler: policies, reducers, `render` and subscribers, within the time limits of the call.

A tool's timeout holds for each step, the run's deadline for all of them. Steps after the handler have at least a
second: what a handler did in time is not undone because the deadline passes while its result is recorded. The same
holds for subscribers that are told of a call that was not run.

Without limits a plain function is simply called. With them it runs in a worker thread, as a handler does, and is given
up on when its time is over. Reducers hold the session's lock, so they are never given up on, but the call is undone
when they took too long.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple, final

from ..deadlines import Deadline
from ..prompt.events import Outcome
from ..prompt.policy import is_awaitable
from ..prompt.tool import Tool
from ..waiting import OutOfTime, Waiting
from .run import Run

_START = 60.0
"""Seconds that a worker process may take to start."""

_FOR_EVER = 365.0 * 24 * 3600
"""The longest that anything waits: locks refuse to wait for centuries."""


class HandlerLimits(NamedTuple):
    """A handler's time limit: its own timeout, bounded by the run's deadline."""

    timeout: float | None
    deadline: Deadline | None

    def seconds(self) -> float | None:
        """What is left from now on for a handler that begins now; None for no limit."""
        remaining = self.remaining()
        if self.timeout is None or (remaining is not None and remaining < self.timeout):
            return remaining
        return min(self.timeout, _FOR_EVER)

    def outcome(self) -> Outcome:
        """Which of the two a handler that begins now would exceed."""
        remaining = self.remaining()
        return (
            "timeout" if self.timeout is not None and (remaining is None or self.timeout <= remaining) else "deadline"
        )

    def start(self) -> float:
        """How long a worker process may take to start; that is not the handler's time, but it is the run's."""
        remaining = self.remaining()
        return _START if remaining is None else min(remaining, _START)

    def remaining(self) -> float | None:
        """What is left of the run."""
        return None if self.deadline is None else min(self.deadline.seconds_left(), _FOR_EVER)


@final
class Steps:
    """How the steps of one call are run. `OutOfTime` from any of them means that the call must not be kept.

    `limited` says whether there are limits at all: if not, only what is async has to be waited for.
    """

    __slots__ = ("_event_loop", "_least", "_limits", "_waiting", "limited")

    def __init__(self, tool: Tool[Any, Any] | None, run: Run, waiting: Waiting, *, least: float = 0.0) -> None:
        timeout = None if tool is None else tool.timeout
        self.limited: bool = timeout is not None or run.deadline is not None
        self._limits = HandlerLimits(timeout, run.deadline) if self.limited else NO_LIMITS
        self._least = least
        self._waiting = waiting
        self._event_loop = run.event_loop

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it; it is given up on when its time is over.

        Gives an awaitable of what it returns. Without limits a plain function's result is given as it is: a coroutine
        around it would take longer than most of them do.
        """
        if not self.limited:
            result = function(*arguments)
            return (
                self._waiting.finish(result, self._event_loop)
                if result is not None and is_awaitable(result)
                else result
            )
        return self._waiting.within(
            self._seconds(),
            lambda: function(*arguments),
            self._event_loop,
            is_async=inspect.iscoroutinefunction(function),
        )

    def run_here(self, function: Callable[[Any], object], argument: object) -> None:
        """Call it in this thread, however long it takes; `OutOfTime` afterwards if that was too long."""
        if not self.limited:
            function(argument)
            return
        until = monotonic() + self._seconds()
        function(argument)
        if monotonic() > until:
            raise OutOfTime

    def _seconds(self) -> float:
        seconds = self._limits.seconds()
        assert seconds is not None
        return max(seconds, self._least)

    def exceeded(self) -> Outcome:
        """Which limit a step that ran out of time has exceeded."""
        deadline = self._limits.deadline
        return "deadline" if deadline is not None and deadline.expired else "timeout"


NO_LIMITS = HandlerLimits(None, None)

AFTER_HANDLER = 1.0
"""The minimum of seconds that each step after a handler has."""
