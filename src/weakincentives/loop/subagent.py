"""A sub-agent as a tool: another prompt is evaluated inside the call, and what it did is kept or undone with the call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast
from uuid import uuid4

from ..budget import Budget, BudgetTracker
from ..errors import PromptEvaluationError
from ..filesystem import Filesystem
from .adapter import Adapter
from ..prompt import Prompt, PromptTemplate, Tool, ToolAnnotations, ToolContext, ToolResult
from ..runtime.options import RunKeywords

P = TypeVar("P")
R = TypeVar("R")

_CLOSED_WORLD = ToolAnnotations(open_world=False)
"""Calls inside it that leave the machine say so themselves."""

_ancestry: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("weakincentives_subagents", default=())
"""The prompts of the sub-agents around this code, the outermost first."""


def subagent(
    *,
    name: str,
    description: str,
    prompt: PromptTemplate[R],
    params: type[P],
    guidance: str = "",
    session: Literal["fork", "shared"] = "fork",
    share: Iterable[type[Any]] = (Filesystem,),
    adapter: Adapter[Any] | None = None,
    budget: Budget | None = None,
    max_depth: int = 2,
    annotations: ToolAnnotations = _CLOSED_WORLD,
) -> Tool[P, R]:
    """A tool that evaluates another prompt inside the call: `subagent(name="research", prompt=template, params=Topic)`.

    The sub-agent's calls belong to the call around them. When that fails, is cancelled or runs out of time, all that
    they changed in files and state is undone with it. The run's deadline, token budget, effect ledger, ids, heartbeat
    and listeners hold for the sub-agent as well; its events have the tool's name in `path`.

    Args:
        name: the tool's name.
        description: what the outer model reads of it.
        prompt: what the sub-agent is told. The call's params are bound to it. The tool's value is its answer: of the
            template's output type, or text.
        params: the type of the tool's arguments, a frozen dataclass that sections of the prompt take.
        guidance: more for the outer model to read.
        session: "fork" gives the sub-agent a copy of the session. It begins with everything that is there, and only
            its answer comes back, through the reducers of its type. "shared" lets it write to the session itself.
        share: the resources that both use, by type; those that are not bound are left out. What the template binds for
            itself is its own, and is not undone with the call.
        adapter: who is asked; the one that made the call unless given.
        budget: what the sub-agent may spend, in each call. It counts in the run's own budget too.
        max_depth: how many sub-agents may be inside one another, this one included.
        annotations: as of any tool. `read_only=True` lets several of them work at once.

    A sub-agent that comes to no answer is an error of the call, which says why. So is one at a greater depth, and one
    whose prompt is being evaluated around it. Raises ValueError for a `max_depth` below 1.
    """
    if max_depth < 1:
        raise ValueError(f"max_depth must be 1 or more, got {max_depth}.")
    shared = tuple(share)
    identity = (prompt.ns, prompt.key)

    async def handler(params: P, *, context: ToolContext) -> ToolResult[R]:
        around = _ancestry.get()
        if identity in around:
            return ToolResult.error(
                f"'{name}' is already at work around this call, so it was not begun again.\nDo this part yourself."
            )
        if len(around) >= max_depth:
            return ToolResult.error(
                f"'{name}' would be sub-agent number {len(around) + 1} inside one another; {max_depth} may be.\n"
                "Do this part yourself."
            )
        chosen: Any = context.adapter if adapter is None else adapter
        if not isinstance(chosen, Adapter):
            raise TypeError(f"subagent {name!r} has no adapter to ask: pass adapter=, or run it in an evaluation.")
        given = {kind: context.resources.get(kind, None) for kind in shared}
        bound = Prompt(prompt).bind(params, resources={kind: one for kind, one in given.items() if one is not None})
        own = context.session.fork(context.session.dispatcher) if session == "fork" else context.session
        token = _ancestry.set((*around, identity))
        try:
            response = await chosen.aevaluate(bound, own, **_handed_down(context, name, budget))
        except PromptEvaluationError as error:
            return ToolResult.error(f"The sub-agent '{name}' came to no answer: {error}")
        finally:
            _ancestry.reset(token)
        answer = cast("R", response.text if response.output is None else response.output)
        return ToolResult.ok(answer, message=response.text or None)

    result: Any = prompt.output_type or str
    return Tool[params, result](
        name=name, description=description, guidance=guidance, handler=handler, annotations=annotations
    )


def _handed_down(context: ToolContext, name: str, budget: Budget | None) -> RunKeywords:
    """The limits and listeners of the run around a call, for an evaluation inside it."""
    options = context.options_inside(name)
    if budget is not None:
        tracker: BudgetTracker | None = options.get("budget_tracker")
        options["budget_tracker"] = BudgetTracker(budget, within=() if tracker is None else (tracker,))
    if context.run_context is not None:
        options["run_context"] = replace(context.run_context, span_id=uuid4().hex[:16])
    return cast("RunKeywords", options)


__all__: Sequence[str] = ["subagent"]
