"""Seeded faults in who may write when: policies under the lock, limits of every step, late undo, ways around a fence."""
# ruff: noqa: E501 - the text of the files as it stands

from __future__ import annotations

from tests.mutants.mutant import Mutant

_POLICIES = ("tests/runtime/test_policies_locked.py",)
_LIMITS = ("tests/runtime/test_step_limits.py",)
_LOOPS = ("tests/runtime/test_one_loop.py",)
_LATE = ("tests/runtime/test_late_undo.py", "tests/runtime/test_locks.py")
_FOLDS = ("tests/runtime/test_log_folds.py",)
_FAILED = ("tests/runtime/test_failed_undo.py",)
_AROUND = ("tests/guarantees/test_g4_ways_around.py",)

MUTANTS = [
    Mutant(
        "a call is settled outside of the fence of the call around it",
        "runtime/contexts.py",
        "context._around, context._owner = self._around, self._owner",
        "context._owner = self._owner",
        ("tests/runtime/test_late_undo.py",),
    ),
    Mutant(
        "render of a failed result has no limit",
        "runtime/finish.py",
        "if steps is None or not steps.limited or renders_itself(ended.result):",
        "if True:",
        _LIMITS,
    ),
    Mutant(
        "subscribers of refused calls have no limits",
        "runtime/conclude.py",
        "            await Steps(None if bound is None else bound.tool, run, waiting, least=AFTER_HANDLER).run(run.tell, event)\n",
        "            run.tell(event)\n",
        _LIMITS,
    ),
    Mutant(
        "subscribers are not told of calls with limits",
        "session/events.py",
        "return None if handlers else DispatchResult(event, (), ())",
        "return DispatchResult(event, (), ())",
        _LIMITS,
    ),
    Mutant(
        "texts of users' classes are rendered without limits",
        "results.py",
        "return type(result.message) is str and (result.exclude_value_from_context or type(result.value) in _PLAIN)",
        "return result.exclude_value_from_context or isinstance(result.value, str)",
        _LIMITS,
    ),
    Mutant(
        "the end of a call is interrupted",
        "waiting.py",
        "UNINTERRUPTED: Waiting = Blocking(MAIN, deliver=False)",
        "UNINTERRUPTED: Waiting = Blocking(MAIN)",
        ("tests/runtime/test_interrupts.py",),
    ),
    Mutant(
        "policies are asked before the locks are taken",
        "runtime/dispatch.py",
        "        if not savepoint.try_open(waiting, shared):  # most calls find their locks free\n"
        "            await savepoint.open(waiting, shared, run.remaining())\n"
        "        admitted = await gate(request, run, waiting)\n",
        "        admitted = await gate(request, run, waiting)\n"
        "        await savepoint.open(waiting, shared, run.remaining())\n",
        _POLICIES,
    ),
    Mutant(
        "read-only calls overlap under any policy",
        "runtime/dispatch.py",
        "shared = request.bound.overlaps",
        "shared = read_only",
        _POLICIES,
    ),
    Mutant(
        "native tools that read overlap under any policy",
        "runtime/tracker.py",
        "bool(self._pending) and not may_overlap(self.policies) if read_only",
        "False if read_only",
        _POLICIES,
    ),
    Mutant(
        "what an async policy returns is not awaited",
        "runtime/limits.py",
        "                self._waiting.finish(result, self._event_loop)\n",
        "                None\n",
        _POLICIES,
    ),
    Mutant(
        "each run of plain code has an event loop of its own",
        "event_loop.py",
        "kept = _of_thread.loop = KeptLoop()",
        "kept = KeptLoop()",
        _LOOPS,
    ),
    Mutant(
        "tasks that a handler leaves stand still",
        "event_loop.py",
        "if self._held or self._waiting or asyncio.all_tasks(self.loop):",
        "if self._held or self._waiting:",
        _LOOPS,
    ),
    Mutant(
        "a loop that is blocked is used again",
        "waiting.py",
        "                runner.give_up(loop)\n",
        "                pass\n",
        _LOOPS,
    ),
    Mutant(
        "a plain handler blocks the event loop",
        "runtime/invoke.py",
        "if waiting.in_loop and tool.blocking and not tool.is_async:",
        "if False:",
        _LOOPS,
    ),
    Mutant(
        "plain handlers of async code build resources elsewhere",
        "waiting.py",
        "with_home(home, lambda: _finished(function(), event_loop))",
        "_finished(function(), event_loop)",
        _LOOPS,
    ),
    Mutant(
        "steps have no limits",
        "runtime/limits.py",
        "        if not self.limited:\n            result",
        "        if True:\n            result",
        _LIMITS,
    ),
    Mutant(
        "a slow reducer is kept",
        "runtime/limits.py",
        "        if monotonic() > until:\n",
        "        if False:\n",
        _LIMITS,
    ),
    Mutant(
        "a subscriber out of time keeps the call",
        "runtime/finish.py",
        "    was_kept = ended.outcome in KEPT\n    if not isinstance(failed, Exception):\n",
        "    was_kept = ended.outcome in KEPT and steps is None\n    if not isinstance(failed, Exception):\n",
        _LIMITS,
    ),
    Mutant(
        "an undo does not ask the call around it",
        "runtime/transactions.py",
        "        if self.owner.around is None:\n            self._undo()\n            return\n",
        "        if self:\n            self._undo()\n            return\n",
        _LATE,
    ),
    Mutant(
        "a block that outlives its call stays open",
        "runtime/transactions.py",
        "        for inner in reversed(inside):\n            inner.decided = True\n            inner._release_now()\n",
        "",
        _LATE,
    ),
    Mutant(
        "a snapshot forgets the call it was taken in",
        "runtime/blocks.py",
        "return _take(session, context_of(resources), tag, guard_here(session, resources))",
        "return _take(session, context_of(resources), tag)",
        _LATE,
    ),
    Mutant(
        "a block in a thread belongs to no call",
        "runtime/blocks.py",
        "    with guard:\n        return Savepoint(",
        "    if guard:\n        return Savepoint(",
        _LATE,
    ),
    Mutant(
        "handlers that were given up on may begin calls",
        "runtime/transactions.py",
        "if any(lock in around.ended for lock in locks):",
        "if False:",
        _LATE,
    ),
    Mutant(
        "a nested call is recorded although the call around it is over",
        "runtime/finish.py",
        "    if around is not None:\n        return _commit_inside(",
        "    if False:\n        return _commit_inside(",
        _LATE,
    ),
    Mutant(
        "an undone call does not name those inside it",
        "runtime/nesting.py",
        "() if event.success else tuple(inner)",
        "()",
        _FOLDS,
    ),
    Mutant(
        "a kept call does not say so to the one around it",
        "runtime/nesting.py",
        "if outer is not None and savepoint.is_inside(outer):",
        "if False:",
        _FOLDS,
    ),
    Mutant(
        "what a transaction undid is not on record",
        "runtime/nesting.py",
        "    if calls:\n",
        "    if False:\n",
        _FOLDS,
    ),
    Mutant(
        "an event does not name the call around it",
        "runtime/nesting.py",
        "within = None if outer is None else event_id_of(outer)",
        "within = None",
        _FOLDS,
    ),
    Mutant(
        "what could not be undone is released",
        "runtime/transactions.py",
        "            if failed:\n                self._leave_out(failed)\n",
        "",
        _FAILED,
    ),
    Mutant(
        "calls take bare snapshots",
        "runtime/transactions.py",
        "is_owned = owner is not None and is_filesystem(part.__class__)",
        "is_owned = False",
        _FAILED,
    ),
    Mutant(
        "the prompt of a context has raw resources",
        "runtime/contexts.py",
        "return prompt if prompt is None else CallPrompt(prompt, self)",
        "return prompt",
        _AROUND,
    ),
    Mutant(
        "views are not fenced",
        "runtime/locks.py",
        "return all(hasattr(kind, name) for name in _OPERATIONS)",
        "return kind.__name__ in {'InMemoryFilesystem', 'HostFilesystem'}",
        _AROUND,
    ),
]
