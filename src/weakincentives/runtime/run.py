"""What stays the same over the calls of one evaluation, and the little that is remembered between them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, final

from ..budget import BudgetTracker
from ..clock import Clock
from ..deadlines import Deadline
from ..prompt.tree import BoundTool
from ..resources import ResourceContext
from ..run_context import Heartbeat, RunContext
from ..session import Session
from .cuts import CutResults

_REMEMBERED_IDS = 1024


@final
class Run:
    """One evaluation's world: tools, session, resources, limits. Shared by its calls, from any thread."""

    __slots__ = (
        "adapter", "adapter_name", "budget_tracker", "clock", "cuts", "deadline", "heartbeat", "hide_errors", "memory",
        "prompt", "prompt_name", "rendered_prompt", "resources", "run_context", "session", "tools",
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
        self.hide_errors = hide_errors
        self.clock: Clock = session.clock
        self.prompt_name: str | None = getattr(prompt, "name", None)
        self.adapter_name: str | None = None if adapter is None else getattr(adapter, "name", type(adapter).__name__)
        self.memory = CallMemory()
        self.cuts = CutResults(self.tools)


@final
class CallMemory:
    """Which ids were answered lately, and how often the last call was repeated."""

    __slots__ = ("_ids", "_last", "_repeats")

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._last: tuple[object, object] | None = None
        self._repeats = 0

    def begin_turn(self) -> None:
        """Forget the ids: they are the model's, unique within one turn."""
        self._ids.clear()

    def is_new(self, call_id: str) -> bool:
        """Remember an id; False when it was there already. Only the newest ones are kept."""
        if call_id in self._ids:
            return False
        self._ids[call_id] = None
        if len(self._ids) > _REMEMBERED_IDS:
            self._ids.popitem(last=False)
        return True

    def repeats(self, name: str, arguments: object) -> int:
        """How many times in a row exactly this was asked for, this time included."""
        asked = (name, arguments)
        self._repeats = self._repeats + 1 if asked == self._last else 1
        self._last = asked
        return self._repeats


__all__ = ["CallMemory", "Run"]
