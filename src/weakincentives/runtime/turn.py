"""The calls of one turn of the model: every id is answered once, in the model's order, whatever ends the turn.

Written once, as `async`; synchronous code drives it with a `Waiting` that never suspends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, Protocol, final

from ..errors import VisibilityExpansionRequired
from ..event_loop import outcome_of
from ..interrupts import Shield, WeakTable, shielded, unshielded, wait_until_done
from ..lazy_modules import asyncio
from ..prompt.tool import Tool
from ..threads import ThreadCall
from ..waiting import BLOCKING_ELSEWHERE, Waiting, drive
from .call import Refused, ToolCall, ToolReply
from .conclude import conclude_now
from .dispatch import dispatch
from .recall import decline
from .run import Run

OnCall = Callable[[ToolCall], object]
OnReply = Callable[[ToolReply], object]

_MAX_TOGETHER = 16
"""How many read-only calls run at once; a model may ask for hundreds."""

_WORTH_IT = 0.001
"""Seconds. Quicker calls run one after another; on an idle machine a hand-over takes a tenth of that."""

_NOT_RUN = "This call was not run, because an earlier call of the turn ended the evaluation."
OPENED = (
    "This call was not run, because an earlier call of the turn opened sections.\n"
    "Read them; then call it again if it is still right."
)


def opened_text(section_keys: Iterable[str]) -> str:
    """The answer to a call that opened sections."""
    return f"Opened: {', '.join(section_keys)}. What they hold is in the prompt now, with their tools."


@final
class Turn:
    """The calls of one turn, their answers so far, and what has ended it. `execute` once."""

    __slots__ = ("_calls", "_ended", "_on_call", "_on_reply", "_replies", "_run")

    def __init__(self, calls: Iterable[ToolCall], run: Run, on_call: OnCall | None, on_reply: OnReply | None) -> None:
        self._calls = list(calls)
        self._run = run
        self._on_call = on_call
        self._on_reply = on_reply
        self._ended: BaseException | None = None
        self._replies: list[ToolReply] = []

    async def execute(self, waiting: Waiting) -> list[ToolReply]:
        """Run the calls. What ends the turn is raised once every id is answered; see `ToolExecutor.execute_all`."""
        shield = waiting.shield
        for batch in self._batches():
            if self._on_call is not None:
                for call in batch:
                    self._on_call(call)
            if shield.noted:
                self._deliver_interrupts(shield)
            if self._ended is not None:
                self._skip(batch)
            elif len(batch) == 1:
                began = monotonic()
                await self._take(batch[0], dispatch(batch[0], self._run, waiting))
                self._note_duration(batch[0], monotonic() - began)
            else:
                await self._overlap(batch, waiting)
        if shield.noted:
            self._deliver_interrupts(shield)
        if self._ended is not None:
            raise self._ended
        return self._replies

    def _batches(self) -> Iterable[Sequence[ToolCall]]:
        """Single calls, and read-only ones that follow one another, may overlap and take long enough for that to pay.

        A call is looked at when those before its batch have ended: one that took longer than before counts at once.
        """
        batch: list[ToolCall] = []
        for call in self._calls:
            bound = self._run.tools.get(call.name) if isinstance(call.name, str) else None
            overlaps = bound is not None and bound.overlaps and _pays_to_overlap(bound.tool)
            if batch and (not overlaps or len(batch) == _MAX_TOGETHER or any(_alike(call, other) for other in batch)):
                yield batch
                batch = []
            if overlaps:
                batch.append(call)
            else:
                yield [call]
        if batch:
            yield batch

    def _skip(self, batch: Sequence[ToolCall]) -> None:
        text = OPENED if isinstance(self._ended, VisibilityExpansionRequired) else _NOT_RUN
        for call in batch:
            self._answer(conclude_now(call, Refused("cancelled", text), self._run))

    async def _overlap(self, batch: Sequence[ToolCall], waiting: Waiting) -> None:
        """Run read-only calls at once, each recorded after the one before it."""
        running: list[_RunningCall] = []
        before: Future[None] = Future()
        before.set_result(None)
        for call in batch:
            done: Future[None] = Future()
            running.append(self._start(call, before, done, waiting))
            before = done
        for call, one in zip(batch, running, strict=True):
            try:
                await one.ended()
            except BaseException as error:
                if self._ended is not None:
                    raise  # a second interrupt does not wait: the calls record by themselves how they ended
                self._ended = error
                for other in running:
                    other.cancel()
                # It must have recorded itself before its answer is looked up: otherwise it would be recorded as not
                # run here, and once more when it ends.
                await one.ended()
            await self._take(call, one.result())

    def _start(self, call: ToolCall, before: Future[None], done: Future[None], waiting: Waiting) -> _RunningCall:
        is_first = before.done()  # it waits for no other, so the time that it takes is its own

        async def settled(own: Waiting) -> ToolReply:
            began = monotonic()
            try:
                return await dispatch(call, self._run, own, before)
            finally:
                if is_first:
                    self._note_duration(call, monotonic() - began)
                done.set_result(None)

        return _RunningTask(settled(waiting)) if waiting.in_loop else _RunningThread(settled)

    def _note_duration(self, call: ToolCall, seconds: float) -> None:
        bound = self._run.tools.get(call.name) if isinstance(call.name, str) else None
        if bound is not None and bound.overlaps:
            is_slow = seconds >= _WORTH_IT
            if _is_slow.get(bound.tool) is not is_slow:
                _is_slow.put(bound.tool, is_slow)

    def _deliver_interrupts(self, shield: Shield) -> None:
        """An interrupt that came while our own code ran ends the turn here, between two calls."""
        try:
            while shield.noted:
                shield.deliver()
        except BaseException as error:  # noqa: BLE001 - raised by `execute`, when every id is answered
            if self._run.recorder is not None:
                self._run.recorder.stop()
            self._ended = self._ended or error

    async def _take(self, call: ToolCall, produced: Awaitable[ToolReply]) -> None:
        try:
            reply = await produced
        except BaseException as error:  # noqa: BLE001 - as above
            if self._run.recorder is not None and not isinstance(error, Exception):
                self._run.recorder.stop()  # also when the call itself is on record: those after it are made again
            self._ended = self._ended or error
            reply = decline(call, _NOT_RUN, self._run)  # what was recorded of the call, or that it did not begin
        self._answer(reply)

    def _answer(self, reply: ToolReply) -> None:
        if reply.duplicate and any(known.call_id == reply.call_id for known in self._replies):
            return
        self._replies.append(reply)
        if self._on_reply is not None:
            try:
                self._on_reply(reply)
            except BaseException as error:  # noqa: BLE001 - as above
                self._ended = self._ended or error


# A call that overlaps with others: in a thread, or in a task of the event loop.


class _RunningCall(Protocol):
    async def ended(self) -> None:
        """Wait until it has ended, however it did. An interrupt ends the waiting, not the call."""
        ...

    async def result(self) -> ToolReply:
        """Its reply, or what it raised; only after `ended`."""
        ...

    def cancel(self) -> None:
        """Ask it to end, where that is possible."""
        ...


@final
class _RunningThread:
    def __init__(self, settled: Callable[[Waiting], Coroutine[Any, Any, ToolReply]]) -> None:
        self._threaded = ThreadCall(lambda: drive(settled(BLOCKING_ELSEWHERE)))

    async def ended(self) -> None:
        wait_until_done(self._threaded)

    async def result(self) -> ToolReply:
        return self._threaded.result()

    def cancel(self) -> None:
        pass  # a thread cannot be stopped: it is waited for


@final
class _RunningTask:
    def __init__(self, settled: Coroutine[Any, Any, ToolReply]) -> None:
        self._settled = settled
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> Callable[[], ToolReply]:
        with shielded():  # a task of its own begins at depth zero
            return await outcome_of(self._settled)

    async def ended(self) -> None:
        await unshielded(asyncio.wait({self._task}))

    async def result(self) -> ToolReply:
        self._settled.close()  # of a task that was cancelled before it began
        return self._task.result()()

    def cancel(self) -> None:
        self._task.cancel()


# Whether it pays to overlap: how quick the last call was is kept with its tool, for all runs. It decides only when
# handlers run, never the order of answers and events.

_is_slow: WeakTable[Tool[Any, Any], bool] = WeakTable()


def _pays_to_overlap(tool: Tool[Any, Any]) -> bool:
    """Whether its last call took longer than several hand-overs to a thread or a task, or is not known."""
    return _is_slow.get(tool) is not False


def _alike(one: ToolCall, other: ToolCall) -> bool:
    """Whether their order matters although both only read: to duplicates, and to repetitions that are counted."""
    try:
        return bool(one.id == other.id or (one.name == other.name and one.arguments == other.arguments))
    except Exception:  # noqa: BLE001 - arguments may be a mapping of any class
        return True


__all__ = ["OPENED", "OnCall", "OnReply", "Turn", "opened_text"]
