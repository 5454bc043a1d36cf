"""How to run: every limit and listener of a run as one value, from the keywords of `evaluate` down to the engine.

`RunOptions` is what a caller asked for. `StartedOptions` is what the engine reads, made when a run begins: a duration
has become a deadline, a budget has its tracker. They are two types so that no stage can see an option that was not
started yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol, TypedDict, TypeVar, cast, final

from ..budget import Budget, BudgetTracker
from ..deadlines import Deadline
from ..prompt.events import ToolInvoked
from ..prompt.tool import Tool
from ..run_context import Heartbeat, RunContext
from ..waiting import Waiting
from .call import ToolCall
from .ledger.protocol import Ledger
from .messages import History, Message
from .progress import OnEvent
from .transactions import Savepoint
from .truncation import TruncatedResults


class CallRecorder(Protocol):
    """Puts the calls of a run on record; see `record`."""

    @property
    def run_id(self) -> str:
        """Which run it is."""
        ...

    @property
    def step(self) -> int:
        """The last step that is on record, or was served from there."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether nothing more is recorded."""
        ...

    def stop(self, *, lost: bool = False) -> None:
        """Record nothing more: the run was interrupted. A recorder whose `stopped` stays False still records.

        Once something is `lost`, because it happened and could not be recorded, none does.
        """
        ...

    async def started(self, call: ToolCall, tool: Tool[Any, Any], savepoint: Savepoint, waiting: Waiting) -> None:
        """Record that a handler is about to run, where it could leave the machine; `RecordError` when that fails."""
        ...

    async def ended(  # noqa: PLR0917 - all that is known of a call
        self,
        event: ToolInvoked,
        call: ToolCall,
        tool: Tool[Any, Any] | None,
        savepoint: Savepoint | None,
        truncated: TruncatedResults,
        waiting: Waiting,
        **more: Any,
    ) -> None:
        """Record how a call ended; it lasts when this returns. Raises `RecordError` when it cannot be recorded."""
        ...

    def step_of(self, event: ToolInvoked) -> int | None:
        """The step that has the end of that call, also when `ended` was cancelled; None when it is not on record."""
        ...

    def run_inside(self, call_id: str, name: str) -> RunToRecord | None:
        """The run of an agent that works inside the call, on record beside this one; None when nothing is recorded."""
        ...


class RunToRecord(Protocol):
    """A run in a store, such as `store.run("ticket-4711")`."""

    @property
    def run_id(self) -> str:
        """Which run it is."""
        ...


class ExecutorKeywords(TypedDict, total=False):
    """The fields of `ExecutorOptions` as keywords, for `Unpack`."""

    deadline: Deadline | timedelta | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    effect_ledger: Ledger | None
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    hide_errors: bool | None


class RunKeywords(ExecutorKeywords, total=False):
    """The fields of `RunOptions` as keywords, for `Unpack`."""

    on_event: OnEvent | None
    history: History | Sequence[Message] | None
    record: RunToRecord | None
    max_turns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """The options that hold for tool calls, with or without a model that makes them. None leaves an option out.

    Attributes:
        deadline: when the run must be over, or how long it may take from its beginning.
        budget: the tokens it may spend.
        budget_tracker: the same, counted together with other runs. Both hold, and so does a `BudgetTracker` that is
            bound among the prompt's resources.
        effect_ledger: remembers the effects of tools with an `IdempotencyConfig`; its owner closes it. Without one they
            are remembered in memory, for the session alone, and a warning says so.
        heartbeat: beats while the run makes progress.
        run_context: correlation ids for events, handlers and log lines.
        hide_errors: tell the model only that something unexpected happened, not the text of the exception.
    """

    deadline: Deadline | timedelta | None = None
    budget: Budget | None = None
    budget_tracker: BudgetTracker | None = None
    effect_ledger: Ledger | None = None
    heartbeat: Heartbeat | None = None
    run_context: RunContext | None = None
    hide_errors: bool | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and not isinstance(self.deadline, Deadline | timedelta):
            raise TypeError(
                f"deadline= takes a Deadline or a timedelta, got {self.deadline!r}; write timedelta(seconds=...)."
            )
        if isinstance(self.deadline, timedelta) and self.deadline <= timedelta(0):
            raise ValueError(f"deadline= leaves no time: {self.deadline}.")

    def keywords(self) -> ExecutorKeywords:
        """The options that are set, as keywords for a function that takes them; a duration begins now."""
        return cast("ExecutorKeywords", _keywords(self, _EXECUTOR_NAMES))

    def started(self) -> StartedOptions:
        """What holds for a run that begins now."""
        return self._started()

    def _started(self, **more: Any) -> StartedOptions:
        tracker = counted_in(self.budget, self.budget_tracker)
        return StartedOptions(
            deadline=earliest((_begun(self.deadline), None if tracker is None else tracker.deadline)),
            budget_tracker=tracker,
            effect_ledger=self.effect_ledger,
            heartbeat=self.heartbeat,
            run_context=self.run_context,
            hide_errors=bool(self.hide_errors),
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ExecutorOptions):
    """Everything that says how one prompt is evaluated; the fields are the keywords of `evaluate`.

    Attributes:
        on_event: called with the progress of the run; see `weakincentives.runtime.progress`.
        history: an earlier conversation to continue. Calls that it left open are answered by `tool_results`, by the
            session's log or by the ledger; a call that none of them knows has an unknown outcome.
        record: where to record this run, such as `store.run("ticket-4711")`. What is on record is not done again.
        max_turns: how often the model may be asked, instead of what the adapter says.

    >>> usual = RunOptions(deadline=timedelta(minutes=5), hide_errors=True)
    >>> RunOptions(deadline=timedelta(minutes=1)).over(usual).hide_errors
    True
    """

    on_event: OnEvent | None = None
    history: History | Sequence[Message] | None = None
    record: RunToRecord | None = None
    max_turns: int | None = None

    def __post_init__(self) -> None:
        ExecutorOptions.__post_init__(self)  # zero-argument super() fails in slotted dataclasses on Python 3.11
        if self.max_turns is not None and self.max_turns < 1:
            raise ValueError(f"max_turns must be 1 or more, got {self.max_turns}.")

    def over(self, other: RunOptions) -> RunOptions:
        """These options where they are set, the other's elsewhere."""
        values = zip(_RUN_NAMES, _run_values(self), _run_values(other), strict=True)
        return RunOptions(**{name: theirs if own is None else own for name, own, theirs in values})

    def keywords(self) -> RunKeywords:
        """The options that are set, as keywords for `evaluate`; a duration begins now."""
        return cast("RunKeywords", _keywords(self, _RUN_NAMES))

    def started(self) -> StartedOptions:
        """What holds for a run that begins now."""
        return self._started(on_event=self.on_event, history=History.of(self.history), max_turns=self.max_turns)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StartedOptions:
    """The options of a run under way: what the engine reads.

    Attributes:
        deadline: the earliest of the one that was passed and those of the budgets.
        budget_tracker: counts for the budget and for the tracker that was passed.
    """

    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    effect_ledger: Ledger | None = None
    heartbeat: Heartbeat | None = None
    run_context: RunContext | None = None
    hide_errors: bool = False
    on_event: OnEvent | None = None
    history: History = History()  # noqa: RUF009 - immutable
    recorder: CallRecorder | None = None
    max_turns: int | None = None

    def replace(self, **changes: Any) -> StartedOptions:
        """A copy with other values in these fields."""
        return StartedOptions(**{**{field.name: getattr(self, field.name) for field in fields(self)}, **changes})


# Looked up once: each request of a loop merges options several times.
_EXECUTOR_NAMES = tuple(field.name for field in fields(ExecutorOptions))
_RUN_NAMES = tuple(field.name for field in fields(RunOptions))
_run_values = attrgetter(*_RUN_NAMES)

OptionsT = TypeVar("OptionsT", bound=ExecutorOptions)


def options_from(
    options_type: type[OptionsT], keywords: Mapping[str, Any], *, function: str, others: Iterable[str] = ()
) -> OptionsT:
    """The options that a function was given by name; `TypeError` names the function and what it takes.

    `others` are the keywords of the function that are not options.
    """
    known = options_type.__dataclass_fields__
    for name in keywords:
        if name not in known:
            names = ", ".join((*others, *known))
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. It takes: {names}.")
    return options_type(**keywords)


def run_id_of(options: RunOptions) -> str | None:
    """Which run these options are for: the one on record, or that of the ids; None when there is neither."""
    if options.record is not None:
        return options.record.run_id
    return None if options.run_context is None else options.run_context.run_id


def earliest(deadlines: Iterable[Deadline | None]) -> Deadline | None:
    """The deadline that passes first; None when there is none."""
    return min((each for each in deadlines if each is not None), key=lambda each: each.expires_at, default=None)


def counted_in(budget: Budget | None, *trackers: BudgetTracker | None) -> BudgetTracker | None:
    """One tracker that counts in all of these and stops for each of them; None when there is nothing to count for.

    A single tracker is that tracker itself. A budget has a tracker of its own, within the others.
    """
    known = list(dict.fromkeys(tracker for tracker in trackers if tracker is not None))
    if budget is None and len(known) < 2:
        return known[0] if known else None
    return BudgetTracker(known[0].budget if budget is None else budget, within=known)


def _begun(deadline: Deadline | timedelta | None) -> Deadline | None:
    return Deadline.after(deadline) if isinstance(deadline, timedelta) else deadline


def _keywords(options: ExecutorOptions, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    values["deadline"] = _begun(options.deadline)
    return {name: value for name, value in values.items() if value is not None}


__all__ = [
    "CallRecorder",
    "ExecutorKeywords",
    "ExecutorOptions",
    "RunKeywords",
    "RunOptions",
    "RunToRecord",
    "StartedOptions",
    "counted_in",
    "earliest",
    "options_from",
    "run_id_of",
]
