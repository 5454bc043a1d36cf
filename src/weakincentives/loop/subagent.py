"""A sub-agent as a tool: another prompt is evaluated inside the call; what it did is kept or undone with the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast, final
from uuid import uuid4

from ..budget import Budget, BudgetTracker
from ..errors import DeadlineExceededError, PromptEvaluationError, PromptValidationError
from ..filesystem import Filesystem
from ..filesystem.views import HeldFilesystem
from ..interrupts import Lock
from ..prompt import Prompt, PromptTemplate, Tool, ToolAnnotations, ToolContext, ToolResult
from ..prompt.events import CallsUndone, ToolInvoked
from ..runtime.inside import options_inside, run_of
from ..runtime.locks import is_filesystem
from ..runtime.options import RunKeywords
from ..session import Session
from ..session.savepoints import fork_inside
from .adapter import Adapter, TurnAdapter
from .events import value_of_call

P = TypeVar("P")
R = TypeVar("R")

MOST_INSIDE = 100
"""How many sub-agents one call may begin in all, at any depth. Each asks its model several times."""


def subagent(
    *,
    name: str,
    description: str,
    prompt: PromptTemplate[R],
    params: type[P],
    result: type[R] | None = None,
    guidance: str | None = None,
    session: Literal["fork", "shared"] = "fork",
    share: Iterable[type[Any]] = (Filesystem,),
    adapter: Adapter | None = None,
    budget: Budget | None = None,
    max_turns: int | None = None,
    max_depth: int = 2,
    merge: Callable[[Any, Session], Iterable[object]] | None = None,
    read_only: bool = False,
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
        params: the type of the tool's arguments, which sections of the prompt take.
        result: the type of the answer, for readers: that of the template.
        guidance: more for the outer model to read.
        session: "fork" gives the sub-agent a copy of the session. It begins with everything that is there, and only
            its answer comes back, through the reducers of its type; its calls are in the log of both. "shared" lets it
            write to the session itself.
        share: the resources that both use, by type; those that are not bound are left out. What the template binds for
            itself is its own, and is not undone with the call.
        adapter: who is asked; the one that made the call unless given.
        budget: what the sub-agent may spend, in each call. It counts in the run's own budget too.
        max_turns: how often its model may be asked, in each call; as the adapter says unless given.
        max_depth: how many sub-agents may be inside one another, this one included.
        merge: gives events for the session of the call to dispatch, of that session and the fork, after an answer.
        read_only: it changes nothing, so several of them may work at once. Its tools that write to shared files fail.

    A sub-agent that comes to no answer is an error of the call, which says why; when the run's own deadline has passed,
    the run ends. So is one that would be too deep, one of too many, and one whose prompt is at work around it. Raises
    `PromptValidationError` for arguments that contradict each other or the prompt.
    """
    if not isinstance(prompt, PromptTemplate):
        raise _refused(
            name, f"prompt= takes a PromptTemplate, got a {type(prompt).__name__}. Its params are bound later"
        )
    _check(name, prompt, params, result, session=session, merge=merge, max_depth=max_depth, max_turns=max_turns)
    if read_only and (session == "shared" or merge is not None):
        raise _refused(name, 'read_only=True cannot write to the session: leave out session="shared" and merge=')
    agent = _SubAgent(
        name, prompt, _kinds(name, share), session == "shared", adapter, budget, max_turns, max_depth, merge, read_only
    )
    value: Any = prompt.output_type or str
    annotations = ToolAnnotations(read_only=read_only, open_world=False)  # what leaves the machine is a call inside it
    return Tool[params, value](
        name=name, description=description, guidance=guidance, handler=agent, annotations=annotations
    )


def is_subagent(tool: Tool[Any, Any]) -> bool:
    """Whether `subagent` made it."""
    return isinstance(tool.handler, _SubAgent)


@final
@dataclass(frozen=True, slots=True)
class _SubAgent:
    """The handler."""

    name: str
    prompt: PromptTemplate[Any]
    share: tuple[type[Any], ...]
    is_shared: bool
    adapter: Adapter | None
    budget: Budget | None
    max_turns: int | None
    max_depth: int
    merge: Callable[[Any, Session], Iterable[object]] | None
    read_only: bool

    async def __call__(self, params: Any, *, context: ToolContext) -> ToolResult[Any]:
        around = _around.get() or _Around((_identity(context.prompt),))
        refused = self._refusal(around)
        if refused:
            return ToolResult.error(f"{refused}\nDo this part yourself, with the tools that you have.")
        bound = Prompt(self.prompt).bind(params, resources=self._shared(context))
        outer, adapter = context.session, self._asked(context)
        own = outer if self.is_shared else fork_inside(outer, _LOGGED, _session_id(outer, context))
        depth = _around.set(replace(around, prompts=(*around.prompts, _identity(self.prompt))))
        value = value_of_call.set(bound if self.is_shared else None)
        try:
            response = await adapter.aevaluate(bound, own, **self._options(context, adapter))
        except PromptEvaluationError as error:
            if error.phase == "deadline" and context.deadline is not None and context.deadline.expired:
                raise DeadlineExceededError(str(error)) from error
            return ToolResult.error(f"The sub-agent '{self.name}' came to no answer: {error}")
        finally:
            value_of_call.reset(value)
            _around.reset(depth)
        for event in () if self.merge is None else self.merge(outer, own):
            outer.dispatch(event)
        answer = response.text if response.output is None else response.output
        return ToolResult.ok(answer, message=f"'{self.name}' answered:")

    @property
    def record_types(self) -> frozenset[type[Any]]:
        """The classes of values in its calls: a run on record has them, too."""
        tools = [bound.tool for bound in self.prompt.tree.tools.values()]
        found = [self.prompt.output_type, *(cls for tool in tools for cls in (tool.params_type, tool.result_type))]
        inner = [cls for tool in tools for cls in getattr(tool.handler, "record_types", ())]
        return frozenset(cls for cls in (*found, *inner) if isinstance(cls, type))

    def _refusal(self, around: _Around) -> str:
        """Why it is not begun; empty when it is."""
        if _identity(self.prompt) in around.prompts:
            return f"'{self.name}' is at work already, and this call is part of that, so it was not begun again."
        if len(around.prompts) > self.max_depth:
            depth = len(around.prompts)
            return f"'{self.name}' would be sub-agent number {depth} inside one another; the limit is {self.max_depth}."
        if not around.begin():
            return f"{MOST_INSIDE} sub-agents were begun in one call already, so '{self.name}' was not."
        return ""

    def _shared(self, context: ToolContext) -> dict[type[Any], object]:
        given: dict[type[Any], Any] = {kind: context.resources.get(kind, None) for kind in self.share}
        return {
            kind: HeldFilesystem(one) if self.read_only and is_filesystem(one.__class__) else one
            for kind, one in given.items()
            if one is not None
        }

    def _asked(self, context: ToolContext) -> Adapter:
        adapter: Any = context.adapter if self.adapter is None else self.adapter
        if not isinstance(adapter, Adapter):
            raise TypeError(f"the sub-agent '{self.name}' has no adapter to ask: pass adapter= to subagent().")
        if adapter.settings.manual:
            raise TypeError(f"the sub-agent '{self.name}' cannot ask an adapter in manual mode: pass another adapter=.")
        return adapter

    def _options(self, context: ToolContext, adapter: Adapter) -> RunKeywords:
        """The limits and listeners of the run around the call, and the sub-agent's own."""
        options = options_inside(context, self.name)
        if self.budget is not None:
            tracker: BudgetTracker | None = options.get("budget_tracker")
            options["budget_tracker"] = BudgetTracker(self.budget, within=() if tracker is None else (tracker,))
        if self.max_turns is not None:
            options["max_turns"] = self.max_turns
        if context.run_context is not None:
            options["run_context"] = replace(context.run_context, span_id=uuid4().hex[:16])
        run = run_of(context)
        recorder = None if run is None else run.recorder
        if recorder is not None and context.call_id and isinstance(adapter, TurnAdapter):
            options["record"] = recorder.run_inside(context.call_id, self.name)
        return cast("RunKeywords", options)


# How deep it is, and how many there are.


@dataclass(frozen=True, slots=True)
class _Around:
    """The prompts at work around this code, the outermost first, and how many sub-agents were begun inside it."""

    prompts: tuple[tuple[str, str], ...]
    begun: list[None] = field(default_factory=list[None])

    def begin(self) -> bool:
        """One more, if it may be."""
        with _lock:
            if len(self.begun) >= MOST_INSIDE:
                return False
            self.begun.append(None)
            return True


_lock = Lock()
_around: ContextVar[_Around | None] = ContextVar("weakincentives_subagents", default=None)
_LOGGED = (ToolInvoked, CallsUndone)
"""What a sub-agent did must be found in the log of the run, whatever session it worked in."""


def _identity(prompt: Any) -> tuple[str, str]:
    return getattr(prompt, "ns", ""), getattr(prompt, "key", "")


def _session_id(outer: Session, context: ToolContext) -> str | None:
    """The same when the call is run again, by another process."""
    return None if context.call_id is None else f"{outer.session_id}/{context.call_id}"


# What can be checked when it is built.


def _check(
    name: str, prompt: PromptTemplate[Any], params: Any, result: Any, *, session: str, merge: Any, max_depth: int,
    max_turns: int | None,
) -> None:  # fmt: skip
    known = prompt.tree.params_types
    if params not in known:
        names = ", ".join(sorted(cls.__name__ for cls in known)) or "none"
        raise _refused(
            name,
            f"no section of the prompt {prompt.name!r} takes params={_shown(params)}. It takes: {names}. "
            f"Write MarkdownSection[{_shown(params)}](...) for the section that uses them",
        )
    answer = prompt.output_type or str
    if result is not None and result is not answer:
        raise _refused(
            name,
            f"result={_shown(result)} contradicts the prompt {prompt.name!r}, whose answer is {_shown(answer)}. "
            f"Write PromptTemplate[{_shown(result)}](...), or leave result= out",
        )
    if session not in {"fork", "shared"}:
        raise _refused(name, f"session= is 'fork' or 'shared', got {session!r}")
    if merge is not None and session == "shared":
        raise _refused(name, "merge= is for a fork; with session='shared' all that it did is in the session already")
    if max_depth < 1:
        raise _refused(name, f"max_depth must be 1 or more, got {max_depth}")
    if max_turns is not None and max_turns < 1:
        raise _refused(name, f"max_turns must be 1 or more, got {max_turns}")


def _kinds(name: str, share: Iterable[type[Any]]) -> tuple[type[Any], ...]:
    if isinstance(share, type):
        raise _refused(name, f"share= takes several types; write share=({share.__name__},)")
    return tuple(share)


def _shown(kind: Any) -> str:
    return getattr(kind, "__name__", repr(kind))


def _refused(name: str, text: str) -> PromptValidationError:
    return PromptValidationError(f"subagent {name!r}: {text}.")


__all__ = ["is_subagent", "subagent"]
