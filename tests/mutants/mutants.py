"""Seeded faults in the engine. Each is one replacement in one file; the suite must notice every one of them.

A mutant that no longer applies is an error: adapt it to the new text, so that the fault it seeds stays the same.
"""
# ruff: noqa: E501 - the text of the files as it stands

from __future__ import annotations

from tests.mutants import (
    answer_mutants,
    call_mutants,
    data_mutants,
    file_mutants,
    interrupt_mutants,
    private_mutants,
    record_mutants,
    server_mutants,
    session_mutants,
    tool_mutants,
    work_mutants,
)
from tests.mutants.mutant import Mutant

MUTANTS = [
    *call_mutants.MUTANTS,
    *answer_mutants.MUTANTS,
    *data_mutants.MUTANTS,
    *server_mutants.MUTANTS,
    *interrupt_mutants.MUTANTS,
    *private_mutants.MUTANTS,
    *record_mutants.MUTANTS,
    *session_mutants.MUTANTS,
    *tool_mutants.MUTANTS,
    *work_mutants.MUTANTS,
    *file_mutants.MUTANTS,
    # Transactions.
    Mutant(
        "a failed call is not undone",
        "runtime/finish.py",
        "    try:\n        savepoint.undo()\n    except RollbackError as error:",
        "    try:\n        savepoint.keep()\n    except RollbackError as error:",
    ),
    Mutant(
        "the session is not restored",
        "runtime/transactions.py",
        'interrupt = _attempt(causes, "session", restore_session, log_extra)',
        "interrupt: BaseException | None = None",
    ),
    Mutant(
        "resources are not restored",
        "runtime/transactions.py",
        "    for part, taken in reversed(parts):\n        known",
        "    for part, taken in ():\n        known",
    ),
    Mutant(
        "the first participant that fails ends the round",
        "runtime/transactions.py",
        '            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error\n            return',
        '            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error\n'
        '            raise RollbackError("1 of 1", causes=causes)\n            return',
    ),
    Mutant(
        "what was born in a failed call stays",
        "runtime/transactions.py",
        "if context is not None and context.mark() != mark:",
        "if context is None:",
    ),
    Mutant(
        "a failed undo is kept quiet",
        "runtime/transactions.py",
        "    if causes:\n        listed",
        "    if causes and False:\n        listed",
    ),
    Mutant(
        "Ctrl-C in a restore is not tried again",
        "runtime/transactions.py",
        "    for _ in range(2):\n        try:\n            step()",
        "    for _ in range(1):\n        try:\n            step()",
    ),
    Mutant(
        "closing keeps what nobody decided about",
        "runtime/transactions.py",
        "                with suppress(StaleCallError):\n                    self.undo()",
        "                with suppress(StaleCallError):\n                    self.keep()",
    ),
    Mutant(
        "snapshots of resources are never released",
        "runtime/transactions.py",
        "        if parts:\n            release_parts(parts, self._log_extra)",
        "        if parts and False:\n            release_parts(parts, self._log_extra)",
    ),
    Mutant(
        "locks are never given back",
        "runtime/transactions.py",
        "                    close_savepoint(self.session, self.owner)\n            finally:\n                self.release()",
        "                    close_savepoint(self.session, self.owner)\n            finally:\n                pass",
    ),
    Mutant(
        "a snapshot that fails leaves the locks taken",
        "runtime/transactions.py",
        "            self.decided = True  # nothing was changed yet\n            self.close()\n            raise",
        "            raise",
    ),
    Mutant(
        "resources take no part",
        "runtime/transactions.py",
        "                if parts:\n                    self._parts = snapshots_of(",
        "                if not parts:\n                    self._parts = snapshots_of(",
    ),
    Mutant(
        "validate is not asked",
        "runtime/blocks.py",
        "self.committed = error is None and (self._validate is None or bool(self._validate()))",
        "self.committed = error is None",
    ),
    Mutant(
        "an exception commits the block",
        "runtime/blocks.py",
        "self.committed = error is None and (",
        "self.committed = (error is None or True) and (",
    ),
    # Locks.
    Mutant(
        "the lock of the session is not taken",
        "runtime/locks.py",
        "in_order([lock_of(root_of(session)), *map(lock_of, map(files_behind, parts))])",
        "in_order([*map(lock_of, map(files_behind, parts))])",
    ),
    Mutant(
        "the locks of files are not taken",
        "runtime/locks.py",
        "in_order([lock_of(root_of(session)), *map(lock_of, map(files_behind, parts))])",
        "in_order([lock_of(root_of(session))])",
        by=("tests/runtime/test_locks.py",),
    ),
    Mutant(
        "writers share",
        "runtime/locks.py",
        "if not (shared and self._readers):",
        "if not self._readers:",
    ),
    # The fence.
    Mutant(
        "the session's handle outlives its call",
        "runtime/contexts.py",
        '                cast("Fence", fence).close(reason)',
        "                pass",
    ),
    Mutant(
        "a handle asked for late works",
        "runtime/contexts.py",
        "        if self._over is not None:  # closed before another thread can get it, or that one could still write",
        "        if False:",
    ),
    Mutant(
        "resources of the call are not closed",
        "runtime/contexts.py",
        "            if scope is not None:\n                scope.close()",
        "            if scope is None:\n                raise AssertionError",
    ),
    Mutant(
        "files are not fenced",
        "runtime/contexts.py",
        "guarded = self._guarded[resource_type] = self._view(found, self._guard)",
        "guarded = self._guarded[resource_type] = found",
    ),
    Mutant(
        "read-only tools get handles that write",
        "runtime/contexts.py",
        "        if not self._writes:\n            return self._run",
        "        if False:\n            return self._run",
    ),
    Mutant(
        "policies get a context that writes",
        "runtime/admission.py",
        "context = CallContext(request, run, False)",
        "context = CallContext(request, run, True)",
    ),
    # Parsing and the gate.
    Mutant(
        "an id may come twice",
        "runtime/admission.py",
        "if refused is not None:",
        "if refused is not None and not refused.duplicate:",
    ),
    Mutant(
        "a missing id is let through",
        "runtime/admission.py",
        "if not isinstance(call_id, str) or not call_id:",
        "if False:",
    ),
    Mutant("a tool without a handler is called", "runtime/admission.py", "if bound.tool.handler is None:", "if False:"),
    Mutant(
        "policies are not asked",
        "runtime/admission.py",
        "    if policies:\n        context",
        "    if False:\n        context",
    ),
    Mutant(
        "a refusal of a policy is ignored",
        "runtime/admission.py",
        "    if text is not None:\n",
        "    if text is None and False:\n",
    ),
    Mutant(
        "the deadline is not looked at",
        "runtime/admission.py",
        "    if run.deadline is not None and run.deadline.expired:\n        raise _too_late(tool.name, params)\n    if run.budget",
        "    if run.budget",
    ),
    Mutant(
        "repetitions are not stopped",
        "runtime/admission.py",
        "repeats >= limit:",
        "repeats > 10 * limit:",
    ),
    Mutant(
        "repetitions are stopped too early",
        "runtime/admission.py",
        "repeats >= limit:",
        "repeats + 1 >= limit:",
    ),
    Mutant("repetitions are not told", "runtime/finish.py", "_TELL_REPEATS = 3", "_TELL_REPEATS = 4"),
    # Invoking.
    Mutant(
        "ToolValidationError is taken for a bug",
        "runtime/invoke.py",
        "if isinstance(error, ToolError):",
        "if isinstance(error, str):",
    ),
    Mutant(
        "Ctrl-C is swallowed",
        "runtime/invoke.py",
        'return HandlerOutcome(ToolResult.error("The call was interrupted."), "cancelled", error, error)',
        'return HandlerOutcome(ToolResult.error("The call was interrupted."), "cancelled", error, None)',
    ),
    Mutant(
        "the end of the evaluation is swallowed",
        "runtime/invoke.py",
        'return HandlerOutcome(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, error)',
        'return HandlerOutcome(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, None)',
    ),
    Mutant("an expansion is swallowed", "runtime/invoke.py", '"expanded", error, error)', '"expanded", error, None)'),
    Mutant(
        "any result counts as a success",
        "runtime/invoke.py",
        "    if found.success:\n",
        "    if True:\n",
    ),
    Mutant(
        "what is no ToolResult passes",
        "runtime/invoke.py",
        "    if not isinstance(result, ToolResult):\n",
        "    if result is None:\n",
    ),
    Mutant(
        "credentials reach the model",
        "runtime/invoke.py",
        "redact(text_of(error)[:_MAX_ERROR_CHARS])",
        "text_of(error)[:_MAX_ERROR_CHARS]",
    ),
    Mutant("errors cannot be hidden", "runtime/invoke.py", "if run.hide_errors:", "if False:"),
    # Settling.
    Mutant(
        "the event of an admitted call is not recorded",
        "runtime/finish.py",
        "    keep_and_log(told.event, savepoint, run)\n    return",
        "    savepoint.settled = True\n    if told.event.success:\n        savepoint.keep()\n    return",
    ),
    Mutant(
        "the event of a refused call is not recorded",
        "runtime/conclude.py",
        "    finally:\n        keep_and_log(event, None, run)\n",
        "    finally:\n        pass\n",
    ),
    Mutant(
        "subscribers are not told of refusals",
        "runtime/conclude.py",
        "            run.tell(event)\n        elif run.dispatch_if_unsubscribed",
        "            pass\n        elif run.dispatch_if_unsubscribed",
    ),
    Mutant(
        "a subscriber that fails undoes nothing",
        "runtime/finish.py",
        "failed = dispatched.errors[0][1] if dispatched.errors else None",
        "failed = None",
    ),
    Mutant(
        "subscribers hear before the undo",
        "runtime/finish.py",
        '    return await _undo(Accepted(admitted, ended, "", changes), savepoint, run, steps)\n',
        '    run.tell(_event(Accepted(admitted, ended, "", changes), savepoint, run))\n    return await _undo(Accepted(admitted, ended, "", changes), savepoint, run, steps)\n',
    ),
    Mutant(
        "the value is not routed",
        "runtime/finish.py",
        "                    session.dispatch_value(result.value)\n",
        "                    pass\n",
    ),
    Mutant(
        "a failed result is routed",
        "runtime/finish.py",
        "    if ended.outcome in KEPT:\n        try:\n            if result.value",
        '    if ended.outcome in {"succeeded", "failed"}:\n        try:\n            if result.value',
    ),
    Mutant(
        "on_result is not called",
        "runtime/finish.py",
        "            if listeners and steps is not None:\n",
        "            if not listeners and steps is not None:\n",
    ),
    Mutant(
        "the reply does not say what was undone",
        "runtime/finish.py",
        "    if changes:\n        text = ",
        "    if False:\n        text = ",
    ),
    Mutant(
        "what must propagate does not",
        "runtime/finish.py",
        "    if ended.raises is not None:\n        raise ended.raises\n",
        "",
    ),
    Mutant("handles do not end", "runtime/finish.py", "        context.end(ended.outcome)\n", "        pass\n"),
    Mutant(
        "unexpected exceptions are no errors",
        "runtime/finish.py",
        'frozenset({"crashed", "undone", "unknown"})',
        'frozenset({"undone", "unknown"})',
    ),
    Mutant(
        "a reducer of the log that fails loses the event",
        "runtime/finish.py",
        "        if log.latest() is not event:\n            log.append(event)\n",
        "",
    ),
    # The pipeline.
    Mutant(
        "the savepoint is not closed",
        "runtime/dispatch.py",
        "    finally:\n        if savepoint is not None:\n            savepoint.close()\n",
        "    finally:\n        pass\n",
    ),
    Mutant(
        "an interrupt in the engine is not undone",
        "runtime/conclude.py",
        "        try:\n            savepoint.undo()\n        except RollbackError as failed:",
        "        try:\n            savepoint.keep()\n        except RollbackError as failed:",
    ),
    Mutant(
        "read-only calls keep to no order",
        "runtime/dispatch.py",
        'if before is not None and ended.outcome != "cancelled":',
        "if before is None:",
    ),
    Mutant(
        "a read-only call does not begin to write",
        "runtime/dispatch.py",
        "            await savepoint.open(waiting, seconds=run.remaining())\n    except OutOfTime:\n        return too_late",
        "            pass\n    except OutOfTime:\n        return too_late",
    ),
    # The turn.
    Mutant(
        "quick calls overlap",
        "runtime/turn.py",
        "return _is_slow.get(tool) is not False",
        "return True",
        ("tests/runtime/test_turns.py",),
    ),
    Mutant(
        "slow calls do not overlap",
        "runtime/turn.py",
        "is_slow = seconds >= _WORTH_IT",
        "is_slow = False",
        ("tests/runtime/test_turns.py",),
    ),
    Mutant("writing calls overlap", "prompt/tree.py", "self.tool.annotations.read_only and may_", "may_"),
    Mutant(
        "any policy may overlap",
        "prompt/policy.py",
        "return all(as_policy(policy).overlaps is True for policy in policies)",
        "return True",
    ),
    Mutant(
        "the call that ends a turn has no answer",
        "runtime/turn.py",
        "that it did not begin\n        self._answer(reply)\n",
        "that it did not begin\n            return\n        self._answer(reply)\n",
    ),
    # Cut results.
    Mutant("results are not capped", "runtime/finish.py", "if len(text) > tool.max_result_chars:", "if False:"),
    Mutant(
        "refusals are not capped",
        "runtime/conclude.py",
        "run.truncated.truncate_for(name, call_id, refused.text)",
        "refused.text",
    ),
    Mutant("texts are kept for ever", "runtime/truncation.py", "while len(self._texts) > 1 and (", "while False and ("),
    # Native tools.
    Mutant(
        "native tools mix",
        "runtime/tracker.py",
        "if is_busy or (savepoint is not None and not savepoint.try_open()):",
        "if savepoint is not None and not savepoint.try_open() and False:",
    ),
    Mutant(
        "a native tool that failed stays",
        "runtime/tracker.py",
        'HandlerOutcome(result, "succeeded" if success else "failed")',
        'HandlerOutcome(result, "succeeded")',
    ),
]

EQUIVALENT: dict[str, str] = {}
"""Mutants that no test can notice, and why."""
