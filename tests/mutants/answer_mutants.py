"""Seeded faults in what keeps answers single, the log honest and everything bounded."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BY_HAND = ("tests/guarantees/test_g1_by_hand.py",)
_BOUNDED = ("tests/guarantees/test_g10_bounded.py",)
_ERRORS = ("tests/guarantees/test_g10_recorded_errors.py",)
_ARGUMENTS = ("tests/runtime/test_redacted_arguments.py",)
_MASKING = ("tests/masking/test_credentials.py",)
_SAME_MASKS = ("tests/masking/test_same_masks.py",)
_SECRETS = ("tests/session/test_persist_secrets.py",)
_OPEN = ("tests/adapters/test_open_calls.py",)
_OPAQUE = ("tests/session/test_persist_opaque.py",)

MUTANTS = [
    Mutant(
        "what an outer call undid counts as done",
        "prompt/policies.py",
        "        if call.event_id in event.undone_calls:\n            return True\n",
        "",
        _BY_HAND,
    ),
    Mutant(
        "what a transaction undid counts as done",
        "prompt/policies.py",
        "    return any(call.event_id in event.undone_calls for event in session[CallsUndone].all())",
        "    return False",
        _BY_HAND,
    ),
    Mutant(
        "answers to calls that are not open are ignored",
        "loop/adapter.py",
        '                check_open(by_call(tool_results), started.history.open_calls, where="history=")\n',
        "",
        _OPEN,
    ),
    Mutant(
        "an interrupted refusal of a turn is recorded twice",
        "runtime/turn.py",
        "            reply = decline(call, _NOT_RUN, self._run)  # what",
        '            reply = conclude_now(call, Refused("cancelled", _NOT_RUN), self._run)  # what',
        ("tests/runtime/test_interrupts.py",),
    ),
    # One answer.
    Mutant(
        "ids are forgotten after a thousand calls",
        "runtime/run.py",
        "            number = next(self._numbers)\n",
        "            number = next(self._numbers)\n"
        "            if number % 1024 == 1023:\n                self._ids.clear()\n",
        _BY_HAND,
    ),
    Mutant(
        "a call that comes twice has two events",
        "runtime/conclude.py",
        "    if refused.duplicate:\n        return",
        "    if False:\n        return",
        _BY_HAND,
    ),
    Mutant(
        "another call gets the answer of an answered id",
        "runtime/conclude.py",
        "event.tool_name != call.name or not _same_params(call, event.params, run)",
        "False",
        _BY_HAND,
    ),
    Mutant(
        "a call that was declined may be run later",
        "runtime/conclude.py",
        "    if call_id:\n        run.memory.is_new(call.id)",
        "    if False:\n        run.memory.is_new(call.id)",
        _BY_HAND,
    ),
    Mutant(
        "an id that a model uses again is taken for the answered one",
        "loop/evaluation.py",
        "return call_id in self._seen or call_id in self._earlier",
        "return False",
        _BY_HAND,
    ),
    Mutant(
        "ids are told apart within one conversation only",
        "loop/evaluation.py",
        "return call_id in self._seen or call_id in self._earlier",
        "return call_id in self._seen",
        _OPEN,
    ),
    Mutant(
        "a denial has no event",
        "runtime/recall.py",
        "    concluded = conclude_now(call, Refused(reply.outcome, reply.text), run, reply.result)\n",
        "    concluded = reply\n",
        _BY_HAND,
    ),
    Mutant(
        "a call that ran is said not to have run",
        "runtime/recall.py",
        "run) if event is None else reply_from_event(event, run)",
        "run) if True else reply_from_event(event, run)",
        _BY_HAND,
    ),
    # Honest histories.
    Mutant(
        "log and ledger are not asked about open calls",
        "loop/state.py",
        "recalled = None if reply is not None else await recall(asked)",
        "recalled = None",
        _OPEN,
    ),
    Mutant(
        "an outcome that nobody knows is called not run",
        "runtime/recall.py",
        '        "unknown",\n        f"The outcome',
        '        "cancelled",\n        f"The outcome',
        _OPEN,
    ),
    Mutant(
        "a recalled result does not reach its reducers",
        "runtime/recall.py",
        "        _route(reply, run)\n    concluded",
        "        pass\n    concluded",
        _OPEN,
    ),
    Mutant(
        "a continued conversation is told its prompt again",
        "loop/state.py",
        "if is_continued and self.transcript",
        "if False and self.transcript",
        _OPEN,
    ),
    # Bounded logs.
    Mutant(
        "the log keeps exceptions",
        "runtime/finish.py",
        "error = None if ended.error is None else recorded(ended.error)",
        "error = ended.error",
        _ERRORS,
    ),
    Mutant(
        "traces are not masked",
        "runtime/redaction.py",
        "    text = redact(text)\n",
        "",
        _ERRORS,
    ),
    Mutant(
        "traces are not capped",
        "runtime/redaction.py",
        "    if len(text) <= MAX_TRACE_CHARS:\n",
        "    if len(text) <= 100 * MAX_TRACE_CHARS:\n",
        _ERRORS,
    ),
    Mutant(
        "an id of megabytes is let through",
        "runtime/run.py",
        "        if len(call_id) <= MAX_ID_CHARS:\n            number",
        "        if len(call_id) > 0:\n            number",
        _BOUNDED,
    ),
    Mutant(
        "the handle of a cut result is as long as the id",
        "runtime/truncation.py",
        "call_id = short_id(call_id, _MAX_HANDLE_CHARS)",
        "call_id = short_id(call_id)",
        _BOUNDED,
    ),
    Mutant(
        "a result that cannot be rendered is not capped",
        "runtime/finish.py",
        "text = run.truncated.truncate_for(admitted.tool.name, admitted.request.call.id, ended.result.message)",
        "text = ended.result.message",
        _BOUNDED,
    ),
    # Repetitions.
    Mutant(
        "calls are compared by their text",
        "runtime/run.py",
        " or same_params(one[1], other[1])",
        "",
        _BOUNDED,
    ),
    Mutant(
        "two calls in turn are not stopped",
        "runtime/admission.py",
        "    if run.memory.alternated:\n",
        "    if False:\n",
        _BOUNDED,
    ),
    Mutant(
        "two calls in turn are stopped although they get on",
        "runtime/admission.py",
        " and _has_one_answer(other, limit - 1, run)",
        "",
        _BOUNDED,
    ),
    Mutant(
        "two idle calls in turn may run again after a while",
        "runtime/admission.py",
        "        memory.is_idle = True\n",
        "",
        _BOUNDED,
    ),
    # Saving.
    Mutant(
        "a tool call clears the log",
        "session/session.py",
        'raise SessionError("Only the owner of a session may clear its LOG slices, not a tool call.")',
        "pass",
        _OPAQUE,
    ),
    Mutant(
        "what cannot be saved is left out without a word",
        "session/saved.py",
        "left_out[type_name(cls)] = len(items) - len(kept)",
        "pass",
        _OPAQUE,
    ),
    # Masking.
    Mutant(
        "secrets are saved",
        "session/saved.py",
        "encoded, patches = encode_masked(item)",
        "from .encoding import encode\n        encoded, patches = encode(item)",
        _SECRETS,
    ),
    Mutant(
        "what an event keeps of an exception is not masked",
        "prompt/events.py",
        "return visible(redact(text_of(error)[:MAX_LEAVING_CHARS]))",
        "return visible(text_of(error)[:MAX_LEAVING_CHARS])",
        _ERRORS,
    ),
    Mutant(
        "a refused call is recorded with its secrets",
        "runtime/conclude.py",
        "params = shown_arguments(call, run) if",
        "params = call.arguments if",
        _ARGUMENTS,
    ),
    Mutant(
        "whoever watches is told the secrets of a call",
        "runtime/executor.py",
        "return str(shown_arguments(call, self._run))",
        "return str(call.arguments)",
        _ARGUMENTS,
    ),
    Mutant(
        "an error repeats what came for a secret field",
        "serde/parsing.py",
        'return {**error, "input": _Hidden(error["input"]), "ctx": context}',
        'return {**error, "ctx": context}',
        _ARGUMENTS,
    ),
    Mutant(
        "a secret in a list is not masked",
        "serde/secret_fields.py",
        "return [self.masked(item, below(nodes, index) or nodes) for index, item in enumerate(items)]",
        "return items",
        _ARGUMENTS,
    ),
    Mutant(
        "a misspelled secret is not masked",
        "serde/secret_fields.py",
        "return self.masked(value, nodes) if nodes else MASK",
        "return self.masked(value, nodes) if nodes else value",
        _ARGUMENTS,
    ),
    Mutant(
        "a character without width hides a keyword",
        "masking/redact.py",
        '_INVISIBLE.sub("", text) if invisible else text',
        "text",
        _MASKING,
    ),
    Mutant(
        "a text in which no word begins as a credential does is taken for ordinary",
        "masking/redact.py",
        "if not begins(text) and not marks.search(lower):",
        "if not begins(text):",
        _MASKING,
    ),
    Mutant(
        "a rule is not asked about texts that it finds something in",
        "masking/places.py",
        '(("bearer", "basic"), lambda',
        '(("bearer",), lambda',
        _SAME_MASKS,
    ),
    Mutant(
        "a credential at the very beginning of a text is missed",
        "masking/prefixes.py",
        "    if _FIRST.match(text):\n",
        "    if False:\n",
        _SAME_MASKS,
    ),
    Mutant(
        "a password of several words is masked in part",
        "masking/names.py",
        "return phrase.end() if phrase else end",
        "return end",
        _MASKING,
    ),
    Mutant(
        "of a block of YAML only the first line is masked",
        "masking/names.py",
        "end = len(text) if line < 0 else line",
        "break",
        _MASKING,
    ),
    Mutant(
        "what is compared with a password is masked",
        "masking/names.py",
        'sign in ("=", "=>", ":=", "%3d")',
        '"=" in sign',
        _MASKING,
    ),
    Mutant(
        "a mask moves the quotes that are counted before a name",
        "masking/names.py",
        "marked + len(_MARK) + 1 if marked >= 0 else 0",
        "0",
        _MASKING,
    ),
    Mutant(
        "the end of a private key is shown when its beginning is not there",
        "masking/places.py",
        "if at - begin >= _LEAST_KEY:",
        "if False:",
        _MASKING,
    ),
    Mutant(
        "a word before a mask is taken for a token",
        "masking/judgement.py",
        "[-_.:/]?+$",
        "$",
        _MASKING,
    ),
    Mutant(
        "long text is masked before it is cut",
        "masking/redact.py",
        "if len(text) > MAX_LEAVING_CHARS:",
        "if False:",
        _MASKING,
    ),
    Mutant(
        "a call of a local model that was cut off is its answer",
        "adapters/local.py",
        "ModelTurn(self._answer.text, (), self._usage",
        "ModelTurn(self._answer.text or text, (), self._usage",
        ("tests/adapters/test_local_envelope.py",),
    ),
    Mutant(
        "every crash has its traceback in the log",
        "crash_log.py",
        "traceback = error if logger.isEnabledFor(logging.DEBUG) else None",
        "traceback = error",
        ("tests/loop/test_loop_stream.py",),
    ),
    Mutant(
        "a request that failed is tried again in every phase",
        "loop/result.py",
        "self._used.get(phase, 0) >= self._retries.of(phase)",
        'self._used.get(phase, 0) >= self._retries.of("request")',
        ("tests/loop/test_loop_stream.py",),
    ),
    Mutant(
        "what is running goes on when a stream is left",
        "loop/background.py",
        "        for task in self._tasks:\n            task.cancel()\n",
        "        for task in self._tasks:\n            pass\n",
        ("tests/loop/test_loop_stream.py",),
    ),
]
