"""What bounds an evaluation: turns, calls, time, tokens. Passing a limit ends it with `PromptEvaluationError`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..budget import Budget, BudgetTracker, TokenUsage, counted_in
from ..clock import checked_seconds
from ..deadlines import Deadline
from ..errors import BudgetExceededError, DeadlineExceededError, PromptEvaluationError
from .request_limits import DEFAULT_SECONDS, MAX_ANSWER_BYTES
from .throttle import Throttle


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """An adapter's own settings, the same for all its evaluations.

    Attributes:
        max_turns: how often the model may be asked in one evaluation.
        output_retries: how often it is told that its final answer could not be parsed.
        max_expansions: how often it may open sections.
        max_calls_per_turn: how many calls one answer may hold; more end the evaluation, and none of them runs.
        request_timeout: seconds one request may take in all, from the first byte sent to the last one read.
        max_answer_bytes: how much a server may send in answer to one request.
        throttle: how failed requests are repeated.
        manual: return at `stop_reason="tool_use"` instead of running the calls.
        hide_errors: tell the model only that something unexpected happened, not the exception's text.
        system: words that stand above every conversation, where the provider has such a place.
    """

    max_turns: int = 50
    output_retries: int = 2
    max_expansions: int = 20
    max_calls_per_turn: int = 256
    request_timeout: float = DEFAULT_SECONDS
    max_answer_bytes: int = MAX_ANSWER_BYTES
    throttle: Throttle = field(default_factory=Throttle)
    manual: bool = False
    hide_errors: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.output_retries < 0 or self.max_expansions < 0:
            raise ValueError("max_turns must be 1 or more, output_retries and max_expansions 0 or more.")
        if self.max_calls_per_turn < 1 or self.max_answer_bytes < 1:
            raise ValueError("max_calls_per_turn and max_answer_bytes must be 1 or more.")
        object.__setattr__(self, "request_timeout", checked_seconds("request_timeout", self.request_timeout))


class Limits:
    """The time and tokens of one evaluation."""

    __slots__ = ("_key", "any", "deadline", "tracker")

    def __init__(
        self, key: str, deadline: Deadline | None, budget: Budget | None, tracker: BudgetTracker | None
    ) -> None:
        self._key = key
        self.deadline = deadline
        self.tracker: BudgetTracker | None = None
        self.any = deadline is not None
        self.count_in(counted_in(budget, tracker))

    def count_in(self, tracker: BudgetTracker | None) -> None:
        """Hold to this tracker from now on; it counts in the one before, where there was one."""
        self.tracker = tracker
        given = (self.deadline, None if tracker is None else tracker.deadline)
        self.deadline = min(
            (each for each in given if each is not None), key=lambda each: each.expires_at, default=None
        )
        self.any = self.deadline is not None or tracker is not None

    def check(self, prompt_name: str) -> None:
        """Raise `PromptEvaluationError`, phase "deadline" or "budget", when a limit is passed."""
        try:
            if self.deadline is not None:
                self.deadline.check()
            if self.tracker is not None:
                self.tracker.check()
        except DeadlineExceededError as error:
            raise PromptEvaluationError(str(error), prompt_name=prompt_name, phase="deadline") from error
        except BudgetExceededError as error:
            raise PromptEvaluationError(str(error), prompt_name=prompt_name, phase="budget") from error

    def seconds(self) -> float | None:
        """What is left until the deadline; None without one."""
        return None if self.deadline is None else self.deadline.remaining().total_seconds()

    def spent(self, usage: TokenUsage) -> None:
        """Record what the evaluation has spent so far."""
        if self.tracker is not None:
            self.tracker.record(self._key, usage)


__all__ = ["Limits", "LoopSettings"]
