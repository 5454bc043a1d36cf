"""Runs the tool calls of one evaluation: each a transaction, each answered once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Self, Unpack, final
from weakref import finalize

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..interrupts import MAIN, Lock, shielded
from ..prompt.policy import as_policy
from ..prompt.prompt import Prompt
from ..prompt.render import RenderedPrompt
from ..prompt.tool import Tool
from ..session import Session
from ..signals import find_handlers, install, leave_elsewhere, remove, shielded_run, stand_aside, stand_in_front
from ..waiting import BLOCKING, BLOCKING_ELSEWHERE, awaiting_here, blocking_here, drive
from .call import ToolCall, ToolReply
from .conclude import shown_arguments
from .dispatch import dispatch
from .options import ExecutorKeywords, ExecutorOptions, StartedOptions, options_from
from .recall import answer_open_call, decline, recall_answer
from .run import Run, count_in, has_bound_tracker
from .truncation import READ_TOOL
from .turn import OnCall, OnReply, Turn


@final
class ToolExecutor:
    """The tools of one prompt on one session. Safe to use from any thread or task.

    Use it as a context manager, or call `close`: what its resources built is closed then. `execute` answers every call;
    it raises only `KeyboardInterrupt`, `SystemExit`, cancellation, `PromptEvaluationError`,
    `VisibilityExpansionRequired` and `RollbackError`, after the call was undone and its event recorded.

    Args:
        adapter: named in events, and given to handlers as `context.adapter`.
        rendered_prompt: the prompt as it was rendered already.
        options: what an adapter has started already, in place of the keywords.
        keywords: see `ExecutorOptions`.
    """

    def __init__(
        self,
        *,
        prompt: Prompt[Any],
        session: Session,
        adapter: object = None,
        rendered_prompt: RenderedPrompt[Any] | None = None,
        options: StartedOptions | None = None,
        **keywords: Unpack[ExecutorKeywords],
    ) -> None:
        if options is None:
            others = ("prompt", "session", "adapter", "rendered_prompt")
            options = options_from(ExecutorOptions, keywords, function="ToolExecutor", others=others).started()
        elif keywords:
            raise TypeError("ToolExecutor() takes options= or keywords, not both.")
        prompt.install(session)
        rendered = prompt.render(session=session) if rendered_prompt is None else rendered_prompt
        _install_policies(rendered, session)
        self._resources = prompt.resources
        self._entered = False
        self._shielded = False
        self._tools: tuple[Tool[Any, Any], ...] = ()
        self._lock = Lock()
        self._run = Run(
            tools=rendered.tool_map,
            session=session,
            resources=prompt.resources.context,
            prompt=prompt,
            rendered_prompt=rendered,
            adapter=adapter,
            options=options,
        )

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """What the model may call now: the prompt's tools, and `read_tool_result` once something was cut."""
        known = self._tools
        if len(known) != len(self._run.tools):  # tools are only ever added, but for `offer`
            known = self._tools = tuple(bound.tool for bound in self._run.tools.values())
        return known

    @property
    def run(self) -> Run:
        """What its calls share; for the parts of a loop that carry out calls in another way."""
        return self._run

    @property
    def budget_tracker(self) -> BudgetTracker | None:
        """What counts the tokens: the tracker it was given and, once entered, the one that is bound; or None."""
        return self._run.budget_tracker

    @property
    def deadline(self) -> Deadline | None:
        """When the run must be over: the earliest deadline it was given, or that of a bound tracker; or None."""
        return self._run.deadline

    @property
    def rendered_prompt(self) -> RenderedPrompt[Any]:
        """The prompt as it was rendered last: the one it was given, its own, or that of the last `offer`."""
        return self._run.rendered_prompt

    def offer(self, rendered: RenderedPrompt[Any]) -> None:
        """Continue with a newly rendered prompt and its tools. Not while calls run."""
        tools = self._run.tools
        reading = tools.get(READ_TOOL)
        tools.clear()
        tools.update(rendered.tool_map)
        if reading is not None:
            tools.setdefault(READ_TOOL, reading)
        self._run.rendered_prompt = rendered
        self._tools = ()
        _install_policies(rendered, self._run.session)

    def renew(self, options: StartedOptions) -> None:
        """Other limits from now on, for the next message of a conversation. Not while calls run."""
        run = self._run
        run.deadline, run.budget_tracker, run.heartbeat = options.deadline, options.budget_tracker, options.heartbeat
        if has_bound_tracker(run.resources):
            count_in(run, self._resources.get(BudgetTracker))

    def has_seen(self, call_id: str) -> bool:
        """Whether a call with this id was brought here; if so it is not run again, and is recorded when it ended."""
        return self._run.memory.knows(call_id)

    def shown_arguments(self, call: ToolCall) -> str:
        """The arguments as they may be shown: what the model wrote, with a mark for each value of a secret field."""
        return str(shown_arguments(call, self._run))

    def decline(self, call: ToolCall, text: str) -> ToolReply:
        """Answer a call without running it: one event, outcome `cancelled`; an answered call keeps its answer."""
        with shielded():
            return decline(call, text, self._run)

    def recall(self, call: ToolCall) -> ToolReply | None:
        """What log and ledger know of a call that did not run here, None for nothing; may wait for a disk or server."""
        return recall_answer(call, self._run)

    def answer_open(
        self, call: ToolCall, *, given: ToolReply | None = None, recalled: ToolReply | None = None
    ) -> ToolReply:
        """Answer a call that did not run here: what was given for it, else what is known; see `runtime.recall`."""
        with shielded():
            return answer_open_call(call, self._run, given, recalled)

    def execute(self, call: ToolCall) -> ToolReply:
        """Run one call and answer it; one whose id was brought before is not run, and has the answer it got then."""
        if not self._entered:
            self._enter()
        if get_ident() != MAIN.ident:  # no signal handler ever runs there
            return drive(dispatch(call, self._run, BLOCKING_ELSEWHERE))
        shield = MAIN
        depth = shield.depth
        shield.depth = depth + 1
        shield.runs += 1
        try:
            if shield.runs == 1:  # outside of a `with`: our signal handlers are installed for this call
                stand_in_front()
            return drive(dispatch(call, self._run, BLOCKING))
        finally:
            try:
                shield.runs -= 1
                if not shield.runs:
                    stand_aside()
                while shield.noted and not depth:
                    shield.deliver()
            finally:
                shield.depth = depth

    async def aexecute(self, call: ToolCall, *, before: Future[None] | None = None) -> ToolReply:
        """Like `execute`, without blocking the event loop while waiting. Cancelling it undoes the call.

        `before` is for read-only calls that overlap: the call runs at once and is recorded when that future is done.
        """
        if not self._entered:
            await self._aenter()
        with shielded_run(self._shielded):
            return await dispatch(call, self._run, awaiting_here(), before)

    def execute_all(
        self, calls: Iterable[ToolCall], *, on_call: OnCall | None = None, on_reply: OnReply | None = None
    ) -> list[ToolReply]:
        """Run the calls of one turn in the model's order; read-only ones that follow one another overlap.

        Every id is answered once, in order; of calls that share an id only the first runs, and calls that were answered
        in an earlier turn have the answers they got then (`duplicate`). When a call ends the
        evaluation, or `on_reply` raises, the calls after it are answered as not run, and `on_reply` has seen all
        answers before it raises. Ctrl-C waits for read-only calls that are overlapping; a second one does not, and
        leaves it to them to record how they ended. `on_call` sees each call before it begins and may not raise.
        """
        if not self._entered:
            self._enter()
        waiting, turn = blocking_here(), Turn(calls, self._run, on_call, on_reply)
        with shielded_run(self._shielded):
            return drive(turn.execute(waiting))

    async def aexecute_all(
        self, calls: Iterable[ToolCall], *, on_call: OnCall | None = None, on_reply: OnReply | None = None
    ) -> list[ToolReply]:
        """Like `execute_all`, for async code."""
        await self._aenter()
        turn = Turn(calls, self._run, on_call, on_reply)
        with shielded_run(self._shielded):
            return await turn.execute(awaiting_here())

    def close(self) -> None:
        """Close what the evaluation's resources built; closing twice does nothing."""
        try:
            if self._left():
                self._resources.__exit__(None, None, None)
        finally:
            self.return_signals()

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        try:
            if self._left():
                await self._resources.__aexit__(None, None, None)
        finally:
            self.return_signals()

    def _left(self) -> bool:
        with self._lock:
            entered, self._entered = self._entered, False
            return entered

    def _enter(self) -> None:
        with self._lock:
            if not self._entered:
                self._resources.__enter__()
                self._entered = True
                find_handlers()
                if has_bound_tracker(self._run.resources):
                    count_in(self._run, self._resources.get(BudgetTracker))

    async def _aenter(self) -> None:
        if not self._entered:
            await self._resources.__aenter__()
            bound = None
            if has_bound_tracker(self._run.resources):
                bound = await self._resources.aget(BudgetTracker)
            with self._lock:
                first, self._entered = not self._entered, True
            find_handlers()
            if first and bound is not None:
                count_in(self._run, bound)
            if not first:  # another task or thread was quicker
                await self._resources.__aexit__(None, None, None)

    def take_signals(self) -> None:
        """Stand in front of the signal handlers, as for as long as a `with` lasts; see `interrupts`."""
        with shielded():
            if not self._shielded:
                find_handlers()
                self._shielded = install()
                if self._shielded:
                    self._dropped = finalize(self, leave_elsewhere)

    def return_signals(self) -> None:
        """Leave signals to the users' handlers again, as `close` does; doing it twice does nothing."""
        with shielded():
            if self._shielded:
                self._shielded = False
                self._dropped.detach()
                remove()

    def __enter__(self) -> Self:
        try:
            self._enter()
            self.take_signals()
        except BaseException:  # also an interrupt that waited
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self._aenter()
            self.take_signals()
        except BaseException:  # as above
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionContext(ExecutorOptions):
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
    rendered_prompt: RenderedPrompt[Any] | None = None

    def executor(self) -> ToolExecutor:
        """A new executor, which the caller closes."""
        return ToolExecutor(
            prompt=self.prompt,
            session=self.session,
            adapter=self.adapter,
            rendered_prompt=self.rendered_prompt,
            **self.keywords(),
        )


def _install_policies(rendered: RenderedPrompt[Any], session: Session) -> None:
    for bound in rendered.tool_map.values():
        for policy in bound.policies:
            as_policy(policy).install(session)


__all__ = ["ToolExecutionContext", "ToolExecutor"]
