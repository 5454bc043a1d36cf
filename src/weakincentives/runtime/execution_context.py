"""The surroundings of tool calls as one value, for code that passes them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..prompt.prompt import Prompt
from ..prompt.render import RenderedPrompt
from ..run_context import Heartbeat, RunContext
from ..session import Session
from .executor import ToolExecutor
from .ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionContext:
    """Everything a `ToolExecutor` is made of; the fields are its arguments.

    >>> from weakincentives.prompt import Prompt, PromptTemplate
    >>> from weakincentives.runtime import EffectLedger
    >>> prompt = Prompt(PromptTemplate(ns="demo", key="empty"))
    >>> context = ToolExecutionContext(prompt=prompt, session=Session(), effect_ledger=EffectLedger())
    >>> with context.executor() as executor:
    ...     executor.tools
    ()
    """

    prompt: Prompt[Any]
    session: Session
    adapter: object = None
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    heartbeat: Heartbeat | None = None
    run_context: RunContext | None = None
    rendered_prompt: RenderedPrompt[Any] | None = None
    hide_errors: bool = False
    effect_ledger: Ledger | None = None

    def executor(self) -> ToolExecutor:
        """A new executor, the caller's to close."""
        return ToolExecutor(**{name: getattr(self, name) for name in self.__slots__})


__all__ = ["ToolExecutionContext"]
