"""Runs the tool calls of one evaluation: each a transaction, each answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from threading import Lock, get_ident
from typing import Any, Self, final
from weakref import finalize

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..errors import VisibilityExpansionRequired
from ..event_loop import outcome_of
from ..interrupts import MAIN, current_shield, shielded, unshielded, wait_until_done
from ..prompt.events import ToolInvoked
from ..prompt.policy import as_policy, may_overlap
from ..prompt.prompt import Prompt
from ..prompt.render import RenderedPrompt
from ..prompt.tool import Tool
from ..run_context import Heartbeat, RunContext
from ..session import Session
from ..signals import find_handlers, install, leave_elsewhere, remove, shielded_run, stand_aside, stand_in_front
from .call import Refused, ToolCall, ToolReply
from .dispatch import dispatch
from .finish import answer_of, conclude_now, shown_arguments
from .idempotent import recall_answer
from .ledger import Ledger
from .recall import answer_open_call, decline
from .run import Run, count_in, has_bound_tracker
from .threads import Threaded
from .truncation import READ_TOOL
from .waiting import AWAITING, AWAITING_ELSEWHERE, BLOCKING, BLOCKING_ELSEWHERE, Waiting, drive

OnCall = Callable[[ToolCall], object]
OnReply = Callable[[ToolReply], object]


@final
class ToolExecutor:
    """The tools of one prompt on one session. Safe to use from any thread or task.

    Use it as a context manager, or call `close`: what its resources built is closed then. `execute` answers every call;
    it raises only `KeyboardInterrupt`, `SystemExit`, cancellation, `PromptEvaluationError`,
    `VisibilityExpansionRequired` and `RollbackError`, after the call was undone and its event recorded.

    Args:
        hide_errors: tell the model only that something unexpected happened, not the exception's text.
        effect_ledger: remembers the effects of tools with an `IdempotencyConfig`; it stays its owner's. Without one
            they are remembered in memory, for the session alone, and a warning says so.
    """

    def __init__(
        self,
        *,
        prompt: Prompt[Any],
        session: Session,
        adapter: object = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        rendered_prompt: RenderedPrompt[Any] | None = None,
        hide_errors: bool = False,
        effect_ledger: Ledger | None = None,
    ) -> None:
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
            deadline=deadline,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            run_context=run_context,
            hide_errors=hide_errors,
            effect_ledger=effect_ledger,
        )

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """What the model may call now: the prompt's tools, and `read_tool_result` once something was cut."""
        known = self._tools
        if len(known) != len(self._run.tools):  # tools are only ever added, but for `offer`
            known = self._tools = tuple(bound.tool for bound in self._run.tools.values())
        return known

    @property
    def budget_tracker(self) -> BudgetTracker | None:
        """What counts the tokens: the tracker it was given and, once entered, the one that is bound; or None."""
        return self._run.budget_tracker

    def offer(self, rendered: RenderedPrompt[Any]) -> None:
        """Go on with a prompt that was rendered anew: its tools instead of those before. Not while calls run."""
        tools = self._run.tools
        reading = tools.get(READ_TOOL)
        tools.clear()
        tools.update(rendered.tool_map)
        if reading is not None:
            tools.setdefault(READ_TOOL, reading)
        self._run.rendered_prompt = rendered
        self._tools = ()
        _install_policies(rendered, self._run.session)

    def has_seen(self, call_id: str) -> bool:
        """Whether a call with this id was brought here; if so it is not run again, and is recorded when it ended."""
        return self._run.memory.knows(call_id)

    def shown_arguments(self, call: ToolCall) -> str:
        """The arguments for whoever watches: what the model wrote, with a mark for each value of a secret field."""
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
        """Answer a call that did not run here: what was given for it, else what is known; see `runtime.open_calls`."""
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
            return await dispatch(call, self._run, _awaiting(), before)

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
        calls = list(calls)
        with shielded_run(self._shielded):
            if len(calls) == 1:  # as below; most turns are like this
                return [self._execute_only(calls[0], on_call, on_reply)]
            turn = _Turn(calls, self._run, on_call, on_reply)
            for batch in turn.batches():
                if len(batch) == 1:
                    turn.take(batch[0], lambda call=batch[0]: drive(dispatch(call, self._run, _blocking())))
                    continue
                running = [
                    Threaded(lambda c=call, b=before, d=done: _settling(d, self._run, c, b))
                    for call, before, done in _chained(batch)
                ]
                for call, threaded in zip(batch, running, strict=True):
                    turn.wait(threaded.future)
                    turn.take(call, threaded.future.result)
            return turn.finish()

    def _execute_only(self, call: ToolCall, on_call: OnCall | None, on_reply: OnReply | None) -> ToolReply:
        if on_call is not None:
            on_call(call)
        try:
            reply = drive(dispatch(call, self._run, _blocking()))
        except BaseException:
            if on_reply is not None:
                on_reply(decline(call, _NOT_RUN, self._run))
            raise
        if on_reply is not None:
            on_reply(reply)
        return reply

    async def aexecute_all(
        self, calls: Iterable[ToolCall], *, on_call: OnCall | None = None, on_reply: OnReply | None = None
    ) -> list[ToolReply]:
        """Like `execute_all`, for async code."""
        await self._aenter()
        with shielded_run(self._shielded):
            turn = _Turn(calls, self._run, on_call, on_reply)
            for batch in turn.batches():
                if len(batch) == 1:
                    await turn.atake(batch[0], dispatch(batch[0], self._run, _awaiting()))
                    continue
                tasks = [
                    asyncio.ensure_future(_asettling(done, self._run, call, before))
                    for call, before, done in _chained(batch)
                ]
                try:
                    await unshielded(asyncio.wait(tasks))
                except asyncio.CancelledError:  # all of them are stopped, each is answered
                    for task in tasks:
                        task.cancel()
                for call, task in zip(batch, tasks, strict=True):
                    await turn.atake(call, _outcome(task))
            return turn.finish()

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


@final
class _Turn:
    """The calls of one turn, their answers so far, and what has ended it."""

    def __init__(self, calls: Iterable[ToolCall], run: Run, on_call: OnCall | None, on_reply: OnReply | None) -> None:
        self._calls = list(calls)
        self._run = run
        self._on_call = on_call
        self._on_reply = on_reply
        self._ended: BaseException | None = None
        self._recorded = run.session[ToolInvoked].count()
        self.replies: list[ToolReply] = []

    @property
    def ended(self) -> bool:
        """Whether something must reach the caller once every id is answered."""
        return self._ended is not None

    def batches(self) -> Iterable[Sequence[ToolCall]]:
        """Single calls, and runs of read-only ones; once the turn has ended the rest is answered as not run."""
        batch: list[ToolCall] = []
        for call in self._calls:
            bound = self._run.tools.get(call.name) if isinstance(call.name, str) else None
            if bound is not None and bound.tool.annotations.read_only and may_overlap(bound.policies):
                if any(_alike(call, other) for other in batch):
                    yield from self._open(batch)
                    batch = []
                batch.append(call)
                if len(batch) == _MAX_TOGETHER:
                    yield from self._open(batch)
                    batch = []
                continue
            yield from self._open(batch)
            batch = []
            yield from self._open([call])
        yield from self._open(batch)

    def _open(self, batch: list[ToolCall]) -> Iterable[Sequence[ToolCall]]:
        if self._on_call is not None:
            for call in batch:
                self._on_call(call)
        self._look()
        if batch and self._ended is None:
            yield batch
            return
        text = _OPENED if isinstance(self._ended, VisibilityExpansionRequired) else _NOT_RUN
        for call in batch:
            self._answer(conclude_now(call, Refused("cancelled", text), self._run))

    def wait(self, future: Future[ToolReply]) -> None:
        """Wait for a call in another thread; an interrupt is kept for later, a second one is not."""
        try:
            wait_until_done(future)
        except BaseException as error:
            if self._ended is not None:
                raise
            self._ended = error
            wait_until_done(future)

    def _look(self) -> None:
        """An interrupt that came while our own code ran ends the turn here, between two calls."""
        shield = current_shield()
        try:
            while shield.noted:
                shield.deliver()
        except BaseException as error:  # noqa: BLE001 - raised by `finish`, when every id is answered
            self._ended = self._ended or error

    def take(self, call: ToolCall, produce: Callable[[], ToolReply]) -> None:
        try:
            reply = produce()
        except BaseException as error:  # noqa: BLE001 - raised by `finish`, when every id is answered
            reply = self._interrupted(call, error)
        self._answer(reply)

    async def atake(self, call: ToolCall, produce: Coroutine[Any, Any, ToolReply] | asyncio.Future[ToolReply]) -> None:
        try:
            reply = await produce
        except BaseException as error:  # noqa: BLE001 - as above
            reply = self._interrupted(call, error)
        self._answer(reply)

    def _interrupted(self, call: ToolCall, error: BaseException) -> ToolReply:
        """The answer to a call that raised: what was recorded of it, or that it did not begin."""
        self._ended = self._ended or error
        for event in reversed(self._run.session[ToolInvoked].all()[self._recorded :]):
            if event.call_id == call.id and event.outcome != "invalid":
                return answer_of(event, self._run)
        return decline(call, _NOT_RUN, self._run)  # a refusal may be recorded, and its subscribers interrupted

    def _answer(self, reply: ToolReply) -> None:
        if reply.duplicate and any(known.call_id == reply.call_id for known in self.replies):
            return
        self.replies.append(reply)
        if self._on_reply is not None:
            try:
                self._on_reply(reply)
            except BaseException as error:  # noqa: BLE001 - as above
                self._ended = self._ended or error

    def finish(self) -> list[ToolReply]:
        self._look()
        if self._ended is not None:
            raise self._ended
        return self.replies


_MAX_TOGETHER = 16
"""How many read-only calls run at once; a model may ask for hundreds."""

_NOT_RUN = "This call was not run, because an earlier call of the turn ended the evaluation."
_OPENED = (
    "This call was not run, because an earlier call of the turn opened sections.\n"
    "Read them; then call it again if it is still right."
)


def _blocking() -> Waiting:
    return BLOCKING if get_ident() == MAIN.ident else BLOCKING_ELSEWHERE


def _awaiting() -> Waiting:
    return AWAITING if get_ident() == MAIN.ident else AWAITING_ELSEWHERE


def _install_policies(rendered: RenderedPrompt[Any], session: Session) -> None:
    for bound in rendered.tool_map.values():
        for policy in bound.policies:
            as_policy(policy).install(session)


def _alike(one: ToolCall, other: ToolCall) -> bool:
    """Whether their order matters although both only read: to duplicates, and to repetitions that are counted."""
    try:
        return bool(one.id == other.id or (one.name == other.name and one.arguments == other.arguments))
    except Exception:  # noqa: BLE001 - arguments may be a mapping of somebody else's making
        return True


def _chained(batch: Sequence[ToolCall]) -> Iterable[tuple[ToolCall, Future[None], Future[None]]]:
    """Each call with what it waits for before it is settled, and what it says when it is."""
    before: Future[None] = Future()
    before.set_result(None)
    for call in batch:
        done: Future[None] = Future()
        yield call, before, done
        before = done


def _settling(done: Future[None], run: Run, call: ToolCall, before: Future[None]) -> ToolReply:
    try:
        return drive(dispatch(call, run, BLOCKING_ELSEWHERE, before))
    finally:
        done.set_result(None)


async def _asettling(done: Future[None], run: Run, call: ToolCall, before: Future[None]) -> Callable[[], ToolReply]:
    with shielded():  # a task of its own begins at depth zero
        try:
            return await outcome_of(dispatch(call, run, _awaiting(), before))
        finally:
            done.set_result(None)


async def _outcome(task: asyncio.Future[Callable[[], ToolReply]]) -> ToolReply:
    return (await unshielded(task))()


__all__ = ["ToolExecutor"]
