"""Seeded faults in how runs are recorded and continued."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_EDGES = ("tests/record/test_edges.py",)
_INNER = ("tests/record/test_inner_effects.py",)
_FORKS = ("tests/record/test_resume.py",)
_CHANGED = ("tests/record/test_changed_programs.py",)
_KILLED = ("tests/record/test_killed.py",)
_STORE = ("tests/record/test_sqlite_store.py",)
_ITEMS = ("tests/record/test_large_items.py",)
_SHOWN = ("tests/cli/test_cli_runs.py",)
_FRAMES = ("tests/record/test_frames.py",)
_EXPORT = ("tests/record/test_export.py",)
_SEALED = ("tests/record/test_sealed_stores.py",)
_LARGE = ("tests/record/test_large_files.py",)
_SERVER = ("tests/record/test_postgres_store.py",)
_REPLAY = ("tests/record/test_replay.py",)
_DRIVEN = ("tests/record/test_driven_runs.py",)
_NOT_RESUMABLE = ("tests/record/test_not_resumable.py",)
_TIMES = ("tests/record/test_replay_edges.py",)
_KEPT = ("tests/record/test_kept_world.py",)
_READ = ("tests/record/test_files_kept.py",)
_FINISHED = ("tests/record/test_finished_runs.py",)
_CHATS = ("tests/record/test_conversations.py",)

MUTANTS = [
    Mutant(
        "an undo brings files to before their last change",
        "runtime/record/files.py",
        "first.setdefault(step.path, step.before)\n                last[step.path] = step.after\n        rows",
        "first[step.path] = step.before\n                last[step.path] = step.after\n        rows",
        _CHATS,
    ),
    Mutant(
        "how the calls of a cancelled message ended is not on record",
        "runtime/record/calls.py",
        "        if lost or not self._goes_on:\n",
        "        if True:\n",
        _CHATS,
    ),
    Mutant(
        "a message that goes on has spent nothing",
        "loop/state.py",
        "            self.limits.spent(self.usage)\n            return\n",
        "            return\n",
        _CHATS,
    ),
    Mutant(
        "a resource that an undone message built stays on record",
        "runtime/record/resources.py",
        '                elif what == "unbuilt":\n                    self._recorded.pop(name, None)\n',
        '                elif what == "unbuilt":\n                    pass\n',
        _CHATS,
    ),
    Mutant(
        "a tool that ran one that leaves the machine is run again",
        "runtime/record/calls.py",
        "        elif around.call_id not in self._started:\n",
        "        elif False:\n",
        _EDGES,
    ),
    Mutant(
        "a call that had begun is run again with one that overlapped with it",
        "loop/recorded.py",
        "if not any(self._rows.was_started(other.id) for other in left):",
        "if True:",
        _INNER,
    ),
    Mutant(
        "a row in the middle of a call has what the call changed so far",
        "runtime/record/recorder.py",
        "body={}, has_state=not inside)",
        "body={}, has_state=True)",
        _EDGES,
    ),
    Mutant(
        "a recorded run inside a call has no rows of its calls",
        "runtime/record/calls.py",
        "owner.recorder is not None and owner.recorder.run_id == self.run_id and isinstance(call, CallContext):",
        "owner.recorder is not None and isinstance(call, CallContext):",
        _EDGES,
    ),
    Mutant(
        "a run whose process ended before its first step goes on in another session",
        "runtime/record/recorder.py",
        "        if not steps:\n            body:",
        "        if not steps:\n            adopt_id(session, 'another')\n            body:",
        _FINISHED,
    ),
    Mutant(
        "the files of a run that is over are written again",
        "loop/recorded.py",
        " or (is_over and not isinstance(behind_views(fs), InMemoryFilesystem)):\n",
        ":\n",
        _FINISHED,
    ),
    Mutant(
        "what is only served is held to limits",
        "loop/evaluation.py",
        "recorder is None or not recorder.rows.is_over\n",
        "True\n",
        _FINISHED,
    ),
    Mutant(
        "native tools that leave the machine are not recorded before they run",
        "runtime/tracker.py",
        "            if self._run.recorder is not None and savepoint is not None:\n",
        "            if False:\n",
        _DRIVEN,
    ),
    Mutant(
        "a run that cannot go on is gone on with",
        "runtime/record/recorder.py",
        "        if steps and not self._is_over and (reason or self._not_resumable):\n",
        "        if False:\n",
        _NOT_RESUMABLE,
    ),
    Mutant(
        "a refused attempt at a failed run makes it count as running",
        "runtime/record/runs.py",
        "        if self.retry:\n",
        "        if False:\n",
        _NOT_RESUMABLE,
    ),
    Mutant(
        "values that cannot be read back are recorded in every run",
        "session/deltas.py",
        "        if find is not unchecked:\n",
        "        if False:\n",
        _NOT_RESUMABLE,
    ),
    Mutant(
        "JSON views leave unmasked",
        "runtime/record/export.py",
        '        for name in ("native", "view"):\n',
        '        for name in ("native",):\n',
        _NOT_RESUMABLE,
    ),
    Mutant(
        "a call that cannot be recorded is kept",
        "runtime/finish.py",
        "        recorder.stop(lost=True)\n        if ended.outcome in KEPT:\n",
        "        recorder.stop(lost=True)\n        if False:\n",
        _KILLED,
    ),
    Mutant(
        "an interrupted call is recorded as ended",
        "runtime/finish.py",
        "    if ended.raises is not None and not isinstance(ended.raises, Exception):\n        recorder.stop()",
        "    if False:\n        recorder.stop()",
        _EDGES,
    ),
    Mutant(
        "calls that leave the machine are not recorded before they run",
        "runtime/dispatch.py",
        "            if recorder is not None:\n",
        "            if False:\n",
        _KILLED,
    ),
    Mutant(
        "files are not brought to where the record ends",
        "runtime/record/files.py",
        "            self.fs.put_node(path, node_of(nodes[path], store))\n",
        "            node_of(nodes[path], store)\n",
        _KILLED,
    ),
    Mutant(
        "files that another program changed are taken for the run's own",
        "runtime/record/files.py",
        'if changed and world == "check":',
        "if False:",
        _EDGES,
    ),
    Mutant(
        "notes are not on record",
        "session/deltas.py",
        "    if noted:\n",
        "    if False:\n",
        _FORKS,
    ),
    Mutant(
        "LOG slices are not on record",
        "session/deltas.py",
        "changes = _all_of(core) if since is None else core.changes(since, logs=True)",
        "changes = _all_of(core) if since is None else core.changes(since)",
        (*_FORKS, *_EDGES),
    ),
    Mutant(
        "what changed between calls is not on record",
        "runtime/record/recorder.py",
        "turn=self._turn, started=time(), body=self._with_state(body, state), **columns",
        "turn=self._turn, started=time(), body=body, **columns",
        (*_FORKS, *_EDGES),
    ),
    Mutant(
        "cut results are not on record",
        "runtime/record/calls.py",
        "        if full is not None:\n",
        "        if False:\n",
        _FORKS,
    ),
    Mutant(
        "opened sections are not on record",
        "runtime/finish.py",
        'more["sections"] = list(ended.raises.section_keys)',
        'more["sections"] = []',
        _FORKS,
    ),
    Mutant(
        "another request may go on with a run",
        "runtime/record/runs.py",
        "if info.request_digest != digest:",
        "if False:",
        _EDGES,
    ),
    Mutant(
        "the end of a failed attempt ends the next one",
        "runtime/record/recorder.py",
        "(self._is_over and len(self._served) == 1)",
        "len(self._served) == 1",
        _CHANGED,
    ),
    Mutant(
        "changed tools are not noticed",
        "runtime/record/tools.py",
        "    if not changed:\n        return\n",
        "    return\n",
        _CHANGED,
    ),
    Mutant(
        "a process that lost a run goes on writing",
        "runtime/record/sql.py",
        '_HELD = "run_id = :run_id AND token = :token"',
        '_HELD = "run_id = :run_id AND token <> -:token"',
        _STORE,
    ),
    Mutant(
        "a whole slice is taken for a change of it",
        "runtime/record/frames.py",
        "[name, policy, _complete(change) if names[name] else change]",
        "[name, policy, change]",
        _FRAMES,
    ),
    Mutant(
        "rows after the last frames are not read",
        "runtime/record/frames.py",
        "    for step in store.steps(run_id, after=complete, until=until):\n",
        "    for step in ():\n",
        _FRAMES,
    ),
    Mutant(
        "a large item is written whole each time",
        "runtime/record/large_items.py",
        "    if base is not None:\n",
        "    if False:\n",
        _ITEMS,
    ),
    Mutant(
        "what moved in a list of a large item is written again",
        "runtime/record/large_items.py",
        "    row = rows[-1] if rows else None\n",
        "    row = None\n",
        _ITEMS,
    ),
    Mutant(
        "1, 1.0 and true are the same in a patch",
        "runtime/record/large_items.py",
        "    return type(before) is type(after) and (\n",
        "    return (\n",
        _ITEMS,
    ),
    Mutant(
        "a row that was not written is what the next patch is made to",
        "runtime/record/recorder.py",
        "            self.held.append(rows)\n            if self._frames",
        "            self._large = large\n            self.held.append(rows)\n            if self._frames",
        _ITEMS,
    ),
    Mutant(
        "a frame has large items as they are written anew",
        "runtime/record/frames.py",
        "        for index, item in large[name].items():\n",
        "        for index, item in ():\n",
        _ITEMS,
    ),
    Mutant(
        "a program changes what is on record",
        "session/deltas.py",
        "    return marshal.loads(marshal.dumps(data))",
        "    return data",
        _ITEMS,
    ),
    Mutant(
        "a fork under a name that is taken adds steps to that run",
        "runtime/record/sql.py",
        "            if not made:  # before",
        "            if False:  # before",
        _STORE,
    ),
    Mutant(
        "a run whose process ended before its first step gets another session",
        "runtime/record/recorder.py",
        "        adopt_id(session, self.held.info.session_id)",
        "        if steps:\n            adopt_id(session, self.held.info.session_id)",
        _FINISHED,
    ),
    Mutant(
        "secret arguments are shown",
        "cli/commands/runs.py",
        "_step_json(replace(step, body=secrets.masked(step)))",
        "_step_json(step)",
        _SHOWN,
    ),
    Mutant(
        "secret arguments are printed by a comparison",
        "runtime/record/comparison.py",
        "yield ComparedCall(key[0], ours_secret.arguments(*key), one, None, False)",
        "yield ComparedCall(*key, one, None, False)",
        _EXPORT,
    ),
    Mutant(
        "secret arguments leave in a file",
        "runtime/record/export.py",
        "dict(self._secrets.masked(step))",
        "dict(step.body)",
        _EXPORT,
    ),
    Mutant(
        "large content is left out of an exported file",
        "runtime/record/export.py",
        "max_inline=sys.maxsize",
        "max_inline=1",
        _EXPORT,
    ),
    Mutant(
        "what leaves in a file is not masked",
        "runtime/record/export.py",
        "                content = redact(content.decode()).encode()\n",
        "                content = content.decode().encode()\n",
        _EXPORT,
    ),
    Mutant(
        "names of content in a sealed store are its digests",
        "runtime/record/seals.py",
        'return blake2b(digest.encode("utf-8", "surrogatepass"), digest_size=20, key=self._key).hexdigest()',
        "return digest",
        _SEALED,
    ),
    Mutant(
        "what is not sealed passes for sealed",
        "runtime/record/seals.py",
        "        if not isinstance(data, Mapping) or [*data] != [_SEALED]:\n            raise _not_sealed()\n",
        "        if not isinstance(data, Mapping) or [*data] != [_SEALED]:\n            return data\n",
        _SEALED,
    ),
    Mutant(
        "any seal opens a sealed store",
        "runtime/record/seals.py",
        "    if not key.startswith(_GREETING) or len(key) != len(_GREETING) + _KEY_BYTES:\n",
        "    if False:\n",
        _SEALED,
    ),
    Mutant(
        "content that an append counts on is removed under it",
        "runtime/record/upkeep.py",
        " AND {version} = :seen",
        " AND ({version} = :seen OR TRUE)",
        _SERVER,
    ),
    Mutant(
        "a large file that changed while it was copied is recorded",
        "runtime/record/sql.py",
        "        if made.hexdigest() != digest:\n",
        "        if False:\n",
        _LARGE,
    ),
    Mutant(
        "frames are not verified",
        "runtime/record/verification.py",
        "if blob and not self._is_right(name, blob):",
        "if False:",
        _STORE,
    ),
    Mutant(
        "a replay runs tools whose effects leave the machine",
        "testing/recorded_model.py",
        "if self._serve or is_subagent(tool) or (has_effects and not is_named):",
        "if self._serve or is_subagent(tool):",
        _REPLAY,
    ),
    Mutant(
        "misspelt names of tools to run are passed over",
        "testing/recorded_model.py",
        "        if unknown:\n            listed",
        "        if False:\n            listed",
        _REPLAY,
    ),
    Mutant(
        "a replay does not look at state",
        "testing/divergences.py",
        "        self._state(old.seq, old_rows, new_rows)\n        self._files(old.seq, old, new)\n",
        "        self._files(old.seq, old, new)\n",
        _REPLAY,
    ),
    Mutant(
        "the model is not told of files that were kept",
        "loop/recorded.py",
        "        if self._kept:\n            kept,",
        "        if False:\n            kept,",
        _KEPT,
    ),
    Mutant(
        "a message is not served",
        "runtime/record/recorder.py",
        '                self.messages.append(self.text(step.body["text"]))\n',
        "                pass\n",
        _KEPT,
    ),
    Mutant(
        "what handlers read is not noted",
        "runtime/record/files.py",
        "        self._noted[path] = None",
        "        del path",
        _READ,
    ),
    Mutant(
        "a replay gives handlers the time at which their call began",
        "testing/recorded_model.py",
        "        if not readings:\n            return otherwise\n",
        "        if True:\n            return otherwise\n",
        _TIMES,
    ),
]
