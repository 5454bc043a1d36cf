"""Seeded faults in what keeps interrupts out of our own code; noticed by the tests of interrupts and orphaned locks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SUITE = (
    "tests/runtime/test_interrupts.py",
    "tests/runtime/test_interrupts_everywhere.py",
    "tests/runtime/test_orphaned_locks.py",
    "tests/runtime/test_locks.py",
    "tests/runtime/test_interrupts_storms.py",
)
"""What is run on each of them, the quickest to notice first."""

_FINALIZERS = ("tests/core/test_finalizers.py",)

_FAULTS = [
    # Each store of the depth.
    Mutant(
        "a call does not raise the shield",
        "runtime/executor.py",
        "        shield.depth = depth + 1\n        shield.runs += 1",
        "        shield.runs += 1",
    ),
    Mutant(
        "a call does not lower the shield",
        "runtime/executor.py",
        "            finally:\n                shield.depth = depth\n",
        "            finally:\n                pass\n",
    ),
    Mutant(
        "a handler runs behind the shield",
        "runtime/invoke.py",
        "        shield.depth = 0  # from here on Ctrl-C reaches the handler at once\n",
        "",
    ),
    Mutant(
        "the shield is not raised after a handler",
        "runtime/invoke.py",
        "        return _raised(error, tool, run)\n    shield.depth = depth\n",
        "        return _raised(error, tool, run)\n",
    ),
    Mutant(
        "the shield is not raised after a handler that raised",
        "runtime/invoke.py",
        "        shield.depth = depth  # the first statement, here and below: a call before it would let a signal in\n",
        "",
    ),
    Mutant(
        "the shield is raised too late after a handler",
        "runtime/invoke.py",
        "    shield.depth = depth\n    if type(result)",
        "    inspect.isawaitable(result)\n    shield.depth = depth\n    if type(result)",
    ),
    Mutant(
        "a write through a fence can be interrupted",
        "fence.py",
        "        shield.depth += 1  # a write",
        "        shield.depth += 0  # a write",
    ),
    Mutant(
        "an await keeps the shield up",
        "interrupts.py",
        "        shield.depth = 0\n        return await awaitable",
        "        return await awaitable",
    ),
    Mutant(
        "an await ends with the depth of when it began",
        "interrupts.py",
        "        shield.depth += depth  # added",
        "        shield.depth = depth  # added",
    ),
    # Noting and delivering.
    Mutant(
        "a signal is delivered inside our own code",
        "signals.py",
        "        if not shield.depth and (frame is None or frame.f_code not in finalizers):\n"
        "            self.previous(signum, frame)",
        "        if shield.depth < 2:\n            self.previous(signum, frame)",
    ),
    Mutant(
        "what was noted is not delivered after a call",
        "runtime/executor.py",
        "                while shield.noted and not depth:\n                    shield.deliver()\n",
        "",
    ),
    Mutant(
        "what was noted is not delivered before the handler",
        "runtime/invoke.py",
        "        while shield.noted:  # interrupted before the handler began\n            shield.deliver()\n",
        "",
    ),
    Mutant(
        "only the first signal is delivered",
        "interrupts.py",
        "        while self.noted:\n            signum, handler = self.noted.pop(0)",
        "        for signum, handler in (self.noted.pop(0),):",
    ),
    Mutant(
        "a signal does not wake the main thread",
        "signals.py",
        "            if shield.wake is not None:\n                shield.wake.put(None)\n",
        "",
    ),
    Mutant(
        "a second signal waits for ever",
        "signals.py",
        "        elif shield.wake is None and _insists(signum, shield):",
        "        elif shield.wake is None and _insists(signum, shield) and False:",
    ),
    # Waiting and turns.
    Mutant(
        "waiting for a worker ignores signals",
        "waiting.py",
        "        done = wait_until_done(threaded, seconds, deliver=deliver)",
        "        done = True\n        while not threaded.done():\n            monotonic()",
    ),
    Mutant(
        "a turn goes on after an interrupt between two calls",
        "runtime/turn.py",
        "            if shield.noted:\n                self._deliver_interrupts(shield)\n            if self._ended",
        "            if self._ended",
    ),
    # Installing.
    Mutant(
        "our handlers stay after a call alone",
        "runtime/executor.py",
        "                if not shield.runs:\n                    stand_aside()\n",
        "",
    ),
    Mutant(
        "other signals are not covered",
        "signals.py",
        "tuple(compress(_NUMBERS, map(callable, map(_get, _NUMBERS))))",
        "()",
    ),
    Mutant(
        "a handler installed in the middle is not covered",
        "signals.py",
        "                stand_in_front()  # a user may have replaced one since the last turn",
        "                pass",
    ),
    Mutant(
        "somebody else's handler is removed with ours",
        "signals.py",
        "        if _get(_SIGINT) is _in_front:\n",
        "        if True:\n",
    ),
    # Locks that know their owner.
    Mutant(
        "a lock of a thread that ended is never taken over",
        "runtime/places.py",
        "            return self._thread is not None and not _is_alive(self._thread)",
        "            return False",
    ),
    Mutant(
        "an interrupt is lost where a filesystem goes",
        "filesystem/disk/filesystem.py",
        "    @finalizer\n",
        "",
        _FINALIZERS,
    ),
    Mutant(
        "an interrupt is lost where a transaction goes",
        "runtime/blocks.py",
        "    @finalizer\n",
        "",
        _FINALIZERS,
    ),
    Mutant(
        "an interrupt is lost at the beginning of a finalizer",
        "signals.py",
        " and (frame is None or frame.f_code not in finalizers)",
        "",
        _FINALIZERS,
    ),
    Mutant(
        "a snapshot in memory that is dropped holds its period",
        "filesystem/memory/write_log.py",
        "        hold = Hold(snapshot, self.dropped.append)\n",
        "        hold = Hold(snapshot)\n",
        ("tests/filesystem/test_memory.py", "tests/filesystem/test_ownership.py"),
    ),
    Mutant(
        "a queue that goes leaves its descriptor open",
        "runtime/ledger/sqlite_file.py",
        "            held = _Descriptor(self, _CLOSE)\n",
        "            held = _Descriptor(self)\n",
        _FINALIZERS,
    ),
    Mutant(
        "who waits for a loop that stands still waits for ever",
        "runtime/locks.py",
        "            elif (why := holder.standstill(blocking=blocking)) is not None:",
        "            elif (why := None) is not None:",
    ),
    Mutant(
        "a loop that runs in steps seems to stand still",
        "runtime/places.py",
        "    if ran:\n",
        "    if ran and since == 0.0:\n",
    ),
    Mutant(
        "a lock granted to a task that never ran again is kept",
        "runtime/locks.py",
        "                self._drop(len(self._locks))\n                return",
        "                return",
    ),
    Mutant(
        "a lock that was taken over is released by its former waiter",
        "runtime/locks.py",
        "        self.release_own(shared, holder)\n",
        "        self.release(shared, holder)\n",
    ),
    Mutant(
        "a lock is handed to a closed event loop",
        "runtime/locks.py",
        "            if holder is not None and holder.is_orphaned():\n",
        "            if False:\n",
        ("tests/runtime/test_orphaned_locks.py",),
    ),
    Mutant(
        "a call that is taken over is not revoked",
        "runtime/locks.py",
        '                guard.close("it was abandoned")',
        "                pass",
    ),
    Mutant(
        "an interrupted release leaves the locks taken",
        "runtime/transactions.py",
        "                    close_savepoint(self.session, self.owner)\n"
        "            finally:\n                self.release()\n",
        "                    close_savepoint(self.session, self.owner)\n"
        "            except KeyError:\n                pass\n            else:\n                self.release()\n",
    ),
    Mutant(
        "an interpreter without private parts is not expected: signals",
        "signals.py",
        "with suppress(ImportError):",
        "with suppress(KeyError):",
        ("tests/core/test_interpreters.py",),
    ),
    Mutant(
        "an interpreter without private parts is not expected: foreign threads",
        "runtime/places.py",
        "        return _current_frames is None or thread.ident in _current_frames()\n",
        "        return _current_frames is not None and thread.ident in _current_frames()\n",
        ("tests/core/test_interpreters.py",),
    ),
    Mutant(
        "a context that only type checkers import is known only alone",
        "prompt/handlers.py",
        'for part in hint.split("|"))',
        "for part in [hint])",
        ("tests/prompt/test_lazy_annotations.py",),
    ),
]

MUTANTS = [fault._replace(by=fault.by or _SUITE) for fault in _FAULTS]
