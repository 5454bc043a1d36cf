"""One call, one transaction, one answer. The only place where the order of the stages exists.

    model -- ToolCall --> Request --> Admitted --> Ran --> ToolReply --> model
               parse        gate       invoke    settle

1. parse    (parse.py)         look up the tool, check the arguments; nothing is touched
2. gate     (gate.py)          repetitions, policies, the deadline; nothing is touched
3. open     (transactions.py)  wait for the session and the files, remember everything
4. invoke   (invoke.py)        the handler, within its limits; its errors become results here
5. settle   (settle.py)        route the value, tell the policies, keep or undo, tell subscribers, undo if one of
                               them failed, record the event with the final outcome, answer
   conclude (settle.py)        the same end for a call that was not admitted

Read-only tools overlap: they share the locks while their handlers run and begin to write, in the model's order,
only when they are settled.
"""

from __future__ import annotations

from concurrent.futures import Future

from .call import Ran, Refused, ToolCall, ToolReply
from .contexts import CallContext
from .gate import gate
from .invoke import invoke, start, unopened
from .parse import parse
from .run import Run
from .settle import abort, conclude, settle
from .transactions import Savepoint
from .waiting import Waiting


async def dispatch(call: ToolCall, run: Run, waiting: Waiting, before: Future[None] | None = None) -> ToolReply:
    """Run one call; `before` is done once the call that it must not overtake is settled.

    Raises only what must reach the caller (Ctrl-C, cancellation, the end of the evaluation, an expansion, a failed
    undo), and only after the call was undone and its event recorded.
    """
    try:
        admitted = gate(parse(call, run), run)
        savepoint = Savepoint(run.session, run.resources, run.locks())
    except Refused as refused:
        if before is not None:
            await waiting.turn(before)
        return conclude(call, refused, run)
    except BaseException as error:  # noqa: BLE001 - Ctrl-C in a policy, say: recorded, then passed on
        return abort(call, None, error, run)

    request, read_only = admitted.request, admitted.tool.annotations.read_only
    try:
        if not savepoint.open_now(read_only):
            await waiting.open(savepoint, shared=read_only)
        context = CallContext(request, run, not read_only)
        ran = start(admitted, context, run)
        if not isinstance(ran, Ran):
            ran = await invoke(admitted, context, ran, run, waiting)
        if read_only:
            failed = await _begin_to_write(savepoint, waiting, before)
            if failed is not None:
                ran = unopened(failed, admitted, run)
            context.end(ran.outcome)
            context = CallContext(request, run, True)
        return settle(admitted, ran, context, savepoint, run)
    except BaseException as error:
        if savepoint.settled:
            raise
        savepoint.undo()
        return abort(call, request.params, error, run)
    finally:
        savepoint.close()


async def _begin_to_write(savepoint: Savepoint, waiting: Waiting, before: Future[None] | None) -> BaseException | None:
    """A read-only call takes its turn and the locks for its own, to be settled like any other; says what failed."""
    savepoint.let_go()
    try:
        if before is not None:
            await waiting.turn(before)
        await waiting.open(savepoint, shared=False)
    except BaseException as error:  # noqa: BLE001 - settled like what a handler raises
        return error
    return None


__all__ = ["dispatch"]
