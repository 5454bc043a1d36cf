"""The result of one request of a batch, the phase in which it failed, and whether to try again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, Generic, Literal, NamedTuple, Self, TextIO, TypeVar, cast, final, get_args

from ..crash_log import log_crash
from ..errors import PromptEvaluationError
from ..run_context import RunContext
from ..session import Session

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

Phase = Literal["prepare", "request", "response", "tool", "budget", "deadline"]
"""Where a request failed: in `prepare`, or as `PromptEvaluationError.phase` says."""

_logger = logging.getLogger(__name__)
_PHASES: frozenset[str] = frozenset(get_args(Phase))
_LONGEST_WAIT = 60.0


@final
@dataclass(slots=True)
class LoopResult(Generic[RequestT, ResponseT]):
    """The result of one request.

    Attributes:
        response: the answer; None when there is an error.
        session: what the last attempt left behind, also when it failed; None when `prepare` did.
        error: why there is no answer.
        duration: seconds it took, all attempts and the waits between them together.
        run_context: the ids of the last attempt, as they stand in its events and log lines.
    """

    request: RequestT
    response: ResponseT | None = None
    session: Session | None = field(default=None, repr=False)
    error: Exception | None = None
    duration: float = 0.0
    run_context: RunContext = field(default_factory=RunContext, repr=False)

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.error is None

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        return self.run_context.attempt

    @property
    def phase(self) -> Phase | None:
        """Where it failed; None when it did not, and for what no new attempt can mend, such as a failed undo."""
        if self.error is None:
            return None
        if self.session is None:
            return "prepare"
        phase = self.error.phase if isinstance(self.error, PromptEvaluationError) else None
        return cast("Phase", phase) if phase in _PHASES else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How many more attempts a failed request has, by the phase in which it failed.

    An attempt begins with `prepare`, so with a new session, and keeps the request id; calls that succeeded in an
    earlier one are made again, unless an effect ledger remembers them under a key that is the same in both sessions.
    Where `run_id=` names the runs of a batch, an attempt goes on where the one before failed instead.

    Attributes:
        prepare: `prepare` raised.
        request: the request to the model failed, after the adapter's own attempts.
        response: it did not give an answer that could be used.
        tool: a tool ended the evaluation.
        budget: the tokens were used up.
        deadline: the time was; a `timedelta` in the config begins anew with each attempt.
        delay: seconds before the second attempt; each further wait is twice as long, up to a minute.

    >>> Retries(request=2, prepare=1).of("request")
    2
    """

    prepare: int = 0
    request: int = 0
    response: int = 0
    tool: int = 0
    budget: int = 0
    deadline: int = 0
    delay: float = 1.0

    def __post_init__(self) -> None:
        if min(self.delay, *(self.of(cast("Phase", phase)) for phase in _PHASES)) < 0:
            raise ValueError("Retries takes numbers of 0 or more.")

    def of(self, phase: Phase) -> int:
        """How many more attempts there are for a phase."""
        return getattr(self, phase)


NO_RETRIES = Retries()


@final
class Attempts:
    """Counts the attempts of one request, and logs how it failed: one line for the last one."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._used: dict[Phase, int] = {}

    def failed(self, result: LoopResult[Any, Any], error: Exception) -> float | None:
        """Note the error. Seconds to wait before the next attempt, for which the result is ready; None for the last."""
        result.error = error
        phase = result.phase
        if phase is None or self._used.get(phase, 0) >= self._retries.of(phase):
            what = f"A request failed ({phase or 'no phase'}, attempt {result.attempts})"
            log_crash(_logger, what, error, result.run_context.log_extra())
            return None
        what = f"A request failed ({phase}, attempt {result.attempts}) and is tried again"
        log_crash(_logger, what, error, result.run_context.log_extra(), level=logging.INFO)
        self._used[phase] = self._used.get(phase, 0) + 1
        delay = min(self._retries.delay * 2 ** (result.attempts - 1), _LONGEST_WAIT)
        result.error = result.session = None
        result.run_context = result.run_context.next_attempt()
        return delay


# How far a batch of requests is: counted, told to a function, or shown as one line of a terminal.


class LoopProgress(NamedTuple):
    """How far a run is. `total` is None when the requests cannot be counted; `last` is what has just ended."""

    done: int
    failed: int
    running: int
    total: int | None
    last: LoopResult[Any, Any]

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}{of} done{failed}" + (f", {self.running} running" if self.running else "")


ProgressTold = Callable[[LoopProgress], object]


@final
class ProgressCounter:
    """Counts the requests of a run and reports its progress. Used from one thread."""

    def __init__(self, requests: object, progress: ProgressTold | bool | None) -> None:
        self._total = length_hint(requests, 0) or None if not isinstance(requests, Iterator) else None
        self._done = self._failed = self._running = 0
        self._line = _Line(sys.stderr) if progress is True or (progress is None and sys.stderr.isatty()) else None
        self._report = progress if callable(progress) else self._line

    def begin(self) -> None:
        """One more is running."""
        self._running += 1

    def end(self, result: LoopResult[Any, Any]) -> None:
        """One is over."""
        self._running -= 1
        self._done += 1
        self._failed += not result.ok
        if self._report is None:
            return
        try:
            self._report(LoopProgress(self._done, self._failed, self._running, self._total, result))
        except Exception:
            _logger.exception("The function that is told of progress raised")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._line is not None:
            self._line.end()


@final
class _Line:
    """One line of a terminal that is overwritten as the run progresses."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def __call__(self, progress: LoopProgress) -> None:
        text = str(progress)
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def end(self) -> None:
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
