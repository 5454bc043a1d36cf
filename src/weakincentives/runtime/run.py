"""What stays the same over the calls of one evaluation, and the little that is remembered between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from ..budget import BudgetTracker, counted_in
from ..clock import Clock
from ..deadlines import Deadline
from ..errors import StaleCallError
from ..event_loop import EventLoop
from ..fence import ReadOnlyGuard
from ..prompt.tree import BoundTool
from ..resources import ResourceContext, Scope
from ..run_context import Heartbeat, RunContext
from ..session import Session
from ..session.savepoints import unowned_recorder
from .call import Refused
from .call_memory import CallMemory
from .ledger.memory import session_ledger
from .ledger.protocol import Ledger
from .locks import CallLock
from .transactions import Savepoint, locks_of
from .truncation import CutResults


@final
class Run:
    """One evaluation's world: tools, session, resources, limits. Shared by its calls, from any thread."""

    __slots__ = (
        "_ledger", "_parts", "_read_only", "adapter", "adapter_name", "asked", "budget_tracker", "clock", "cuts",
        "deadline", "has_eager_tools", "heartbeat", "hide_errors", "locks", "log_extra", "memory", "monotonic",
        "prompt", "prompt_name", "record", "rendered_prompt", "resources", "run_context", "session", "session_id",
        "tell", "time", "tools",
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
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        hide_errors: bool = False,
        effect_ledger: Ledger | None = None,
    ) -> None:
        self.tools = dict(tools)
        self.session = session
        self.resources = resources
        self.prompt = prompt
        self.rendered_prompt = rendered_prompt
        self.adapter = adapter
        self.deadline = deadline
        self.budget_tracker = budget_tracker
        self.heartbeat = heartbeat
        self.run_context = run_context
        self.log_extra = {} if run_context is None else run_context.log_extra()
        self.hide_errors = hide_errors
        self.clock: Clock = session.clock
        self.session_id = session.session_id
        # Looked up once, because every call needs them.
        self.monotonic = self.clock.monotonic
        self.time = self.clock.time
        self.record = unowned_recorder(session)
        self.tell = session.dispatcher.dispatch
        self.has_eager_tools = resources.has_eager_tools
        self.prompt_name: str | None = getattr(prompt, "name", None)
        self.adapter_name: str | None = None if adapter is None else getattr(adapter, "name", type(adapter).__name__)
        self.memory = CallMemory()
        self.cuts = CutResults(self.tools)
        self.asked: dict[tuple[str, str | bytes], Any] = {}
        self._ledger = effect_ledger
        self._parts: tuple[Any, ...] | None = None
        self._read_only: dict[str, ReadOnlyGuard] = {}
        self.locks: tuple[CallLock, ...] = ()

    def savepoint(self) -> Savepoint:
        """A savepoint over everything that takes part in a call; who that is changes when a resource is born.

        `Refused` for a call that is begun by a handler that was given up on, on the same session or files.
        """
        parts = self.resources.root.snapshotables  # not through the method: this runs for every tool call
        if parts is not self._parts:
            self._parts, self.locks = parts, locks_of(self.session, self.resources)
        try:
            return Savepoint(self.session, self.resources, self.locks, self.log_extra)
        except StaleCallError:
            raise Refused("refused", "The call around this one is over, so it was not run.") from None

    def read_only_guard(self, tool_name: str) -> ReadOnlyGuard:
        """What refuses the writes of a policy, or of a tool that only reads; one for each tool."""
        guard = self._read_only.get(tool_name)
        if guard is None:
            guard = self._read_only[tool_name] = ReadOnlyGuard(f"The context of '{tool_name}'")
        return guard

    def remaining(self) -> float | None:
        """Seconds until the deadline, or None without one."""
        return None if self.deadline is None else self.deadline.remaining().total_seconds()

    def event_loop(self) -> EventLoop:
        """Where plain code runs what is async: one loop for all of the run, on which its async resources live too."""
        return self.resources.root.event_loop()

    def ledger(self) -> Ledger:
        """The ledger it was given, or one in memory that lives as long as the session."""
        if self._ledger is None:
            self._ledger = session_ledger(self.session)
        return self._ledger


# The tracker of a run that is bound as a resource, beside or instead of one that was passed.


def has_bound_tracker(resources: ResourceContext) -> bool:
    """Whether a `BudgetTracker` is bound for the whole run; one for each call, or each use, counts only for itself."""
    binding = resources.root.bindings.get(BudgetTracker)
    return binding is not None and binding.scope is Scope.SINGLETON


def count_in(run: Run, bound: BudgetTracker) -> None:
    """Have the bound tracker count and stop from now on, together with the one that was passed."""
    run.budget_tracker = tracker = counted_in(None, run.budget_tracker, bound)
    given = (run.deadline, None if tracker is None else tracker.deadline)
    run.deadline = min((each for each in given if each is not None), key=lambda each: each.expires_at, default=None)
