"""Stages 4 and 6, for tools with an `IdempotencyConfig`: claim the call before its handler, record how it ended.

The ledger is never rolled back. What a handler says failed may be tried again; a success is recorded whatever becomes
of the call afterwards, because the effect has happened; after anything else nobody knows, and nobody may repeat it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeVar, cast, final

from ..errors import LeaseLostError, LedgerError
from ..prompt.handlers import read_handler
from ..results import ToolResult
from .call import Admitted, Ran, make
from .contexts import CallContext, call_context
from .effect_keys import Asked, asked_for
from .effect_texts import conflict_text, unknown_text
from .invoke import NotBegun, internal_error, interrupted
from .ledger.claims import Claim, Claimed, Conflict, Doubt, Replay
from .ledger.effect import LedgerEntry
from .ledger.held import Held
from .ledger.values import pack, unpack
from .recall import recall_answer
from .redaction import redact
from .run import Run
from .transactions import Savepoint
from .waiting import Limits, OutOfTime, Waiting

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_AT_ONCE = timedelta(milliseconds=10)
_SAID_SO = frozenset({"failed", "expanded"})
"""Outcomes by which a handler says that nothing happened."""


@final
class Once:
    """One call on its way through the ledger."""

    __slots__ = ("_admitted", "_asked", "_config", "_context", "_held", "_run", "_waiting")

    def __init__(self, admitted: Admitted, context: CallContext, run: Run, waiting: Waiting) -> None:
        config = admitted.tool.idempotency
        assert config is not None
        self._admitted = admitted
        self._config = config
        self._asked: Asked | None = None
        self._held: Held | None = None
        self._context = context
        self._run = run
        self._waiting = waiting

    async def claim(self) -> Ran | None:
        """The answer that the call gets without running; None when the handler is to run.

        A duplicate of a running call waits for that one's result. No exception leaves this.
        """
        try:
            asked = asked_for(self._admitted.request, self._run)
            if asked is None:
                return None
            ledger = self._run.ledger()
            if not ledger.blocks:  # the usual answers need no more than this
                found = ledger.claim(*asked)
                if isinstance(found, Replay):
                    return self._replay(found)
                if isinstance(found, Claimed):
                    self._hold(asked, found.token)
                    return None
            return await self._claim(asked)
        except LedgerError as error:
            logger.exception("The ledger cannot be used", extra=self._run.log_extra)
            text = f"'{self._admitted.tool.name}' was not run. {internal_error(error, self._run)}"
            return Ran(ToolResult.error(text), "crashed", error)
        except Exception as error:  # key functions are users' code
            logger.exception("No key for a call of %s", self._admitted.tool.name, extra=self._run.log_extra)
            return Ran(ToolResult.error(internal_error(error, self._run)), "crashed", error)
        except BaseException as error:  # noqa: BLE001 - settled as interrupted, then passed on
            return interrupted(error)

    async def _claim(self, asked: Asked) -> Ran | None:
        until, pause = time.monotonic() + self._patience(), _FIRST_PAUSE
        while True:
            found = await self._ask(asked)
            if isinstance(found, Claimed):
                self._hold(asked, found.token)
                return None
            if isinstance(found, Replay):
                return self._replay(found)
            if isinstance(found, Conflict):
                return Ran(ToolResult.error(conflict_text(self._admitted.tool.name, found.entry)), "conflict")
            if isinstance(found, Doubt):
                settled = await self._settle(asked, found.entry)
                if settled == "run":
                    return None
                if settled is not None:
                    return settled
                continue
            left = until - time.monotonic()
            if left <= 0:
                return self._gave_up()
            await self._waiting.pause(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _ask(self, asked: Asked) -> Claim:
        ledger = self._run.ledger()
        made: list[Claim] = []
        try:
            await self._in_ledger(lambda: made.append(ledger.claim(*asked)))
        except BaseException:
            if made and isinstance(made[0], Claimed):  # cancelled meanwhile: the handler has not begun
                ledger.forget(asked.effect_id, made[0].token)
            raise
        return made[0]

    def _replay(self, found: Replay) -> Ran:
        result = unpack(found.effect.stored, self._admitted.tool.result_type)
        return make(Ran, (result, "replayed", None, None))

    def _hold(self, asked: Asked, token: int) -> Held:
        self._asked = asked
        self._held = held = Held(self._run.ledger(), asked.effect_id, token, asked.lease)
        self._context.hold(held)
        return held

    async def _settle(self, asked: Asked, entry: LedgerEntry) -> Ran | Literal["run"] | None:
        """A call in doubt: run it again, look it up, or say that nobody knows. None when it changed meanwhile."""
        config = self._config
        if config.reconcile is None and config.on_exception != "retry":
            text = "The outcome of %s is unknown (%s); `wink ledger` settles it"
            logger.warning(text, entry.id.text, entry.why, extra=self._run.log_extra)
            why = entry.why if not self._run.hide_errors else "an earlier call did not end as it should"
            return Ran(ToolResult.error(unknown_text(self._admitted.tool.name, why, config)), "unknown")
        ledger = self._run.ledger()
        token = await self._in_ledger(lambda: ledger.take_over(asked.effect_id, entry.token, asked.lease))
        if token is None:
            return None
        held = self._hold(asked, token)
        return "run" if config.reconcile is None else await self._reconcile(held)

    async def _reconcile(self, held: Held) -> Ran | Literal["run"] | None:
        """Ask the world what happened; "run" when nothing did."""
        name = self._admitted.tool.name
        try:
            result = await self._look_up(held)
        except BaseException as error:
            why = "the lookup did not end in time" if isinstance(error, OutOfTime) else f"the lookup raised {error!r}"
            await self._in_ledger(lambda: held.doubt(redact(why)))
            if not isinstance(error, Exception):
                raise
            logger.exception("Looking up the outcome of %s failed", held.key, extra=self._run.log_extra)
            return Ran(
                ToolResult.error(unknown_text(name, "it could not be looked up", self._config)), "unknown", error
            )
        if result is None:
            return "run"
        if not isinstance(result, ToolResult):
            result = ToolResult[Any].error(f"the lookup gave a {type(result).__name__}")
        result = cast(ToolResult[Any], result)
        if result.success:
            return await self._found(held, result)
        why = result.message
        await self._in_ledger(lambda: held.doubt(why))
        return Ran(ToolResult.error(unknown_text(name, why, self._config)), "unknown")

    async def _look_up(self, held: Held) -> Any:
        assert self._config.reconcile is not None
        plan, params = read_handler(self._config.reconcile), self._admitted.request.params
        context = call_context(self._admitted.request, self._run, False)
        context.hold(held)
        try:
            seconds = self._limits().seconds()
            return await self._waiting.within(seconds, lambda: plan.call(params, context), is_async=plan.is_async)
        finally:
            context.end("succeeded")

    async def _found(self, held: Held, result: ToolResult[Any]) -> Ran | None:
        try:
            await self._in_ledger(lambda: held.finish(pack(result, self._admitted.tool.result_type), self._config.ttl))
        except LeaseLostError:
            return None
        return Ran(result, "replayed")

    def _patience(self) -> float:
        """How long to wait for the same call elsewhere."""
        longest = self._config.lease.total_seconds()
        return min(self._limits().seconds() or longest, longest)

    def _limits(self) -> Limits:
        return Limits(self._admitted.tool.timeout, self._run.deadline)

    def _gave_up(self) -> Ran:
        name, deadline = self._admitted.tool.name, self._run.deadline
        if deadline is not None and deadline.remaining() < _AT_ONCE:
            return Ran(ToolResult.error(f"The deadline has passed, so '{name}' was not run."), "deadline")
        text = (
            f"The same call of '{name}' is still running elsewhere, so it was not started again.\n"
            "Its outcome is not known yet. Call it again later with the same arguments to get its result."
        )
        return Ran(ToolResult.error(text), "unknown")

    async def record(self, ran: Ran, savepoint: Savepoint) -> tuple[Ran, CallContext]:
        """Tell the ledger how the handler ended; what that makes of the call, and the context to settle it with.

        No exception leaves this.
        """
        ran = ran if self._held is None else await self._record(self._held, ran, savepoint)
        return ran, self._context

    async def _record(self, held: Held, ran: Ran, savepoint: Savepoint) -> Ran:
        try:
            if ran.outcome == "succeeded":
                return await self._succeeded(held, ran)
            if ran.outcome in _SAID_SO or isinstance(ran.error, NotBegun) or self._config.on_exception == "retry":
                await self._in_ledger(held.forget)
                return ran
            return await self._doubted(held, ran, savepoint)
        except LedgerError:
            logger.exception(
                "How %s ended could not be recorded; it will count as unknown", held.key, extra=self._run.log_extra
            )
            return ran
        except BaseException as error:  # noqa: BLE001 - settled as interrupted, then passed on
            return interrupted(error)

    async def _succeeded(self, held: Held, ran: Ran) -> Ran:
        stored = pack(ran.result, self._admitted.tool.result_type)
        if stored.problem:
            logger.warning(
                "A replay of %s will lack its value: %s", held.key, stored.problem, extra=self._run.log_extra
            )
        try:
            await self._in_ledger(lambda: held.finish(stored, self._config.ttl))
        except LeaseLostError as error:
            logger.exception("%s took longer than its lease, and was taken over", held.key, extra=self._run.log_extra)
            why = "it took longer than its lease, and somebody else took it over"
            return Ran(ToolResult.error(unknown_text(self._admitted.tool.name, why, self._config)), "unknown", error)
        return ran

    async def _doubted(self, held: Held, ran: Ran, savepoint: Savepoint) -> Ran:
        why = _why(ran)
        await self._in_ledger(lambda: held.doubt(why))
        name = self._admitted.tool.name
        if ran.outcome == "crashed" and ran.raises is None and self._config.reconcile is not None:
            found = await self._after_crash(held, ran, savepoint)
            if found is not None:
                return found
        text = f"{ran.result.message}\n{unknown_text(name, '', self._config)}"
        outcome = "unknown" if ran.outcome in {"crashed", "timeout"} and ran.raises is None else ran.outcome
        return Ran(ToolResult.error(text), outcome, ran.error, ran.raises)

    async def _after_crash(self, held: Held, ran: Ran, savepoint: Savepoint) -> Ran | None:
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
            return ran
        if found is not None and found.outcome == "replayed":
            savepoint.start_over()  # what the handler left behind is not part of the result
            self._context.end(ran.outcome)
            self._context = call_context(self._admitted.request, self._run, True)
        return found

    async def _in_ledger(self, step: Callable[[], T]) -> T:
        return step() if not self._run.ledger().blocks else await self._waiting.call(step)


def _why(ran: Ran) -> str:
    """For operators: what happened instead of an end."""
    if ran.outcome == "timeout":
        return "it did not finish in time and was stopped"
    if ran.outcome == "deadline":
        return "the deadline passed while it was running"
    if ran.outcome == "cancelled":
        return "it was cancelled while it was running"
    return redact(f"the handler raised {type(ran.error).__name__}: {ran.error}")[:1000].replace("\x00", "")


__all__ = ["Once", "recall_answer"]
