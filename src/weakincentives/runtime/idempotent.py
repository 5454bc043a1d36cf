"""Stages 4 and 6, for tools with an `IdempotencyConfig`: claim the call before its handler, remember how it ended.

The ledger is never rolled back. What a handler says failed may be tried again; a success is recorded whatever becomes
of the call afterwards, because the effect has happened; after anything else the outcome is unknown, and
the call is not repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar, cast, final

from ..crash_log import log_crash
from ..errors import LeaseLostError, LedgerError, SchemaError
from ..prompt.handlers import read_handler
from ..results import ToolResult
from ..waiting import OutOfTime, Waiting
from .call import Admitted, HandlerOutcome
from .contexts import CallContext
from .effects import (
    INEXACT,
    ClaimRequest,
    FormerKey,
    busy_text,
    claim_request,
    conflict_text,
    ended_text,
    former_key,
    no_key_text,
    running_text,
    runs_here,
    unknown_text,
)
from .handler_watch import HandlerEnd
from .invoke import NotBegun, ended_late, internal_error, interrupted
from .ledger.effects import LedgerEntry, load_result, store_result
from .ledger.leases import LedgerLease, begin_running, end_running, keep_claim
from .ledger.protocol import Claim, Claimed, Conflict, Replay, UnknownOutcome
from .limits import HandlerLimits
from .redaction import described, text_of
from .run import Run
from .transactions import Savepoint

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_AT_ONCE = timedelta(milliseconds=10)
_MAX_WHY = 1000
_SAID_SO = frozenset({"failed", "expanded"})
"""Outcomes by which a handler says that nothing happened."""
_GAVE_UP = frozenset({"timeout", "deadline", "cancelled"})
"""Outcomes of calls that did not wait for their handler's end."""


@final
class IdempotentCall:
    """One call on its way through the ledger."""

    __slots__ = ("_admitted", "_asked", "_config", "_context", "_held", "_run", "_waiting")

    def __init__(self, admitted: Admitted, context: CallContext, run: Run, waiting: Waiting) -> None:
        config = admitted.tool.idempotency
        assert config is not None
        self._admitted = admitted
        self._config = config
        self._asked: ClaimRequest | None = None
        self._held: LedgerLease | None = None
        self._context = context
        self._run = run
        self._waiting = waiting

    async def recall(self) -> HandlerOutcome | None:
        """The answer that the call gets without running; None when the handler is to run.

        A duplicate of a running call waits for that one's result. No exception leaves this.
        """
        try:
            asked = claim_request(self._admitted.tool, self._admitted.request.params, self._run)
            if asked is None:
                return None
            ledger = self._run.ledger()
            if runs_here(asked, self._run):
                return self._still_running()
            if not ledger.blocks:  # the usual answers need no more than this
                found = ledger.claim(*asked)
                if isinstance(found, Replay):
                    return self._replay(found)
                if isinstance(found, Claimed):
                    begin_running(self._hold(asked, found.token))
                    return None
            return await self._claim(asked)
        except LedgerError as error:
            log_crash(logger, "The ledger cannot be used", error, self._run.log_extra)
            text = f"'{self._admitted.tool.name}' was not run. {internal_error(error, self._run)}"
            return HandlerOutcome(ToolResult.error(text), "crashed", error)
        except Exception as error:  # noqa: BLE001 - key functions are users' code
            return self._no_key(error)
        except BaseException as error:  # noqa: BLE001 - settled as interrupted, then passed on
            return interrupted(error)

    def _no_key(self, error: Exception) -> HandlerOutcome:
        name = self._admitted.tool.name
        log_crash(logger, f"No key for a call of {name}", error, self._run.log_extra)
        if isinstance(error, SchemaError) and self._config.key_fn is None:
            return HandlerOutcome(ToolResult.error(no_key_text(name, error)), "invalid", error)
        return HandlerOutcome(ToolResult.error(internal_error(error, self._run)), "crashed", error)

    async def _claim(self, own: ClaimRequest) -> HandlerOutcome | None:
        until, pause = time.monotonic() + self._patience(), _FIRST_PAUSE
        former = await self._former_key(own)
        if former is not None and not former.exact:
            return self._unknown(INEXACT)
        asked = own if former is None else former.asked
        while True:
            if runs_here(asked, self._run):  # also one that was given up on while we waited
                return self._still_running()
            found = await self._ask(asked)
            if isinstance(found, Claimed):
                if asked is own:
                    begin_running(self._hold(own, found.token))
                    return None
                # The former row has expired just now. Claims are made under new keys only, so that all make the same.
                await self._in_ledger(partial(self._run.ledger().forget, asked.effect_id, found.token))
                asked = own
                continue
            if isinstance(found, Replay):
                return self._replay(found)
            if isinstance(found, Conflict):
                return HandlerOutcome(
                    ToolResult.error(conflict_text(self._admitted.tool.name, found.entry)), "conflict"
                )
            if isinstance(found, UnknownOutcome):
                settled = await self._resolve_doubt(asked, found.entry)
                if settled == "run":
                    return None
                if settled is not None:
                    return settled
                continue
            left = until - time.monotonic()
            if left <= 0:
                return self._gave_up()
            await self._waiting.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _former_key(self, own: ClaimRequest) -> FormerKey | None:
        """The call as an earlier release recorded it; None when there is no such row."""
        ledger = self._run.ledger()
        tool, params = self._admitted.tool, self._admitted.request.params
        former = former_key(own, tool, params, self._run) if ledger.former_keys else None
        if former is None:
            return None
        entry = await self._in_ledger(partial(ledger.find, former.asked.effect_id))
        if entry is None:
            return None
        # Under a custom key, which is the same in both, only the hash tells whether the row is a former one.
        is_former = former.asked.effect_id != own.effect_id or entry.params_hash == former.asked.params_hash
        return former if is_former else None

    async def _ask(self, asked: ClaimRequest) -> Claim:
        ledger = self._run.ledger()
        made: list[Claim] = []
        try:
            await self._in_ledger(lambda: made.append(ledger.claim(*asked)))
        except BaseException:
            if made and isinstance(made[0], Claimed):  # cancelled meanwhile: the handler has not begun
                ledger.forget(asked.effect_id, made[0].token)
            raise
        return made[0]

    def _replay(self, found: Replay) -> HandlerOutcome:
        result = load_result(found.effect.stored, self._admitted.tool.result_type)
        return HandlerOutcome(result, "replayed")

    def _hold(self, asked: ClaimRequest, token: int) -> LedgerLease:
        self._asked = asked
        self._held = held = LedgerLease(
            self._run.ledger(), asked.effect_id, token, asked.lease, asked.tool_name, asked.params_hash
        )
        self._context.hold(held)
        return held

    async def _resolve_doubt(self, asked: ClaimRequest, entry: LedgerEntry) -> HandlerOutcome | Literal["run"] | None:
        """A call in doubt: run it again, look it up, or say that it is unknown. None when it changed meanwhile."""
        config = self._config
        if config.reconcile is None and config.on_exception != "retry":
            text = "The outcome of %s is unknown (%s); `wink ledger` settles it"
            logger.warning(text, entry.id.text, entry.why, extra=self._run.log_extra)
            return self._unknown(entry.why if not self._run.hide_errors else "an earlier call did not end as it should")
        ledger = self._run.ledger()
        token = await self._in_ledger(lambda: ledger.take_over(asked.effect_id, entry.token, asked.lease))
        if token is None:
            return None
        held = self._hold(asked, token)
        settled = "run" if config.reconcile is None else await self._reconcile(held)
        if settled == "run":
            begin_running(held)
        return settled

    async def _reconcile(self, held: LedgerLease) -> HandlerOutcome | Literal["run"] | None:
        """Ask the world what happened; "run" when nothing did."""
        name = self._admitted.tool.name
        try:
            result = await self._look_up(held)
        except BaseException as error:
            why = "did not end in time" if isinstance(error, OutOfTime) else f"raised {described(error)}"
            await self._in_ledger(lambda: held.doubt(_storable(f"the lookup {why}")))
            if not isinstance(error, Exception):
                raise
            log_crash(logger, f"Looking up the outcome of {held.key} failed", error, self._run.log_extra)
            return HandlerOutcome(
                ToolResult.error(unknown_text(name, "it could not be looked up", self._config)), "unknown", error
            )
        if result is None:
            return "run"
        if not isinstance(result, ToolResult):
            result = ToolResult[Any].error(f"the lookup gave a {type(result).__name__}")
        result = cast(ToolResult[Any], result)
        if result.success:
            return await self._found(held, result)
        why = text_of(result.message)
        await self._in_ledger(lambda: held.doubt(_storable(why)))
        return self._unknown(why)

    async def _look_up(self, held: LedgerLease) -> Any:
        assert self._config.reconcile is not None
        plan, params = read_handler(self._config.reconcile), self._admitted.request.params
        context = CallContext(self._admitted.request, self._run, False)
        context.hold(held)
        try:
            seconds = self._limits().seconds()
            return await self._waiting.within(seconds, lambda: plan.call(params, context), is_async=plan.is_async)
        finally:
            context.end("succeeded")

    async def _found(self, held: LedgerLease, result: ToolResult[Any]) -> HandlerOutcome | None:
        try:
            await self._in_ledger(
                lambda: held.finish(store_result(result, self._admitted.tool.result_type), self._config.ttl)
            )
        except LeaseLostError:
            return None
        return HandlerOutcome(result, "replayed")

    def _patience(self) -> float:
        """How long to wait for the same call elsewhere."""
        longest = self._config.lease.total_seconds()
        return min(self._limits().seconds() or longest, longest)

    def _limits(self) -> HandlerLimits:
        return HandlerLimits(self._admitted.tool.timeout, self._run.deadline)

    def _gave_up(self) -> HandlerOutcome:
        name, deadline = self._admitted.tool.name, self._run.deadline
        if deadline is not None and deadline.remaining() < _AT_ONCE:
            return HandlerOutcome(ToolResult.error(f"The deadline has passed, so '{name}' was not run."), "deadline")
        return HandlerOutcome(ToolResult.error(busy_text(name)), "unknown")

    def _unknown(self, why: str, error: BaseException | None = None) -> HandlerOutcome:
        return HandlerOutcome(
            ToolResult.error(unknown_text(self._admitted.tool.name, why, self._config)), "unknown", error
        )

    def _still_running(self) -> HandlerOutcome:
        return HandlerOutcome(ToolResult.error(running_text(self._admitted.tool.name)), "unknown")

    async def remember(self, ended: HandlerOutcome, savepoint: Savepoint) -> tuple[HandlerOutcome, CallContext]:
        """Tell the ledger how the handler ended; what that makes of the call, and the context to settle it with.

        No exception leaves this.
        """
        held = self._held
        if held is not None:
            try:
                ended = await self._record(held, ended, savepoint)
            finally:
                end_running(held)
        return ended, self._context

    async def _record(self, held: LedgerLease, ended: HandlerOutcome, savepoint: Savepoint) -> HandlerOutcome:
        try:
            if ended.outcome == "succeeded":
                return await self._succeeded(held, ended)
            if ended.outcome in _GAVE_UP and keep_claim(held, lambda: self._record_late(held)):
                return self._in_doubt(ended, running_text(self._admitted.tool.name))
            end = held.watch.take_end()
            if ended.outcome in _GAVE_UP and end is not None:  # it ended in the moment in which it was given up on
                return await self._ended_at_last(held, ended, end)
            if self._nothing_happened(ended):
                await self._in_ledger(held.forget)
                return ended
            return await self._doubted(held, ended, savepoint)
        except Exception as error:  # noqa: BLE001 - a ledger that cannot be used is not a reason to undo what happened
            what = f"How {held.key} ended could not be recorded; it will count as unknown"
            log_crash(logger, what, error, self._run.log_extra)
            return ended
        except BaseException as error:  # noqa: BLE001 - settled as interrupted, then passed on
            return interrupted(error)

    def _nothing_happened(self, ended: HandlerOutcome) -> bool:
        """Whether the call may be tried again: the handler says so, never began, or may be run any number of times."""
        return ended.outcome in _SAID_SO or isinstance(ended.error, NotBegun) or self._config.on_exception == "retry"

    def _record_late(self, held: LedgerLease) -> None:
        """Say how a handler ended that was given up on; in a thread of its own, when everything else is over."""
        end = held.watch.take_end()
        assert end is not None
        self._write_end(held, ended_late(end, self._admitted.tool, self._run))

    def _write_end(self, held: LedgerLease, real: HandlerOutcome) -> None:
        if real.outcome == "succeeded":
            held.finish(store_result(real.result, self._admitted.tool.result_type), self._config.ttl)
        elif self._nothing_happened(real):
            held.forget()
        else:
            held.doubt(_storable(_why(real)))

    async def _ended_at_last(self, held: LedgerLease, ended: HandlerOutcome, end: HandlerEnd) -> HandlerOutcome:
        """The call was given up on, so it is undone; but the ledger knows how the handler ended."""
        real = ended_late(end, self._admitted.tool, self._run)
        if real.outcome != "succeeded" and not self._nothing_happened(real):
            real = ended  # it was stopped: that, and not what stopped it, is what operators should read
        await self._in_ledger(lambda: self._write_end(held, real))
        if real.outcome == "succeeded":
            return self._in_doubt(ended, ended_text(self._admitted.tool.name))
        return ended if self._nothing_happened(real) else self._in_doubt(ended)

    async def _succeeded(self, held: LedgerLease, ended: HandlerOutcome) -> HandlerOutcome:
        stored = store_result(ended.result, self._admitted.tool.result_type)
        if stored.problem:
            logger.warning(
                "A replay of %s will lack its value: %s", held.key, stored.problem, extra=self._run.log_extra
            )
        try:
            await self._in_ledger(lambda: held.finish(stored, self._config.ttl))
        except LeaseLostError as error:
            what = f"{held.key} took longer than its lease, and was taken over"
            log_crash(logger, what, error, self._run.log_extra)
            why = "it took longer than its lease, and another process took it over"
            return self._unknown(why, error)
        return ended

    async def _doubted(self, held: LedgerLease, ended: HandlerOutcome, savepoint: Savepoint) -> HandlerOutcome:
        await self._in_ledger(lambda: held.doubt(_storable(_why(ended))))
        if ended.outcome == "crashed" and ended.raises is None and self._config.reconcile is not None:
            found = await self._after_crash(held, ended, savepoint)
            if found is not None:
                return found
        return self._in_doubt(ended)

    def _in_doubt(self, ended: HandlerOutcome, text: str = "") -> HandlerOutcome:
        """The same end of the call, saying that its effect may have happened."""
        text = text or unknown_text(self._admitted.tool.name, "", self._config)
        outcome = "unknown" if ended.outcome in {"crashed", "timeout"} and ended.raises is None else ended.outcome
        return HandlerOutcome(ToolResult.error(f"{ended.result.message}\n{text}"), outcome, ended.error, ended.raises)

    async def _after_crash(
        self, held: LedgerLease, ended: HandlerOutcome, savepoint: Savepoint
    ) -> HandlerOutcome | None:
        """The handler raised, so it is over: look the outcome up at once. None leaves it in doubt.

        When nothing happened the call has crashed like any other, and may be tried again.
        """
        ledger = self._run.ledger()
        token = await self._in_ledger(lambda: ledger.take_over(held.effect_id, held.token, held.lease))
        if token is None or self._asked is None:
            return None
        held = self._hold(self._asked, token)
        found = await self._reconcile(held)
        if found == "run":
            await self._in_ledger(held.forget)
            return ended
        if found is not None and found.outcome == "replayed":
            savepoint.start_over()  # what the handler left behind is not part of the result
            self._context.end(ended.outcome)
            self._context = self._context.writing()
        return found

    async def _in_ledger(self, step: Callable[[], T]) -> T:
        return step() if not self._run.ledger().blocks else await self._waiting.call(step)


def _why(ended: HandlerOutcome) -> str:
    """For operators: what happened instead of an end."""
    if ended.outcome == "timeout":
        return "it did not finish in time and was stopped"
    if ended.outcome == "deadline":
        return "the deadline passed while it was running"
    if ended.outcome == "cancelled":
        return "it was cancelled while it was running"
    return "it did not say how it ended" if ended.error is None else f"the handler raised {described(ended.error)}"


def _storable(why: str) -> str:
    """Short, and text that every database can hold."""
    return why[:_MAX_WHY].replace("\x00", "").encode("utf-8", "backslashreplace").decode()


__all__ = ["IdempotentCall"]
