"""One call, one transaction, one answer. The only place where the order of the stages exists.

    model -- ToolCall --> Request --> Admitted --> Ran --> ToolReply --> model
               parse        gate       invoke    settle

1. parse    (parse.py)         look up the tool, check the arguments; nothing is touched
2. gate     (gate.py)          repetitions, policies, the deadline; nothing is touched
3. open     (transactions.py)  wait for the session and the files, remember everything
4. claim    (once.py)          idempotent tools alone: what happened before is answered, not repeated
5. invoke   (invoke.py)        the handler, within its limits; its errors become results here
6. record   (once.py)          idempotent tools alone: it happened, it did not, or nobody knows
7. settle   (settle.py)        route the value, tell the policies, keep or undo, tell subscribers, undo if one of
                               them failed, record the event with the final outcome, answer
   conclude (settle.py)        the same end for a call that was not admitted

Read-only tools overlap: they share the locks while their handlers run and begin to write, in the model's order,
only when they are settled.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import ExitStack

from ..errors import StaleCallError
from ..fence import Fence, Guard
from ..results import ToolResult
from .call import KEPT, Admitted, Ran, Refused, ToolCall, ToolReply
from .contexts import CallContext, call_context
from .gate import gate
from .invoke import invoke, start, too_late, unopened
from .once import Once
from .parse import parse
from .run import Run
from .settle import abort, conclude, settle
from .transactions import Savepoint
from .waiting import OutOfTime, Waiting


async def dispatch(call: ToolCall, run: Run, waiting: Waiting, before: Future[None] | None = None) -> ToolReply:
    """Run one call; `before` is done once the call that it must not overtake is settled.

    Raises only what must reach the caller (Ctrl-C, cancellation, the end of the evaluation, an expansion, a failed
    undo), and only after the call was undone and its event recorded.
    """
    try:
        admitted = gate(parse(call, run), run)
        savepoint = run.savepoint()
    except Refused as refused:
        try:
            if before is not None:
                await waiting.turn(before)
        finally:
            reply = conclude(call, refused, run)
        return reply
    except BaseException as error:  # noqa: BLE001 - Ctrl-C in a policy, say: recorded, then passed on
        return abort(call, None, error, run)

    request, read_only = admitted.request, admitted.tool.annotations.read_only
    try:
        if not savepoint.open_now(read_only):
            await waiting.open(savepoint, shared=read_only, seconds=run.remaining())
        around = savepoint.around()
        context = savepoint.call = call_context(request, run, not read_only, around, savepoint.owner)
        once = None if admitted.tool.idempotency is None else Once(admitted, context, run, waiting)
        ran = None if once is None else await once.claim()
        if ran is None:
            ran = start(admitted, context, run)
            if not isinstance(ran, Ran):
                ran = await invoke(admitted, context, ran, run, waiting)
            if once is not None:
                ran, context = await once.record(ran, savepoint)
        if read_only:
            ran = await _begin_to_write(admitted, ran, savepoint, run, waiting, before)
            context.end(ran.outcome)
            context = call_context(request, run, True, None, savepoint.owner)
        if around is not None:
            return _settle_inside(around, admitted, ran, context, savepoint, run)
        return settle(admitted, ran, context, savepoint, run)
    except OutOfTime:
        return conclude(call, Refused("deadline", too_late(admitted.tool).result.message, params=request.params), run)
    except BaseException as error:
        if savepoint.settled:
            raise
        savepoint.undo()
        return abort(call, request.params, error, run)
    finally:
        savepoint.close()


def _settle_inside(  # noqa: PLR0917 - what settle takes, and one more
    around: Guard, admitted: Admitted, ran: Ran, context: CallContext, savepoint: Savepoint, run: Run
) -> ToolReply:
    """Settle while the call around this one cannot end; if it has, that decided about this one too."""
    with ExitStack() as stack:
        if isinstance(around, Fence):
            try:
                stack.enter_context(around)
            except StaleCallError as error:
                savepoint.forget()
                ran = Ran(ToolResult.error(str(error)), "cancelled", error)
        return settle(admitted, ran, context, savepoint, run)


async def _begin_to_write(  # noqa: PLR0917 - what the one call above has
    admitted: Admitted, ran: Ran, savepoint: Savepoint, run: Run, waiting: Waiting, before: Future[None] | None
) -> Ran:
    """A read-only call takes its turn and, if it has something to keep, the locks for its own.

    One that was stopped waits for nobody; one that failed only for its place in the order.
    """
    savepoint.let_go()
    try:
        if before is not None and ran.outcome != "cancelled":
            await waiting.turn(before)
        if ran.outcome in KEPT:
            await waiting.open(savepoint, shared=False, seconds=run.remaining())
    except OutOfTime:
        return too_late(admitted.tool)
    except BaseException as error:  # noqa: BLE001 - settled like what a handler raises
        return unopened(error, admitted, run)
    return ran


__all__ = ["dispatch"]
