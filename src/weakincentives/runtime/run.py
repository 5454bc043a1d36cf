"""What the calls of one evaluation share, and what is remembered between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import count
from operator import attrgetter
from typing import Any, cast, final

from pydantic import BaseModel

from ..budget import BudgetTracker
from ..clock import Clock
from ..deadlines import Deadline
from ..errors import StaleCallError
from ..event_loop import EventLoop
from ..fence import ReadOnlyGuard
from ..filesystem.views import FilesView, GuardedFilesystem
from ..prompt.tool import Tool
from ..prompt.tree import BoundTool
from ..resources import ResourceContext, Scope
from ..run_context import Heartbeat, RunContext
from ..session import Dispatcher, DispatchResult, InProcessDispatcher, Session
from ..session.savepoints import unowned_recorder
from .call import MAX_ID_CHARS, Refused, ToolCall, short_id
from .ledger.memory import session_ledger
from .ledger.protocol import Ledger
from .locks import CallLock, locks_of
from .options import CallRecorder, StartedOptions, counted_in, earliest
from .progress import OnEvent
from .transactions import Savepoint
from .truncation import TruncatedResults


@final
class Run:
    """What the calls of one evaluation share: tools, session, resources, limits. Safe to use from any thread."""

    __slots__ = (
        "_parts", "_read_only", "adapter", "adapter_name", "budget_tracker", "clock", "deadline",
        "dispatch_if_unsubscribed", "files_view", "has_eager_tools", "heartbeat", "hide_errors", "locks", "log_extra",
        "memory", "monotonic", "on_event", "passed_ledger", "prompt", "prompt_name", "record", "recorder",
        "rendered_prompt", "resources", "run_context", "session", "session_id", "tell", "time", "tools", "truncated",
    )  # fmt: skip

    def __init__(
        self,
        *,
        tools: Mapping[str, BoundTool],
        session: Session,
        resources: ResourceContext,
        prompt: Any = None,
        rendered_prompt: Any = None,
        adapter: Any = None,
        options: StartedOptions,
    ) -> None:
        self.tools: dict[str, BoundTool] = dict(tools)
        self.session: Session = session
        self.resources: ResourceContext = resources
        self.prompt: Any = prompt
        self.rendered_prompt: Any = rendered_prompt
        self.adapter: Any = adapter
        self.deadline: Deadline | None = options.deadline
        self.budget_tracker: BudgetTracker | None = options.budget_tracker
        self.heartbeat: Heartbeat | None = options.heartbeat
        self.run_context: RunContext | None = options.run_context
        self.log_extra: dict[str, str | int] = {} if options.run_context is None else options.run_context.log_extra()
        self.hide_errors: bool = options.hide_errors
        self.recorder: CallRecorder | None = options.recorder
        self.on_event: OnEvent | None = None
        self.clock: Clock = session.clock
        self.session_id: str = session.session_id
        # Looked up once, because every call needs them.
        self.monotonic: Callable[[], float] = self.clock.monotonic
        self.time: Callable[[], float] = self.clock.time
        self.record: Callable[[object], None] = unowned_recorder(session)
        self.tell: Callable[[object], DispatchResult] = session.dispatcher.dispatch
        self.dispatch_if_unsubscribed: Callable[[object], DispatchResult | None] = _dispatch_if_unsubscribed(
            session.dispatcher
        )
        self.has_eager_tools: bool = resources.has_eager_tools
        self.prompt_name: str | None = getattr(prompt, "name", None)
        self.adapter_name: str | None = None if adapter is None else getattr(adapter, "name", type(adapter).__name__)
        self.memory: CallMemory = CallMemory()
        self.truncated: TruncatedResults = TruncatedResults(self.tools)
        self.passed_ledger: Ledger | None = options.effect_ledger
        self._parts: tuple[Any, ...] | None = None
        self._read_only: dict[str, tuple[ReadOnlyGuard, Session]] = {}
        self.locks: tuple[CallLock, ...] = ()
        self.files_view: FilesView = GuardedFilesystem  # a record of what is read has its own

    def savepoint(self) -> Savepoint:
        """A savepoint over everything that takes part in a call; the participants change when a resource is built.

        `Refused` for a call made by an abandoned handler on the same session or files.
        """
        parts = self.resources.root.snapshotables  # not through the method: this runs for every tool call
        if parts is not self._parts:
            self._parts, self.locks = parts, locks_of(self.session, self.resources)
        try:
            return Savepoint(self.session, self.resources, self.locks, self.log_extra)
        except StaleCallError:
            raise Refused("refused", "The call around this one is over, so it was not run.") from None

    def read_only(self, tool_name: str) -> tuple[ReadOnlyGuard, Session]:
        """What refuses the writes of a policy, or of a tool that only reads, and the session behind it.

        One pair for each tool: neither is ever closed.
        """
        found = self._read_only.get(tool_name)
        if found is None:
            guard = ReadOnlyGuard(f"The context of '{tool_name}'")
            found = self._read_only[tool_name] = guard, self.session.guarded(guard)
        return found

    def remaining(self) -> float | None:
        """Seconds until the deadline, or None without one."""
        return None if self.deadline is None else self.deadline.seconds_left()

    def event_loop(self) -> EventLoop:
        """Where synchronous code runs what is async: one loop for the run, on which its async resources live too."""
        return self.resources.root.event_loop()

    def ledger(self) -> Ledger:
        """The ledger it was given, or one in memory that lives as long as the session."""
        return session_ledger(self.session) if self.passed_ledger is None else self.passed_ledger


def _dispatch_if_unsubscribed(dispatcher: Dispatcher) -> Callable[[object], DispatchResult | None]:
    """Dispatches events without subscribers; gives None for others, and for a dispatcher of another class."""
    return dispatcher.dispatch_if_unsubscribed if isinstance(dispatcher, InProcessDispatcher) else lambda _: None


# The tracker of a run that is bound as a resource, beside or instead of one that was passed.


def has_bound_tracker(resources: ResourceContext) -> bool:
    """Whether a `BudgetTracker` is bound for the whole run; one for each call, or each use, counts only for itself."""
    binding = resources.root.bindings.get(BudgetTracker)
    return binding is not None and binding.scope is Scope.SINGLETON


def count_in(run: Run, bound: BudgetTracker) -> None:
    """Have the bound tracker count and stop from now on, together with the one that was passed."""
    run.budget_tracker = counted_in(None, run.budget_tracker, bound)
    run.deadline = earliest((run.deadline, bound.deadline))


# What is remembered of the calls: their ids, and whether the last ones only repeat themselves.


PastCall = tuple[ToolCall | None, Any, Any]
"""A call, its params and the value of their first field: by these two calls are compared."""

_NO_CALL: PastCall = (None, None, object())


@final
class CallMemory:
    """Which call ids this run has seen, and how often the last calls were repeated.

    Every id is kept as long as the run: a call that was answered is never run again. That is one entry per call, and
    its text is the one the log holds as well. Counting is exact for calls that come one after another; calls from
    several threads at once may be counted in any order.

    Attributes:
        alternated: how many calls in a row were the same as the last but one, and not as the last.
        is_idle: set when these were found to lead nowhere; False again as soon as another call is made.
    """

    __slots__ = ("_before", "_ids", "_in_row", "_is_counting", "_last", "_numbers", "_readers", "alternated", "is_idle")

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._numbers = count()
        self._readers: dict[Tool[Any, Any], Callable[[Any], Any]] = {}
        self._last = self._before = _NO_CALL
        self._is_counting = False
        self._in_row = 1
        self.alternated: int = 0
        self.is_idle: bool = False

    def knows(self, call_id: str) -> bool:
        """Whether a call with this id was brought."""
        return call_id in self._ids

    def is_new(self, call_id: str) -> bool:
        """Remember an id; False when it was there already."""
        number = next(self._numbers)
        return self._ids.setdefault(call_id, number) == number

    def refusal_of(self, call_id: str) -> Refused | None:
        """Why a call with this id must not run, or None; the id is remembered."""
        if len(call_id) <= MAX_ID_CHARS:
            number = next(self._numbers)
            # One step, so that of two threads with one id only one is first.
            if self._ids.setdefault(call_id, number) == number:
                return None
        if len(call_id) <= MAX_ID_CHARS or not self.is_new(short_id(call_id)):
            text = f"The id {call_id[:100]!r} was used before, so this call was not run."
            return Refused("invalid", text, duplicate=True)
        return Refused(
            "invalid",
            f"The id of the call has {len(call_id)} characters, so it was not run.\n"
            f"Send every call with an id of at most {MAX_ID_CHARS} characters.",
        )

    def repeats(self, call: ToolCall, params: Any, tool: Tool[Any, Any], limit: int) -> int:
        """How many times in a row this very call was made, this time included; 2 counts as 1 unless it is the limit.

        Calls are the same when their tool is and the fields of their params are equal, or their text. Also counts
        calls that are made in turn with one other; see `in_turn`.
        """
        try:
            first = self._readers[tool](params)
        except KeyError:
            first = self._reader(tool)(params)
        before = self._before
        self._before = self._last
        self._last = (call, params, first)
        # The last but one is the same in a row of three and when two calls alternate, and another one nearly always
        # else. Then its first field differs, as a rule: that is all an ordinary call pays for.
        try:
            if first != before[2] and not self._is_counting and limit != 2:
                return 1
        except Exception:  # noqa: BLE001, S110 - fields may hold anything; below they are compared with care
            pass
        return self._count(before, limit)

    def _count(self, before: PastCall, limit: int) -> int:
        last, this = self._before, self._last
        in_row, alternated = 1, 0
        if _is_same(this, before):
            if _is_same(this, last):
                in_row = max(self._in_row, 2) + 1
            else:
                alternated = self.alternated + 1
        elif limit == 2 and _is_same(this, last):
            in_row = 2
        self._in_row, self.alternated = in_row, alternated
        self._is_counting = in_row > 1 or alternated > 0
        self.is_idle = self.is_idle and alternated > 0
        return in_row

    def in_turn(self) -> int:
        """How many times the last call was made in turn with one other (A, B, A, B, ...), the last time included."""
        return (self.alternated + 3) // 2 if self.alternated else 1

    def two_in_turn(self) -> tuple[PastCall, PastCall]:
        """The last two calls, newest first; only when `alternated` says that there are two."""
        return self._last, self._before

    def _reader(self, tool: Tool[Any, Any]) -> Callable[[Any], Any]:
        names = _field_names(tool.params_type)
        reader = self._readers[tool] = attrgetter(names[0]) if names else _itself
        return reader


def same_params(one: Any, other: Any) -> bool:
    """Whether two params have equal fields, whatever their class says of equality; False when that cannot be told."""
    kind = cast(type[Any], type(one))
    try:
        if kind is not type(other):
            return bool(one == other)
        values = _fields_reader(kind)
        if values is None:
            return bool(one == other) or is_dataclass(kind)
        return bool(values(one) == values(other))
    except Exception:  # noqa: BLE001 - fields may hold anything
        return False


def _is_same(one: PastCall, other: PastCall) -> bool:
    this, that = one[0], other[0]
    if this is None or that is None or this.name != that.name:
        return False
    text = this.arguments
    return (type(text) is str and text == that.arguments) or same_params(one[1], other[1])


@lru_cache(maxsize=256)
def _fields_reader(kind: Any) -> Callable[[Any], Any] | None:
    names = _field_names(kind)
    return attrgetter(*names) if names else None


def _field_names(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else ()


def _itself(params: Any) -> Any:
    return params
