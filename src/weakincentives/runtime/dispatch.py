"""One call, one transaction, one answer. The only place where the order of the stages exists.

    ToolCall -> Request -> Admitted -> HandlerOutcome -> Accepted -> Told -> Committed -> ToolReply
          parse       gate        invoke           accept      tell    commit       finish

1. parse    (admission.py)     the tool, the arguments, repetitions, deadline and budget; nothing is touched
2. open     (transactions.py)  wait for the session and the files, remember everything
3. gate     (admission.py)     the policies, which see what the handler will see
4. recall   (idempotent.py)    idempotent tools only: what happened before is answered, not repeated
5. invoke   (invoke.py)        the handler, within its limits; its errors become outcomes here
6. remember (idempotent.py)    idempotent tools only: it happened, it did not, or the outcome is unknown
7. accept   (finish.py)        the value to its reducers, the result to the policies, the text; a failure is undone
8. tell     (finish.py)        the event to its subscribers; one that fails undoes the call
9. commit   (finish.py)        the run record, if there is one; keep what was changed, and log the event
10. finish  (finish.py)        the reply, or what must reach the caller

    conclude (conclude.py)     the end of a call that was not admitted: one event, one reply, nothing to undo
    abort    (conclude.py)     the end of a call that could not be carried out

Read-only tools overlap: they share the locks while their handlers run and begin to write, in the model's order,
only when they are accepted.
"""

from __future__ import annotations

from concurrent.futures import Future

from ..fence import recorder_around
from ..waiting import OutOfTime, Waiting
from .admission import gate, parse
from .call import KEPT, Admitted, HandlerOutcome, Refused, ToolCall, ToolReply
from .conclude import abort, conclude, conclude_now
from .contexts import CallContext
from .finish import accept, commit, finish, tell
from .idempotent import IdempotentCall
from .invoke import invoke, too_late, unopened
from .run import Run
from .transactions import Savepoint


async def dispatch(call: ToolCall, run: Run, waiting: Waiting, before: Future[None] | None = None) -> ToolReply:
    """Run one call; `before` is done once the call that it must not overtake has ended.

    Raises only what must reach the caller (Ctrl-C, cancellation, the end of the evaluation, an expansion, a failed
    undo), and only after the call was undone and its event recorded.
    """
    savepoint = params = None
    try:
        request = parse(call, run)
        params, tool = request.params, request.bound.tool
        read_only = tool.annotations.read_only
        shared = request.bound.overlaps
        savepoint = run.savepoint()
        savepoint.owner.only_through_api = read_only or not tool.annotations.starts_programs
        if not savepoint.try_open(waiting, shared):  # most calls find their locks free
            await savepoint.open(waiting, shared, run.remaining())
        admitted = await gate(request, run, waiting)
        context = savepoint.call = CallContext(request, run, not read_only, savepoint)
        effect = None if tool.idempotency is None else IdempotentCall(admitted, context, run, waiting)
        ended = None if effect is None else await effect.recall()
        if ended is None:
            recorder = savepoint.owner.recorder = run.recorder or recorder_around(savepoint.owner.around)
            if recorder is not None:
                await recorder.started(call, tool, savepoint, waiting)
            ended = await invoke(admitted, context, run, waiting)
            if effect is not None:
                ended, context = await effect.remember(ended, savepoint)
        if shared:
            ended = await _begin_to_write(admitted, ended, savepoint, run, waiting, before)
        if read_only:
            context.end(ended.outcome)
            context = context.writing()
        accepted = await accept(admitted, ended, context, savepoint, run, waiting)
        told = await tell(accepted, savepoint, run, waiting)
        committed = await commit(told, savepoint, run, waiting)
        return finish(committed, run)
    except Refused as refused:
        if savepoint is not None:
            savepoint.close()
        try:
            if before is not None:
                await waiting.until(before)
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
    admitted: Admitted,
    ended: HandlerOutcome,
    savepoint: Savepoint,
    run: Run,
    waiting: Waiting,
    before: Future[None] | None,
) -> HandlerOutcome:
    """A read-only call waits for its turn and, if it has something to keep, for the locks of its own.

    A cancelled call does not wait. A failed one waits only for its turn, not for the locks.
    """
    savepoint.release()
    try:
        if before is not None and ended.outcome != "cancelled":
            await waiting.until(before)
        if ended.outcome in KEPT:
            await savepoint.open(waiting, seconds=run.remaining())
    except OutOfTime:
        return too_late(admitted.tool.name)
    except BaseException as error:  # noqa: BLE001 - ends the call as what a handler raises does
        return unopened(error, admitted, run)
    return ended
