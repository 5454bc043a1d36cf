"""One call, one transaction, one answer. The only place where the order of the stages exists.

    model -- ToolCall --> Request --> Screened --> Admitted --> Ran --> ToolReply --> model
               parse       screen       gate        invoke    settle

1. parse    (admission.py)     look up the tool, check the arguments; nothing is touched
2. screen   (admission.py)     repetitions, the deadline, the budget; nothing is touched
3. open     (transactions.py)  wait for the session and the files, remember everything
4. gate     (admission.py)     the policies, which see what the handler will see
5. claim    (idempotent.py)    idempotent tools alone: what happened before is answered, not repeated
6. invoke   (invoke.py)        the handler, within its limits; its errors become results here
7. record   (idempotent.py)    idempotent tools alone: it happened, it did not, or the outcome is unknown
8. settle   (finish.py)        route the value, tell the policies, keep or undo, tell subscribers, undo if one of
                               them failed, record the event with the final outcome, answer
   conclude (finish.py)        the same end for a call that was not admitted

Read-only tools overlap: they share the locks while their handlers run and begin to write, in the model's order,
only when they are settled.
"""

from __future__ import annotations

from concurrent.futures import Future

from ..prompt.policy import may_overlap
from .admission import gate, parse, screen
from .call import KEPT, Admitted, Ran, Refused, ToolCall, ToolReply
from .contexts import call_context
from .finish import abort, conclude, conclude_now, settle
from .idempotent import Once
from .invoke import invoke, start, too_late, unopened
from .run import Run
from .transactions import Savepoint
from .waiting import OutOfTime, Waiting


async def dispatch(call: ToolCall, run: Run, waiting: Waiting, before: Future[None] | None = None) -> ToolReply:
    """Run one call; `before` is done once the call that it must not overtake is settled.

    Raises only what must reach the caller (Ctrl-C, cancellation, the end of the evaluation, an expansion, a failed
    undo), and only after the call was undone and its event recorded.
    """
    savepoint = params = None
    try:
        screened = screen(parse(call, run), run)
        request, tool, _, _ = screened
        params, read_only = request.params, tool.annotations.read_only
        shared = read_only and may_overlap(request.bound.policies)
        savepoint = run.savepoint()
        if waiting.may_vanish:
            savepoint.place_here()
        if not savepoint.open_now(shared):
            await waiting.open(savepoint, shared=shared, seconds=run.remaining())
        admitted = screened if type(screened) is Admitted else await gate(screened, run, waiting)
        owner = savepoint.owner
        around = None if owner.around is None else savepoint.around()
        context = savepoint.call = call_context(request, run, not read_only, around, owner)
        once = None if tool.idempotency is None else Once(admitted, context, run, waiting)
        ran = None if once is None else await once.claim()
        if ran is None:
            ran = start(admitted, context, run, waiting)
            if not isinstance(ran, Ran):
                ran = await invoke(admitted, context, ran, run, waiting)
            if once is not None:
                ran, context = await once.record(ran, savepoint)
        if read_only:
            if shared:
                ran = await _begin_to_write(admitted, ran, savepoint, run, waiting, before)
            context.end(ran.outcome)
            context = context.writing()
        return await settle(admitted, ran, context, savepoint, run, waiting)
    except Refused as refused:
        if savepoint is not None:
            savepoint.close()
        try:
            if before is not None:
                await waiting.turn(before)
        except BaseException:
            conclude_now(call, refused, run)
            raise
        return await conclude(call, refused, run, waiting)
    except OutOfTime:
        late = Refused("deadline", too_late(call.name).result.message, params=params)
        return await conclude(call, late, run, waiting)
    except BaseException as error:
        if savepoint is not None and savepoint.settled:
            raise
        return abort(call, params, error, savepoint, run)
    finally:
        if savepoint is not None:
            savepoint.close()


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
        return too_late(admitted.tool.name)
    except BaseException as error:  # noqa: BLE001 - settled like what a handler raises
        return unopened(error, admitted, run)
    return ran


__all__ = ["dispatch"]
