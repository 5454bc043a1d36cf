"""Seeded faults in what holds model servers and Claude Code's own tools to their limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FILE = "tests/adapters/test_hostile_server.py"
_TIME = (f"{_FILE}::test_a_request_has_a_total_time",)
_REUSED = (f"{_FILE}::test_a_connection_that_is_used_again_has_the_same_time",)
_SIZE = (f"{_FILE}::test_a_packed_answer_has_the_same_size",)
_REDIRECTS = (f"{_FILE}::test_no_other_server_gets_the_conversation",)
_CALLS = (f"{_FILE}::test_a_turn_has_a_number_of_calls",)
_OWN = (f"{_FILE}::test_a_client_of_ones_own_has_the_same_time",)
_CLAUDE = "tests/adapters/test_claude_confined.py"
_OUTLIVES = (f"{_CLAUDE}::test_nothing_outlives_the_launcher",)
_SECRET = (f"{_CLAUDE}::test_the_launcher_passes_a_secret_on_in_a_pipe",)

_SAID = ("tests/adapters/test_faults.py::test_what_a_service_says_is_masked",)

_DRIVER = "adapters/claude_agent_sdk/driver.py"
_CLAUDE_TIME = tuple(
    f"tests/adapters/test_claude.py::{name}"
    for name in ("test_an_answer_that_never_ends_is_ended", "test_time_that_calls_take_is_not_the_answers")
)

MUTANTS = [
    Mutant(
        "Claude Code is waited for as long as it takes",
        _DRIVER,
        "None if self._under_way else now + self._seconds",
        "None",
        _CLAUDE_TIME,
    ),
    Mutant(
        "the time of a call counts as Claude Code's",
        _DRIVER,
        "None if self._under_way else now + self._seconds",
        "now + self._seconds",
        _CLAUDE_TIME,
    ),
    Mutant(
        "what a service says is told as it is",
        "loop/evaluation.py",
        "return redact(str(failure)[:_MAX_ERROR_CHARS])",
        "return str(failure)[:_MAX_ERROR_CHARS]",
        _SAID,
    ),
    Mutant(
        "connections outlive an adapter that was dropped",
        "adapters/sdk_adapter.py",
        "finalize(self, self._made.close)",
        "self._made.close",
        ("tests/adapters/test_sdk.py::test_connections_end_with_an_adapter_that_is_dropped",),
    ),
    Mutant(
        "connections of async code outlive their event loop",
        "adapters/sdk_adapter.py",
        "open_until.__anext__().send(None)",
        "pass",
        ("tests/adapters/test_sdk.py::test_connections_end_with_their_event_loop_or_a_dropped_adapter",),
    ),
    Mutant(
        "a client that its event loop closed is used again",
        "adapters/sdk_adapter.py",
        "if open_until is None or open_until.ag_frame is None:",
        "if open_until is None:",
        ("tests/adapters/test_sdk.py::test_a_loop_whose_generators_were_shut_down_gets_new_connections",),
    ),
    Mutant(
        "the time of a request is not kept while headers come",
        "adapters/sdk_clients.py",
        "        self._timer.start()\n",
        "",
        _TIME,
    ),
    Mutant(
        "a connection that is used again is not known",
        "adapters/sdk_clients.py",
        "            guard.use(connection)\n        return write(",
        "            pass\n        return write(",
        _REUSED,
    ),
    Mutant(
        "what is unpacked is not counted",
        "adapters/sdk_clients.py",
        "                self._unpacked = self._count(self._unpacked, plain)\n",
        "",
        _SIZE,
    ),
    Mutant(
        "redirects lead anywhere",
        "adapters/sdk_clients.py",
        "and _origin(again.url) == _origin(request.url)",
        "",
        _REDIRECTS,
    ),
    Mutant(
        "a turn may have any number of calls",
        "loop/evaluation.py",
        "if len(turn.calls) > self._settings.max_calls_per_turn:",
        "if len(turn.calls) > 1_000_000:",
        _CALLS,
    ),
    Mutant(
        "the time of a client of one's own is not kept",
        "adapters/sdk_adapter.py",
        "if self._given is None and self.clients_keep_time:",
        "if self.clients_keep_time:",
        _OWN,
    ),
    Mutant(
        "daemons outlive Claude Code",
        "adapters/claude_agent_sdk/launcher.py",
        "    _kill_all()\n    return",
        "    return",
        _OUTLIVES,
    ),
    Mutant(
        "commands see the key",
        "adapters/claude_agent_sdk/launcher.py",
        'secret = environment.pop(name, "")',
        'secret = environment.get(name, "")',
        _SECRET,
    ),
    Mutant(
        "the launcher keeps the environment",
        "adapters/claude_agent_sdk/launcher.py",
        "again, clean(sys.argv[2]))",
        "again, {**os.environ, **clean(sys.argv[2])})",
        (f"{_CLAUDE}::test_commands_do_not_see_the_environment",),
    ),
    Mutant(
        "a path in a prompt is read",
        "adapters/claude_agent_sdk/adapter.py",
        '"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1"',
        '"CLAUDE_CODE_DISABLE_ATTACHMENTS": "0"',
        (f"{_CLAUDE}::test_a_path_in_the_prompt_is_text",),
    ),
    Mutant(
        "a command that ignores signals goes on after its time",
        "adapters/claude_agent_sdk/native.py",
        "alone = not set(self._tracker.pending) - {call_id}",
        "alone = False",
        (f"{_CLAUDE}::test_a_command_that_takes_too_long_does_not_go_on",),
    ),
]
