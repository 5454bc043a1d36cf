"""Ledgers of the release before: their rows are found, nothing runs twice, and that release cannot claim beside us."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import BaseModel, Field, SecretStr

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.prompt.canonical import serialised_hash
from weakincentives.runtime import (
    IdempotencyConfig,
    Ledger,
    PostgresEffectLedger,
    Session,
    SqliteEffectLedger,
    ToolCall,
)
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger import EffectId
from weakincentives.runtime.ledger.sqlite_file import APPLICATION_ID, BOOT
from weakincentives.runtime.recall import recall_answer

V1_TABLE = """
CREATE TABLE wink_effects (
    key TEXT NOT NULL, session_id TEXT NOT NULL, tool_name TEXT NOT NULL, params_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('started', 'succeeded', 'unknown')),
    token BIGINT NOT NULL, claim_id TEXT NOT NULL, started_at DOUBLE PRECISION NOT NULL,
    lease_until DOUBLE PRECISION NOT NULL, lease_clock TEXT NOT NULL, why TEXT NOT NULL,
    message TEXT NOT NULL, value TEXT, value_type TEXT NOT NULL, value_patches TEXT NOT NULL, problem TEXT NOT NULL,
    excluded INTEGER NOT NULL, created_at DOUBLE PRECISION, expires_at DOUBLE PRECISION, effect_id TEXT NOT NULL,
    PRIMARY KEY (key, session_id)
)"""
V1_COLUMNS = (
    "key, session_id, tool_name, params_hash, state, token, claim_id, started_at, why, message, value, value_type, "
    "value_patches, problem, excluded, created_at, expires_at, effect_id, lease_until, lease_clock"
)
UUID_TEXT = "12345678-1234-5678-1234-567812345678"


class Former(Protocol):
    """A database as the release before left it, and a connection that it still has open."""

    def insert(self, **values: object) -> None: ...
    def finish(self, key: str) -> int: ...
    def open(self) -> Ledger: ...


def _row(now: float, clock_now: float, clock: str, **values: Any) -> list[Any]:
    started = values.get("state", "succeeded") == "started"
    row = {
        "key": "", "session_id": "", "tool_name": "pay", "params_hash": "", "state": "succeeded", "token": 7,
        "claim_id": "c", "started_at": now, "why": "", "message": "Paid.", "value": "41", "value_type": "",
        "value_patches": "", "problem": "", "excluded": 0, "created_at": None if started else now,
        "expires_at": now + 3600, "effect_id": UUID_TEXT,
        "lease_until": clock_now + values.pop("lease", 60.0), "lease_clock": clock, **values,
    }  # fmt: skip
    return [row[name] for name in V1_COLUMNS.split(", ")]


class FormerSqlite:
    def __init__(self, path: Path) -> None:
        self.path, self._made = path, list[Ledger]()
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (
            f"{V1_TABLE} WITHOUT ROWID",
            "CREATE TABLE wink_tokens (last INTEGER NOT NULL)",
            "INSERT INTO wink_tokens VALUES (100)",
            f"PRAGMA application_id = {APPLICATION_ID}",
            "PRAGMA user_version = 1",
            "PRAGMA journal_mode = WAL",
        ):
            self.connection.execute(statement)

    def insert(self, **values: object) -> None:
        row = _row(time.time(), time.monotonic(), BOOT, **values)
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO wink_effects ({V1_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING", row)

    def finish(self, key: str) -> int:
        return self.connection.execute(_FINISH.replace("%s", "?"), [time.time(), key]).rowcount

    def open(self) -> Ledger:
        self._made.append(SqliteEffectLedger(self.path))
        return self._made[-1]

    def close(self) -> None:
        for made in self._made:
            made.close()
        self.connection.close()


class FormerPostgres:
    def __init__(self, dsn: str) -> None:
        import psycopg

        self.dsn, self._made = dsn, list[Ledger]()
        self.connection = psycopg.connect(dsn, autocommit=True)
        for statement in (
            V1_TABLE,
            "CREATE SEQUENCE wink_tokens START 100",
            "CREATE TABLE wink_ledger (version INTEGER NOT NULL)",
            "INSERT INTO wink_ledger VALUES (1)",
        ):
            self.connection.execute(statement.encode())

    def insert(self, **values: object) -> None:
        row = _row(time.time(), time.time(), "server", **values)
        marks = ", ".join(["%s"] * len(row))
        self.connection.execute(
            f"INSERT INTO wink_effects ({V1_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING".encode(), row
        )

    def finish(self, key: str) -> int:
        return self.connection.execute(_FINISH.encode(), [time.time(), key]).rowcount

    def open(self) -> Ledger:
        self._made.append(PostgresEffectLedger(self.dsn))
        return self._made[-1]

    def close(self) -> None:
        for made in self._made:
            made.close()
        self.connection.close()


_FINISH = "UPDATE wink_effects SET state = 'succeeded', message = 'Late.', created_at = %s WHERE key = %s AND token = 7"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Former]:
    made = (
        FormerSqlite(tmp_path / "ledger.db")
        if request.param == "sqlite"
        else FormerPostgres(request.getfixturevalue("postgres"))
    )
    yield made
    made.close()


@dataclass(frozen=True)
class Payment:
    order: str
    cents: int = 1


class Card(BaseModel):
    order: str
    number: str = Field(default="", exclude=True)


@dataclass(frozen=True)
class Account:
    order: str
    pin: SecretStr


effects: list[Any] = []


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


def pay(params: Any) -> ToolResult[int]:
    effects.append(params)
    return ToolResult.ok(len(effects), message="Paid now.")


SHOP = IdempotencyConfig(scope="shop")


def executor(ledger: Ledger, config: IdempotencyConfig = SHOP, cls: Any = Payment, name: str = "pay") -> ToolExecutor:
    tool = Tool[cls, int](name=name, description="Pay.", handler=pay, idempotency=config, timeout=60)
    section = MarkdownSection(title="Shop", template="", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="upgrade", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session(session_id="s-1"), effect_ledger=ledger)


def call(order: str = "A", name: str = "pay", **more: Any) -> ToolCall:
    return ToolCall(f"c-{time.monotonic_ns()}", name, json.dumps({"order": order, **more}))


def digest(params: Any) -> str:
    found = serialised_hash(params)
    assert found is not None
    return found


def test_a_success_of_the_release_before_is_replayed(former: Former) -> None:
    """Under its serialised key, in its session; also the answer to a call that was never answered."""
    found = digest(Payment("A"))
    former.insert(key=f"shop:pay:{found}", params_hash=found)
    former.insert(key=f"session:pay:{found}", params_hash=found, session_id="s-1", value="42")
    ledger = former.open()
    assert ledger.former_keys
    for config, value in ((SHOP, 41), (IdempotencyConfig(), 42)):
        with executor(ledger, config) as run:
            recalled = recall_answer(call(), run._run)
            reply = run.execute(call())
            assert recalled is not None
            assert (recalled.outcome, recalled.text) == ("replayed", reply.text)
            assert (reply.outcome, reply.result.value, reply.result.message) == ("replayed", value, "Paid.")
    assert effects == []


def test_new_calls_are_recorded_by_value_beside_the_old_ones(former: Former) -> None:
    """And found again, also by the next process."""
    former.insert(key=f"shop:pay:{digest(Payment('A'))}", params_hash=digest(Payment("A")))
    with executor(former.open()) as run:
        assert [run.execute(call(order)).outcome for order in ("B", "B", "A")] == ["succeeded", "replayed", "replayed"]
    with executor(former.open()) as run:
        assert run.execute(call("B")).outcome == "replayed"
    assert effects == [Payment("B")]
    assert len(former.open().entries()) == 2


@pytest.mark.parametrize("state", ["unknown", "started"])
def test_what_was_in_doubt_stays_in_doubt(state: str, former: Former) -> None:
    """A claim of a process that is gone, and one that it left unknown: neither is run."""
    found = digest(Payment("A"))
    former.insert(key=f"shop:pay:{found}", params_hash=found, state=state, lease=-1.0, created_at=None, value=None)
    ledger = former.open()
    with executor(ledger) as run:
        recalled = recall_answer(call(), run._run)
        assert recalled is not None
        assert recalled.outcome == "unknown"
        assert run.execute(call()).outcome == "unknown"
    looking = IdempotencyConfig(scope="shop", reconcile=lambda _: ToolResult.ok(9, message="Found."))
    with executor(ledger, looking) as run:
        assert [run.execute(call()).result.value for _ in range(2)] == [9, 9]
    assert effects == []


def test_what_is_in_doubt_and_did_not_happen_runs_once(former: Former) -> None:
    """The lookup decides; then the result is found by everybody, under the row it was in doubt in."""
    found = digest(Payment("A"))
    former.insert(key=f"shop:pay:{found}", params_hash=found, state="unknown", created_at=None, value=None)
    ledger = former.open()
    with executor(ledger, IdempotencyConfig(scope="shop", reconcile=lambda _: None)) as run:
        assert [run.execute(call()).outcome for _ in range(2)] == ["succeeded", "replayed"]
    assert effects == [Payment("A")]
    assert [entry.id for entry in ledger.entries()] == [EffectId(f"shop:pay:{found}")]


def test_a_call_that_the_release_before_is_running_is_waited_for(former: Former) -> None:
    """Its process may finish what it has claimed, upgrade or not."""
    found = digest(Payment("A"))
    former.insert(key=f"shop:pay:{found}", params_hash=found, state="started", lease=60.0, expires_at=None)
    replies: list[Any] = []
    with executor(former.open()) as run:
        waiting = threading.Thread(target=lambda: replies.append(run.execute(call())))
        waiting.start()
        time.sleep(0.1)
        assert former.finish(f"shop:pay:{found}") == 1
        waiting.join(30)
    assert [(reply.outcome, reply.result.message) for reply in replies] == [("replayed", "Late.")]
    assert effects == []


def test_an_expired_success_is_forgotten(former: Former) -> None:
    """The call runs, under its new key."""
    found = digest(Payment("A"))
    former.insert(key=f"shop:pay:{found}", params_hash=found, expires_at=time.time() - 1)
    with executor(former.open()) as run:
        assert [run.execute(call()).outcome for _ in range(2)] == ["succeeded", "replayed"]
    assert effects == [Payment("A")]


def test_chosen_fields_are_found_too(former: Former) -> None:
    """With `param_keys` the other fields may differ, as before."""
    former.insert(key=f"shop:pay:{digest({'order': 'A'})}", params_hash=digest(Payment("A", 5)))
    config = IdempotencyConfig(scope="shop", strategy="params", param_keys=("order",))
    with executor(former.open(), config) as run:
        assert run.execute(call(cents=6)).outcome == "replayed"
    assert effects == []


CUSTOM = IdempotencyConfig(scope="shop", strategy="custom", key_fn=lambda params: params.order)


def test_a_custom_key_is_compared_with_the_hash_it_was_made_with(former: Former) -> None:
    """Equal params are the same call, others a conflict, another tool a conflict."""
    former.insert(key="shop:A", params_hash=digest(Payment("A")))
    ledger = former.open()
    with executor(ledger, CUSTOM) as run:
        assert run.execute(call()).outcome == "replayed"
        assert recall_answer(call(), run._run) is not None
        assert recall_answer(call(cents=2), run._run) is None
        assert run.execute(call(cents=2)).outcome == "conflict"
    with executor(ledger, CUSTOM, name="ship") as run:
        assert run.execute(call(name="ship")).outcome == "conflict"
    assert effects == []


def test_a_row_without_a_tools_name_is_any_tools(former: Former) -> None:
    """As it was for the release before: nothing runs twice because of the name."""
    former.insert(key="shop:A", params_hash=digest(Payment("A")), tool_name="")
    ledger = former.open()
    for name in ("pay", "ship"):
        with executor(ledger, CUSTOM, name=name) as run:
            assert run.execute(call(name=name)).outcome == "replayed"
    assert effects == []


def test_a_key_that_two_calls_shared_settles_neither(former: Former) -> None:
    """The serialised key left the card's number out: whose row it is cannot be known, so it answers no call."""
    found = digest(Card(order="A", number="1"))
    assert found == digest(Card(order="A", number="2"))
    former.insert(key=f"shop:pay:{found}", params_hash=found)
    with executor(former.open(), cls=Card) as run:
        for number in ("1", "2"):
            recalled = recall_answer(call(number=number), run._run)
            reply = run.execute(call(number=number))
            assert recalled is not None
            assert (recalled.outcome, reply.outcome) == ("unknown", "unknown")
            assert "an earlier release recorded a call whose arguments it could not tell from these" in reply.text
        assert run.execute(call("B", number="1")).outcome == "succeeded"
    assert len(effects) == 1


def test_secrets_were_compared_before_and_are_found(former: Former) -> None:
    """Their old keys were made of what is inside them."""
    account = Account("A", SecretStr("1"))
    former.insert(key=f"shop:pay:{digest(account)}", params_hash=digest(account))
    with executor(former.open(), cls=Account) as run:
        assert run.execute(call(pin="1")).outcome == "replayed"
        assert run.execute(call(pin="2")).outcome == "succeeded"


def test_the_release_before_cannot_claim_any_more(former: Former) -> None:
    """A process that still has the table open is refused before its handler runs: its keys would not be ours."""
    former.insert(key="before", params_hash="h")
    former.open()
    with pytest.raises(Exception, match=r"(?i)not.null"):
        former.insert(key="after", params_hash="h", state="started")
    assert [entry.id.key for entry in former.open().entries()] == ["before"]


def test_of_many_who_upgrade_at_once_one_does(former: Former) -> None:
    """The others find it done; no row is lost."""
    for number in range(200):
        former.insert(key=f"k{number}", params_hash="h")
    found: list[Any] = []

    def start(begin: Callable[[], Ledger]) -> None:
        try:
            found.append(len(begin().entries()))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=start, args=(former.open,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 8


def test_an_upgraded_ledger_without_old_rows_pays_nothing(former: Former) -> None:
    """There is nothing to look up under serialised keys."""
    assert not former.open().former_keys


def test_ttl_of_old_rows_is_kept(former: Former) -> None:
    """Times, results and tokens are copied as they were."""
    former.insert(key="k", params_hash="h", expires_at=None, value="[1, 2]", problem="")
    (entry,) = former.open().entries()
    assert (entry.token, entry.state, entry.tool_name) == (7, "succeeded", "pay")
    assert entry.effect is not None
    assert (entry.effect.expires_at, entry.effect.result_value, str(entry.effect.effect_id)) == (
        None,
        [1, 2],
        UUID_TEXT,
    )
    assert abs(entry.started_at.timestamp() - time.time()) < timedelta(minutes=5).total_seconds()
