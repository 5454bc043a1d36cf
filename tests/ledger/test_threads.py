"""Many threads that want the same thing: it happens once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import EffectLedger, IdempotencyConfig, Ledger, Session, SqliteEffectLedger, ToolCall
from weakincentives.runtime.executor import ToolExecutor


@dataclass(frozen=True)
class Charge:
    account: int


def storm(ledger: Ledger, *, keys: int, threads: int) -> tuple[Counter[int], Counter[str]]:
    """Every thread, with a session of its own, asks for every key; what happened, and what was answered."""
    effects, answers, lock = Counter[int](), Counter[str](), threading.Lock()

    def charge(params: Charge) -> ToolResult[int]:
        with lock:
            effects[params.account] += 1
        return ToolResult.ok(params.account)

    tool = Tool[Charge, int](
        name="charge", description="Charge.", handler=charge, idempotency=IdempotencyConfig(scope="bank")
    )
    section = MarkdownSection(title="Bank", template="", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="threads", sections=[section]))
    barrier, ids = threading.Barrier(threads), itertools.count()

    def work() -> None:
        found = Counter[str]()
        run = ToolExecutor(prompt=prompt, session=Session(), effect_ledger=ledger)
        barrier.wait()
        for account in range(keys):
            reply = run.execute(ToolCall(f"c{next(ids)}", "charge", {"account": account}))
            found[reply.outcome] += 1
            assert reply.result.value == account
        with lock:
            answers.update(found)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return effects, answers


def test_threads_in_memory() -> None:
    """4,000 calls for 250 effects."""
    effects, answers = storm(EffectLedger(), keys=250, threads=16)
    assert effects == dict.fromkeys(range(250), 1)
    assert answers == {"succeeded": 250, "replayed": 250 * 15}


def test_threads_on_one_file(tmp_path: Path) -> None:
    """400 calls for 50 effects."""
    with SqliteEffectLedger(tmp_path / "ledger.db") as ledger:
        effects, answers = storm(ledger, keys=50, threads=8)
    assert effects == dict.fromkeys(range(50), 1)
    assert answers == {"succeeded": 50, "replayed": 50 * 7}


@pytest.mark.torture
def test_a_hundred_thousand_duplicates() -> None:
    """One effect for each of 3,125 keys that 32 threads ask for at once."""
    effects, answers = storm(EffectLedger(), keys=3125, threads=32)
    assert sum(answers.values()) == 100_000
    assert effects == dict.fromkeys(range(3125), 1)
    assert answers == {"succeeded": 3125, "replayed": 100_000 - 3125}


@pytest.mark.torture
def test_ten_thousand_duplicates_on_one_file(tmp_path: Path) -> None:
    """The same on a disk."""
    with SqliteEffectLedger(tmp_path / "ledger.db") as ledger:
        effects, answers = storm(ledger, keys=625, threads=16)
    assert effects == dict.fromkeys(range(625), 1)
    assert answers == {"succeeded": 625, "replayed": 10_000 - 625}
