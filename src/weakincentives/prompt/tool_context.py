"""What a handler may touch while its call runs."""

from __future__ import annotations

from typing import Any, NoReturn, final

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..filesystem.protocol import Filesystem
from ..run_context import Heartbeat, RunContext


class _Fields:
    """The fields while they can still be set. See `ToolContext.__new__`."""

    __slots__ = (
        "_budget_tracker",
        "adapter",
        "call_id",
        "deadline",
        "heartbeat",
        "idempotency_key",
        "prompt",
        "rendered_prompt",
        "resources",
        "run_context",
        "session",
        "tool_name",
    )

    prompt: Any
    rendered_prompt: Any
    adapter: Any
    session: Any
    deadline: Deadline | None
    resources: Any
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    call_id: str | None
    tool_name: str | None
    idempotency_key: str | None
    _budget_tracker: BudgetTracker | None


@final
class ToolContext(_Fields):
    """Everything a handler may touch; made for one call and worthless after it.

    Once the call is over, writes through `session`, its dispatcher and `filesystem` raise `StaleCallError`. Every
    field has a default, so that a test names only what its handler uses. Fields cannot be set.
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0917 - the documents' order; nobody passes them by position
        cls,
        prompt: Any = None,
        rendered_prompt: Any = None,
        adapter: Any = None,
        session: Any = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        resources: Any = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        *,
        call_id: str | None = None,
        tool_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> ToolContext:
        """Fill the fields, then close them."""
        # One is made for every call: a frozen dataclass takes three times as long as filling the fields and
        # closing the door behind them.
        self: Any = object.__new__(_Fields)
        self.prompt = prompt
        self.rendered_prompt = rendered_prompt
        self.adapter = adapter
        self.session = session
        self.deadline = deadline
        self.resources = resources
        self.heartbeat = heartbeat
        self.run_context = run_context
        self.call_id = call_id
        self.tool_name = tool_name
        self.idempotency_key = idempotency_key
        self._budget_tracker = budget_tracker
        self.__class__ = cls
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"ToolContext.{name} cannot be set; make a new ToolContext(...).")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"ToolContext.{name} cannot be deleted.")

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, or None."""
        return None if self.resources is None else self.resources.get(Filesystem, None)

    @property
    def budget_tracker(self) -> BudgetTracker | None:
        """The tracker it was given, or the bound one, or None."""
        if self._budget_tracker is not None or self.resources is None:
            return self._budget_tracker
        return self.resources.get(BudgetTracker, None)

    def beat(self) -> None:
        """Say that the work is alive; does nothing without a heartbeat."""
        if self.heartbeat is not None:
            self.heartbeat.beat()


__all__ = ["ToolContext"]
