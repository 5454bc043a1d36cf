"""Seeded faults in whose writes to a session an undo takes back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MODEL = ("tests/session/test_interleavings.py",)
_OVERLAPS = ("tests/session/test_savepoints.py",)
_CALLS = ("tests/session/test_own_writes.py", "tests/session/test_own_registrations.py")
_SNAPSHOTS = ("tests/session/test_snapshots_in_calls.py",)

MUTANTS = [
    Mutant(
        "an undo restores the whole session",
        "session/savepoints.py",
        "    content = core.pure(without_own, mark, core.content, since, failures)\n",
        "    content = mark.content\n",
        _MODEL,
    ),
    Mutant(
        "an undo repeats no writes of others",
        "session/writes.py",
        "        others.setdefault((write.space, write.key), []).append(write)\n",
        "        others.setdefault((write.space, write.key), [])\n",
        _MODEL,
    ),
    Mutant(
        "a savepoint opened since remembers what was undone",
        "session/savepoints.py",
        "        if other.position > position:\n",
        "        if False and other.position > position:\n",
        _OVERLAPS,
    ),
    Mutant(
        "undone writes stay in the log",
        "session/savepoints.py",
        "    core.writes[position:] = kept\n",
        "    assert kept is not None\n",
        _OVERLAPS,
    ),
    Mutant(
        "an initial state of others is not part of the replay",
        "session/writes.py",
        "        if write.space == INITIAL:  # from here on it is what a missing slice has\n",
        "        if False and write.space == INITIAL:\n",
        _OVERLAPS,
    ),
    Mutant(
        "a restore by hand inside a call is not noted",
        "session/core.py",
        "            self.note_writes(noted, False)\n",
        "            assert noted is not None\n",
        _CALLS,
    ),
    Mutant(
        "a reset of what a call has emptied is not noted",
        "session/core.py",
        "if not is_kept and (value is not before.get(key) or (space, key) in touched):",
        "if not is_kept and value is not before.get(key):",
        _CALLS,
    ),
    Mutant(
        "a snapshot forgets the initial content of its moment",
        "session/core.py",
        "            if snapshot.initial is not self.initial or snapshot.policies is not self.policies:\n",
        "            if snapshot.policies is not self.policies:\n",
        _SNAPSHOTS,
    ),
    Mutant(
        "a snapshot forgets the items of a slice that was a LOG for a while",
        "session/core.py",
        "                shown = snapshot.logs().get(slice_type)\n",
        "                shown = None\n",
        _SNAPSHOTS,
    ),
    Mutant(
        "the snapshot of a savepoint takes the slices that its call made LOGs for LOGs",
        "session/savepoints.py",
        "content[NOTES], content[INITIAL], content[POLICIES])\n",
        "content[NOTES], content[INITIAL], core.policies)\n",
        _SNAPSHOTS,
    ),
    Mutant(
        "making the log of writes shorter forgets the keys of the call",
        "session/writes.py",
        "        if owning:\n",
        "        if owning and False:\n",
        _OVERLAPS,
    ),
    Mutant(
        "making the log of writes shorter gives an inner savepoint what was written before it",
        "session/writes.py",
        "sum(mark.position <= index and mark.owns(owner) for",
        "sum(mark.owns(owner) for",
        _OVERLAPS,
    ),
    Mutant(
        "the log of writes is not made shorter",
        "session/contents.py",
        "        if shorter is not None:\n",
        "        if shorter is not None and False:\n",
        _CALLS,
    ),
    Mutant(
        "savepoints beside one another are folded too",
        "session/writes.py",
        "        if not inner.owner.inside(outer.owner) or (inner.for_all and not outer.for_all):\n",
        "        if inner.for_all and not outer.for_all:\n",
        _OVERLAPS,
    ),
    Mutant(
        "what the engine records belongs to the call",
        "session/contents.py",
        "        owner = NOBODY if unowned else current_owner()\n",
        "        owner = current_owner()\n",
        _CALLS,
    ),
    Mutant(
        "plain writes in a call are nobody's",
        "session/contents.py",
        "Write(NOBODY if unowned else current_owner(), space",
        "Write(NOBODY, space",
        _CALLS,
    ),
    Mutant(
        "a native tool does not own the harness's writes",
        "runtime/tracker.py",
        "            savepoint.for_all = True",
        "            savepoint.for_all = False",
        _CALLS,
    ),
    Mutant(
        "a write that cannot be repeated is dropped without a word",
        "session/savepoints.py",
        "    if failures:\n        log_failures(failures)\n",
        "",
        _CALLS,
    ),
    Mutant(
        "a slice that a failed call made a LOG keeps its items",
        "session/contents.py",
        "            if len(logs) < len(self.logs):\n",
        "            if len(logs) < 0:\n",
        _CALLS,
    ),
    Mutant(
        "subscriptions of a failed call stay",
        "session/savepoints.py",
        "    if core.subscribed:\n        SubscriptionLog(core.dispatcher, core.subscribed).undo(owner)\n",
        "",
        _CALLS,
    ),
    Mutant(
        "a subscription from before the call is undone with it",
        "session/subscriptions.py",
        "if entry.changed and not any",
        "if not any",
        _CALLS,
    ),
    Mutant(
        "the changes of a call are everybody's",
        "session/savepoints.py",
        "if any(contended.values()) else mark.content\n",
        "if False else mark.content\n",
        _CALLS,
    ),
    Mutant(
        "the log of writes outlives the last call",
        "session/savepoints.py",
        "    if core.marks or core.writes or core.subscribed:\n",
        "    if core.marks:\n",
        _OVERLAPS,
    ),
]  # fmt: skip
