"""Budgets: how much a run may spend, and the tracker that counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from .deadlines import Deadline
from .errors import BudgetExceededError
from .interrupts import Lock


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens spent, in one vocabulary for all providers.

    `cached` is the part of `input` that came from a cache, `reasoning` the part of `output` spent on thinking.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"TokenUsage {name} must be an integer of 0 or more, got {count!r}.")

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run; `None` leaves a dimension open. `ValueError` when nothing is limited."""

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, item.name) is None for item in fields(self)):
            raise ValueError("Budget limits nothing: give a deadline or at least one max_*_tokens.")
        for name in ("max_total_tokens", "max_input_tokens", "max_output_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(f"Budget {name} must be 1 or more, got {limit!r}.")


class BudgetTracker:
    """Counts what a run spends against its `Budget`. Safe to share between threads.

    Usage is recorded under a key (one evaluation, say): a later record under the same key replaces the earlier
    one, so cumulative figures from a provider are not counted twice.

    Args:
        within: trackers of wider budgets. What is recorded here counts there as well, and a limit that is passed there
            is passed here.

    >>> tracker = BudgetTracker(Budget(max_total_tokens=100))
    >>> tracker.record("turn-1", TokenUsage(input=80, output=30))
    >>> tracker.consumed.total
    110
    >>> tracker.check()
    Traceback (most recent call last):
    ...
    weakincentives.errors.BudgetExceededError: The budget of 100 total tokens is used up: 110 spent.
    """

    def __init__(self, budget: Budget, *, within: Iterable[BudgetTracker] = ()) -> None:
        self.budget = budget
        self._within = tuple(within)
        self._lock = Lock()
        self._spent: dict[str, TokenUsage] = {}
        self._total = TokenUsage()

    def record(self, key: str, usage: TokenUsage) -> None:
        """Set what `key` has spent so far."""
        with self._lock:
            before = self._spent.get(key)
            self._spent[key] = usage
            self._total = self._total + usage if before is None else sum(self._spent.values(), TokenUsage())
        for tracker in self._within:
            tracker.record(key, usage)

    @property
    def consumed(self) -> TokenUsage:
        """What all keys have spent together."""
        return self._total

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline, of its own budget and of those it is within."""
        given = (self.budget.deadline, *(tracker.deadline for tracker in self._within))
        return min((each for each in given if each is not None), key=lambda each: each.expires_at, default=None)

    @property
    def by_key(self) -> Mapping[str, TokenUsage]:
        """What each key has spent; a copy."""
        with self._lock:
            return dict(self._spent)

    def check(self) -> None:
        """Raise `BudgetExceededError` or `DeadlineExceededError` when a limit is passed; else do nothing."""
        if self.budget.deadline is not None:
            self.budget.deadline.check()
        spent = self._total
        for dimension, limit, used in (
            ("total", self.budget.max_total_tokens, spent.total),
            ("input", self.budget.max_input_tokens, spent.input),
            ("output", self.budget.max_output_tokens, spent.output),
        ):
            if limit is not None and used > limit:
                raise BudgetExceededError(
                    f"The budget of {limit} {dimension} tokens is used up: {used} spent.",
                    dimension=dimension,
                    consumed=spent,
                )
        for tracker in self._within:
            tracker.check()


__all__ = ["Budget", "BudgetTracker", "TokenUsage"]
