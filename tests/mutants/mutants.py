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
        "runtime/participants.py",
        'interrupt = _attempt(causes, "session", restore_session, log_extra)',
        "interrupt: BaseException | None = None",
    ),
    Mutant(
        "resources are not restored",
        "runtime/participants.py",
        "    for part, taken in reversed(parts):\n        known",
        "    for part, taken in ():\n        known",
    ),
    Mutant(
        "the first participant that fails ends the round",
        "runtime/participants.py",
        '            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error\n            return',
        '            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error\n'
        '            raise RollbackError("1 of 1", causes=causes)\n            return',
    ),
    Mutant(
        "what was born in a failed call stays",
        "runtime/participants.py",
        "if context is not None and context.mark() != mark:",
        "if context is None:",
    ),
    Mutant(
        "a failed undo is kept quiet",
        "runtime/participants.py",
        "    if causes:\n        listed",
        "    if causes and False:\n        listed",
    ),
    Mutant(
        "Ctrl-C in a restore is not tried again",
        "runtime/participants.py",
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
        "                    close_savepoint(self.session, self.owner)\n            finally:\n                self.let_go()",
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
        "                if parts:\n                    self._parts = savepoints_of(",
        "                if not parts:\n                    self._parts = savepoints_of(",
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
        "runtime/transactions.py",
        "in_order([lock_of(root_of(session)), *map(lock_of, map(files_behind, parts))])",
        "in_order([*map(lock_of, map(files_behind, parts))])",
    ),
    Mutant(
        "the locks of files are not taken",
        "runtime/transactions.py",
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
        "runtime/participants.py",
        "guarded = self._guarded[resource_type] = GuardedFilesystem(found, self._guard)",
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
        "context = call_context(request, run, False)",
        "context = call_context(request, run, True)",
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
        "Screened if bound.policies else Admitted",
        "Admitted",
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
        "    if run.deadline is not None and run.deadline.expired:\n        raise _too_late(request)\n    if run.budget",
        "    if run.budget",
    ),
    Mutant(
        "repetitions are not stopped",
        "runtime/admission.py",
        "repeats >= tool.max_repeats:",
        "repeats > 10 * tool.max_repeats:",
    ),
    Mutant(
        "repetitions are stopped too early",
        "runtime/admission.py",
        "repeats >= tool.max_repeats:",
        "repeats + 1 >= tool.max_repeats:",
    ),
    Mutant("repetitions are not told", "runtime/accept.py", "_TELL_REPEATS = 3", "_TELL_REPEATS = 4"),
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
        'return Ran(ToolResult.error("The call was interrupted."), "cancelled", error, error)',
        'return Ran(ToolResult.error("The call was interrupted."), "cancelled", error, None)',
    ),
    Mutant(
        "the end of the evaluation is swallowed",
        "runtime/invoke.py",
        'return Ran(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, error)',
        'return Ran(ToolResult.error(f"The evaluation ended: {text}"), "crashed", error, None)',
    ),
    Mutant("an expansion is swallowed", "runtime/invoke.py", '"expanded", error, error)', '"expanded", error, None)'),
    Mutant(
        "any result counts as a success",
        "runtime/invoke.py",
        "if type(result) is ToolResult and result.success:",
        "if type(result) is ToolResult:",
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
        "    if around is None:\n        _record(event, run, savepoint)\n",
        "    if around is None:\n        savepoint.settled = True\n        if event.success:\n            savepoint.keep()\n",
    ),
    Mutant(
        "the event of a refused call is not recorded",
        "runtime/finish.py",
        "    finally:\n        _record(event, run)\n",
        "    finally:\n        pass\n",
    ),
    Mutant(
        "subscribers are not told of refusals",
        "runtime/finish.py",
        "            run.tell(event)\n        else:\n",
        "            pass\n        else:\n",
    ),
    Mutant(
        "a subscriber that fails undoes nothing",
        "runtime/finish.py",
        "failed = told.errors[0][1] if told.errors else None",
        "failed = None",
    ),
    Mutant(
        "subscribers hear before the undo",
        "runtime/finish.py",
        "    if ran.outcome not in KEPT:\n        ran, text = await _undo(admitted, ran, changes, savepoint, run, steps)\n"
        "    event = _event(call, params, ran, text, changes, admitted.started, run, savepoint)\n",
        "    event = _event(call, params, ran, text, changes, admitted.started, run, savepoint)\n"
        "    if ran.outcome not in KEPT:\n        ran, text = await _undo(admitted, ran, changes, savepoint, run, steps)\n",
    ),
    Mutant(
        "the value is not routed",
        "runtime/accept.py",
        "        if result.value is not None:\n            session.route(result.value)\n",
        "",
    ),
    Mutant(
        "a failed result is routed",
        "runtime/finish.py",
        '    text = ""\n    if ran.outcome in KEPT:\n',
        '    text = ""\n    if ran.outcome in {"succeeded", "failed"}:\n',
    ),
    Mutant(
        "on_result is not called",
        "runtime/accept.py",
        "        if bound.policies:\n            await notify",
        "        if not bound.policies:\n            await notify",
    ),
    Mutant(
        "the reply does not say what was undone",
        "runtime/finish.py",
        'return ran, f"{text}\\n{changes.describe_undone()}" if changes else text',
        "return ran, text",
    ),
    Mutant(
        "what must propagate does not", "runtime/finish.py", "    if raises is not None:\n        raise raises\n", ""
    ),
    Mutant("handles do not end", "runtime/finish.py", "        context.end(ran.outcome)\n", "        pass\n"),
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
        "runtime/finish.py",
        "        try:\n            savepoint.undo()\n        except RollbackError as failed:",
        "        try:\n            savepoint.keep()\n        except RollbackError as failed:",
    ),
    Mutant(
        "read-only calls keep to no order",
        "runtime/dispatch.py",
        'if before is not None and ran.outcome != "cancelled":',
        "if before is None:",
    ),
    Mutant(
        "a read-only call does not begin to write",
        "runtime/dispatch.py",
        "            await waiting.open(savepoint, shared=False, seconds=run.remaining())\n    except OutOfTime:\n        return too_late",
        "            pass\n    except OutOfTime:\n        return too_late",
    ),
    # The turn.
    Mutant("writing calls overlap", "runtime/executor.py", "bound.tool.annotations.read_only and may_", "may_"),
    Mutant(
        "any policy may overlap",
        "prompt/policy.py",
        "return all(as_policy(policy).overlaps is True for policy in policies)",
        "return True",
    ),
    Mutant(
        "the call that ends a turn has no answer",
        "runtime/executor.py",
        "            reply = self._interrupted(call, error)\n        self._answer(reply)\n\n    async def",
        "            self._interrupted(call, error)\n            return\n        self._answer(reply)\n\n    async def",
    ),
    # Cut results.
    Mutant("results are not capped", "runtime/accept.py", "if len(text) > tool.max_result_chars:", "if False:"),
    Mutant(
        "refusals are not capped",
        "runtime/finish.py",
        "run.cuts.capped_for(name, call_id, refused.text)",
        "refused.text",
    ),
    Mutant("texts are kept for ever", "runtime/truncation.py", "while len(self._texts) > 1 and (", "while False and ("),
    # Native tools.
    Mutant(
        "native tools mix",
        "runtime/tracker.py",
        "if is_busy or (savepoint is not None and not savepoint.open_now()):",
        "if savepoint is not None and not savepoint.open_now() and False:",
    ),
    Mutant(
        "a native tool that failed stays",
        "runtime/tracker.py",
        'Ran(result, "succeeded" if success else "failed")',
        'Ran(result, "succeeded")',
    ),
]

EQUIVALENT: dict[str, str] = {}
"""Mutants that no test can notice, and why."""
