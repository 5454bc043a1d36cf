"""Mistakes put in on purpose: the tests must notice each of them, or they prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.mutants.mutant import SOURCE, run_tests, seeded

LEDGER = "runtime/ledger"


class Mutant(NamedTuple):
    """A line of a file, what becomes of it, and the tests that must fail then."""

    file: str
    old: str
    new: str
    tests: str = "contract"


TESTS = {
    "contract": ["tests/ledger/test_contract.py", "-k", "Sqlite or Memory"],
    "memory": ["tests/ledger/test_contract.py", "-k", "Memory"],
    "sqlite": ["tests/ledger/test_sqlite.py"],
    "postgres": ["tests/ledger/test_postgres.py"],
    "powercut": ["tests/ledger/test_powercut.py", "-k", "test_no_claim_is_lost"],
    "engine": ["tests/guarantees/test_g5_once.py"],
    "values": ["tests/ledger/test_values.py"],
    "abandoned": ["tests/guarantees/test_g5_abandoned.py"],
    "keys": ["tests/guarantees/test_g5_keys.py"],
    "canonical": ["tests/prompt/test_canonical.py"],
    "types": ["tests/prompt/test_key_types.py"],
    "recall": ["tests/ledger/test_recall.py"],
    "upgrade": ["tests/ledger/test_upgrade.py"],
    "group": ["tests/ledger/test_group_commit.py"],
}

CLAIMS, SQL, SQLITE, FILE = (
    f"{LEDGER}/protocol.py",
    f"{LEDGER}/sql.py",
    f"{LEDGER}/sqlite_database.py",
    f"{LEDGER}/sqlite_file.py",
)
CONNECTION, GROUP = f"{LEDGER}/sqlite_connection.py", f"{LEDGER}/group_commit.py"
MEMORY, POSTGRES, VALUES, ONCE = (
    f"{LEDGER}/memory.py",
    f"{LEDGER}/postgres_server.py",
    f"{LEDGER}/effects.py",
    "runtime/idempotent.py",
)
EFFECT, RUNNING, ROWS, HELD = f"{LEDGER}/effects.py", f"{LEDGER}/leases.py", f"{LEDGER}/rows.py", f"{LEDGER}/leases.py"
CANONICAL, WATCH, KEYS = "prompt/canonical.py", "runtime/handler_watch.py", "runtime/effects.py"

MUTANTS = {
    "the lease is not checked": Mutant(CLAIMS, '"busy" if lease_left > 0 else "abandoned"', '"busy"'),
    "the lease counts as run out": Mutant(CLAIMS, '"busy" if lease_left > 0 else "abandoned"', '"abandoned"'),
    "an abandoned call runs again": Mutant(CLAIMS, 'else "abandoned"', 'else "run"'),
    "doubt runs again": Mutant(CLAIMS, 'return "unknown"', 'return "run"'),
    "params are not compared": Mutant(CLAIMS, "if not same_call:", "if False:"),
    "successes never expire": Mutant(CLAIMS, 'if state == "succeeded" and expired:', "if False:"),
    "finish does not compare the token": Mutant(
        SQL, "AND token = :token AND state IN ('started', 'unknown')", "AND state IN ('started', 'unknown')"
    ),
    "finish believes any success": Mutant(SQL, "row.token == token and row.state ==", "row.state =="),
    "finish overwrites": Mutant(SQL, "AND state IN ('started', 'unknown')\"", '"'),
    "forget does not compare the token": Mutant(
        SQL, "AND token = :token AND state <> 'succeeded'\"", "AND state <> 'succeeded'\""
    ),
    "forget drops successes": Mutant(SQL, "AND token = :token AND state <> 'succeeded'\"", 'AND token = :token"'),
    "doubt does not compare the token": Mutant(SQL, "why = :why WHERE {_THIS} AND token = :token \"", 'why = :why WHERE {_THIS} "'),
    "a beat does not compare the token": Mutant(
        SQL, "WHERE {_THIS} AND token = :token AND state = 'started'", "WHERE {_THIS} AND state = 'started'"
    ),
    "a beat revives a doubt": Mutant(SQL, "AND token = :token AND state = 'started'", "AND token = :token"),
    "a beat does nothing": Mutant(SQL, "SET lease_until = {lease_end}, lease_clock = {lease_clock} \"", 'SET why = why "'),
    "any token takes over": Mutant(SQL, "row.token != token or row.state", "row.state"),
    "running calls are taken over": Mutant(SQL, ' or row.token != token or row.state != "unknown":', " or row.token != token:"),
    "tokens do not rise": Mutant(SQL, "    token = transaction.next_token()\n", "    token = 1\n"),
    "abandonment is not written": Mutant(SQL, 'if kind == "abandoned":\n                transaction', 'if False:\n                transaction'),
    "clear drops everything": Mutant(SQL, "return self._delete(\"state = 'succeeded'\")", 'return self._delete("1 = 1")'),
    "pruning drops everything": Mutant(
        SQL, "self._delete(f\"state = 'succeeded' AND NOT {_CURRENT}\")", "self._delete(\"state = 'succeeded'\")"
    ),
    "resolving needs no force": Mutant(SQL, "row.lease_left > 0 and not force", "False"),
    "resolving keeps the token": Mutant(SQL, "token=transaction.next_token(),\n                )", "token=row.token,\n                )"),
    "sessions share rows": Mutant(SQL, '_THIS = "key = :key AND session_id = :session_id"', '_THIS = "key = :key"'),
    "lost answers are not recognised": Mutant(
        SQL, 'if row.claim_id == fresh["claim_id"]:', "if False:", tests="postgres"
    ),
    "commits are dropped": Mutant(GROUP, 'connection.execute("COMMIT")', 'connection.execute("ROLLBACK")'),
    "locks are not waited for": Mutant(CONNECTION, "not in _BUSY", "not in ()", tests="sqlite"),
    "forks share a connection": Mutant(CONNECTION, "if pid == os.getpid():\n                if", "if True:\n                if", tests="sqlite"),
    "a vanished file is ignored": Mutant(
        CONNECTION, "if sqlite_file.identity(self._path) != identity:", "if False:", tests="sqlite"
    ),
    "leases outlive a reboot": Mutant(
        SQLITE, "CASE WHEN lease_clock = :clock_id THEN lease_until - :clock_now ELSE -1.0 END",
        "lease_until - :clock_now", tests="sqlite",
    ),
    "leases go by the wall clock": Mutant(SQLITE, '"clock_now": clock.monotonic()', '"clock_now": clock.time()', tests="sqlite"),
    "claims do not wait for the disk": Mutant(FILE, "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL", tests="sqlite"),
    "any database will do": Mutant(FILE, "if application != APPLICATION_ID:", "if False:", tests="sqlite"),
    "any version will do": Mutant(FILE, "if version > SCHEMA_VERSION:", "if False:", tests="sqlite"),
    "any filesystem will do": Mutant(FILE, "if network is not None:", "if False:", tests="sqlite"),
    "nothing is committed together": Mutant(GROUP, "[mine] if mine.alone else [one for one in list(line) if not one.alone]", "[mine]", tests="group"),
    "a waiter returns before the commit": Mutant(
        GROUP, "transaction.result = transaction.work(connection)\n",
        "transaction.result = transaction.work(connection)\n                transaction.committed = True\n                transaction.wake()\n",
        tests="group",
    ),
    "a failing statement takes down the others": Mutant(
        GROUP, "                transaction.alone = True\n                connection", "                raise\n                connection", tests="group"
    ),
    "a failing statement is not undone": Mutant(GROUP, 'connection.execute("ROLLBACK TO one")', "pass", tests="group"),
    "a failing commit is not noticed": Mutant(GROUP, "            transaction.alone = True\n        return []", "            pass\n        return list(group)", tests="group"),
    "an interrupted caller stays in line": Mutant(GROUP, "            line.pop(mine, None)\n            for", "            for", tests="group"),
    "a failed transaction stays open": Mutant(
        GROUP, "                if connection.in_transaction:\n                    connection", "                if False:\n                    connection", tests="group"
    ),
    "patience begins when a caller leads": Mutant(GROUP, "mine.since, self._queue.join", "None, self._queue.join", tests="group"),
    "a child takes over its parent's line": Mutant(GROUP, "setdefault(os.getpid(), {})", "setdefault(0, {})", tests="group"),
    "a fork comes in the middle of a commit": Mutant(CONNECTION, "register_at_fork(before=_before_fork, ", "register_at_fork(", tests="group"),
    "a child waits for its parent's threads": Mutant(CONNECTION, "        connection.lock = Lock()\n", "        pass\n", tests="group"),
    "reading waits for commits": Mutant(SQLITE, "SqliteConnection = SqliteConnection(path, patience, use)  # does", "SqliteConnection = self.writer  # does", tests="group"),
    "the server may be lazy": Mutant(POSTGRES, 'fetchone()[0] == "off"', 'fetchone()[0] == "?"', tests="postgres"),
    "a lost connection is fatal": Mutant(POSTGRES, "if not lost:", "if True:", tests="postgres"),
    "memory: tokens are not compared": Mutant(MEMORY, "row is not None and row.token == token else None", "True else None", tests="memory"),
    "memory: any token takes over": Mutant(MEMORY, "row.token != token or row.state", "row.state", tests="memory"),
    "memory: tokens do not rise": Mutant(MEMORY, "self._token += 1", "self._token = 1", tests="memory"),
    "memory: everything can be dropped": Mutant(MEMORY, 'if row.state == "succeeded" and chosen(row)', "if chosen(row)", tests="memory"),
    "memory: a beat does nothing": Mutant(
        MEMORY, "                raise lease_lost(effect_id)\n            row.lease_until = self._clock.monotonic() + lease",
        "                raise lease_lost(effect_id)", tests="memory",
    ),
    "replays are untyped": Mutant(VALUES, 'if text is not None and name == "" and _declares(declared):', "if False:"),
    "successes are not recorded": Mutant(ONCE, "return await self._succeeded(held, ended)", "return ended", tests="engine"),
    "failures are not forgotten": Mutant(ONCE, "await self._in_ledger(held.forget)\n                return ended", "return ended", tests="engine"),
    "crashes are forgotten": Mutant(ONCE, "return ended.outcome in _SAID_SO or", "return True or", tests="engine"),
    "a lost lease is ignored silently": Mutant(ONCE, 'why = "it took longer', 'return ended\n            why = "it took longer', tests="engine"),
    "all sessions are one": Mutant(KEYS, 'outermost(run.session).session_id if config.scope == "session" else ""', '""', tests="engine"),
    "every key conflicts": Mutant(KEYS, 'strict = config.strategy == "custom" and digest != ""', "strict = True", tests="engine"),
    "half a handler stays": Mutant(ONCE, "savepoint.start_over()", "pass", tests="engine"),
    "a cancelled claim stays": Mutant(ONCE, "ledger.forget(asked.effect_id, made[0].token)", "pass", tests="engine"),
    "the lease is shorter than the timeout": Mutant(KEYS, " + (tool.timeout or 0.0)", "", tests="engine"),
    "duplicates wait for ever": Mutant(ONCE, "if left <= 0:", "if False:", tests="engine"),
    "doubt is taken for absence": Mutant(ONCE, '        if result.success:\n            return await', '        if True:\n            return await', tests="engine"),
    "tools share rows": Mutant(CLAIMS, 'return of_row in ("", tool_name)', "return True"),
    "a row without a name belongs to no tool": Mutant(CLAIMS, 'return of_row in ("", tool_name)', "return of_row == tool_name"),
    "another tool's effect is recorded over": Mutant(
        CLAIMS, "if not is_same_tool(entry.tool_name, tool_name):\n        raise", "if False:\n        raise"
    ),
    "memory: another tool's effect is recorded over": Mutant(
        MEMORY, "check_recordable(self._entry(effect_id, row), tool_name)", "pass", tests="memory",
    ),
    "a ttl may leave the calendar": Mutant(EFFECT, "ttl is None or ttl > MAX_TTL", "ttl is None"),
    "expired successes are found": Mutant(SQL, "row is None or row.expired else row.entry()", "row is None else row.entry()"),
    "the claim of an abandoned handler is dropped": Mutant(
        ONCE, "ended.outcome in _GAVE_UP and keep_claim(held, lambda: self._record_late(held))", "False", tests="abandoned"
    ),
    "a handler that still runs is not remembered": Mutant(RUNNING, "    _running[id(held.ledger), held.effect_id] = held\n", "    pass\n", tests="abandoned"),
    "a call inside one that was given up on is not remembered": Mutant(HELD, "            owner = owner.around\n", "            owner = None\n", tests="abandoned"),
    "an abandoned handler's lease is not extended": Mutant(RUNNING, "        held.beat()\n", "        pass\n", tests="abandoned"),
    "a claim is let go before the end is recorded": Mutant(
        RUNNING, "        settle()\n", "        _running.pop(key, None)\n        Event().wait(0.3)\n        settle()\n", tests="abandoned",
    ),
    "a late success is not recorded": Mutant(
        ONCE, '        if real.outcome == "succeeded":\n            held.finish', '        if False:\n            held.finish',
        tests="abandoned",
    ),
    "a late failure is not forgotten": Mutant(
        ONCE, "        elif self._nothing_happened(real):\n            held.forget()", "        elif False:\n            held.forget()",
        tests="abandoned",
    ),
    "async handlers are not watched": Mutant(WATCH, "return self.awaited(result)", "return result", tests="abandoned"),
    "keys are made of JSON": Mutant(
        "prompt/idempotency.py", "sha256(canonical(params))", 'sha256(__import__("weakincentives.serde").serde.dump_json(params).encode())',
        tests="keys",
    ),
    "sets keep their order": Mutant(CANONICAL, "sorted(map(_encode, value))", "map(_encode, value)", tests="canonical"),
    "exponents of decimals count": Mutant(CANONICAL, 'short = text.rstrip("0")', "short = text", tests="canonical"),
    "decimals are rounded": Mutant(
        CANONICAL, "sign, digits, exponent = value.as_tuple()", "sign, digits, exponent = value.normalize().as_tuple()", tests="canonical"
    ),
    "zones count": Mutant(CANONICAL, "str((value - _EPOCH) // _MICROSECOND).encode()", "value.isoformat().encode()", tests="canonical"),
    "parts have no length": Mutant(CANONICAL, "made += (_length(len(part)), part)", "made.append(part)", tests="canonical"),
    "fields have no length": Mutant(CANONICAL, "(label, _length(len(part)), part)", "(label, part)", tests="canonical"),
    "classes of records do not count": Mutant(CANONICAL, "        made = [head]\n", "        made = [tag]\n", tests="canonical"),
    "classes of enums do not count": Mutant(CANONICAL, "(_text(type(value).__qualname__), _text(value.name))", "(_text(value.name),)", tests="canonical"),
    "secrets all look alike": Mutant(CANONICAL, "_encode(value.get_secret_value())", "_text(str(value))", tests="canonical"),
    "extra fields do not count": Mutant(CANONICAL, "        if more:\n", "        if False:\n", tests="canonical"),
    "any class will do": Mutant("prompt/canonical.py", "if isinstance(cls, type) and cls not in _UNIONS and not _is_known(cls):", "if False:", tests="types"),
    "former keys are not looked up": Mutant(ONCE, "if ledger.former_keys else None\n        if former is None:", "if False else None\n        if former is None:", tests="upgrade"),
    "inexact former keys are believed": Mutant(ONCE, "former is not None and not former.exact", "False", tests="upgrade"),
    "the release before may claim": Mutant(
        ROWS, "key_form      INTEGER NOT NULL, ", "key_form      INTEGER, ", tests="upgrade"
    ),
    "texts are taken at their word": Mutant(
        "runtime/redaction.py", "    text = text_of(error)[:_MAX_PART_CHARS]\n", "    text = str(error)[:_MAX_PART_CHARS]\n", tests="keys"
    ),
    "the ledger recalls what another call did": Mutant("runtime/recall.py", "return same_params and", "return True or", tests="recall"),
    "replays are undone": Mutant("runtime/call.py", 'frozenset({"succeeded", "replayed"})', 'frozenset({"succeeded"})', tests="engine"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_applies(name: str) -> None:
    """Each can be put in: its text is in its file, and what becomes of it is Python."""
    mutant = MUTANTS[name]
    text = (SOURCE / mutant.file).read_text()
    assert mutant.old in text, "Adapt the mistake to what the file says now."
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


@pytest.mark.torture
@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice(name: str, tmp_path: Path) -> None:
    """With the mistake at least one test fails."""
    mutant = MUTANTS[name]
    package = seeded(tmp_path, mutant.file, mutant.old, mutant.new)
    done = run_tests(package, tmp_path, TESTS[mutant.tests], "--timeout", "60", "-W", "default")
    assert done.returncode == 1, f"{name}: not noticed\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
