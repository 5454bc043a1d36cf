"""Asking what became of a call that was never answered, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives.errors import LedgerError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import (
    EffectLedger,
    IdempotencyConfig,
    Ledger,
    Session,
    SqliteEffectLedger,
    ToolCall,
    ToolInvoked,
)
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger import LedgerEntry
from weakincentives.runtime.recall import recall_answer
from weakincentives.runtime.run import Run


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int = 1


@dataclass(frozen=True)
class Receipt:
    number: int


SHOP = IdempotencyConfig(scope="shop")
CALL = ToolCall("c1", "refund", '{"order": "A"}')


def pay(params: Refund) -> ToolResult[Receipt]:
    return ToolResult.ok(Receipt(7), message="Refunded.")


def fail(params: Refund) -> ToolResult[Receipt]:
    return ToolResult.error("No money.")


def boom(params: Refund) -> ToolResult[Receipt]:
    raise ConnectionError("the line went dead")


def never(params: Refund) -> ToolResult[Receipt]:
    raise AssertionError("a recalled call must not run")


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made: Ledger = EffectLedger() if request.param == "memory" else SqliteEffectLedger(tmp_path / "ledger.db")
    yield made
    made.close()


def executor(
    ledger: Ledger,
    handler: Callable[..., Any],
    config: IdempotencyConfig | None = SHOP,
    session: Session | None = None,
    **options: Any,
) -> ToolExecutor:
    tool = Tool[Refund, Receipt](name="refund", description="Refund.", handler=handler, idempotency=config)
    section = MarkdownSection(title="Shop", template="", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="recall", sections=[section]))
    return ToolExecutor(prompt=prompt, session=session or Session(), effect_ledger=ledger, **options)


def run_of(made: ToolExecutor) -> Run:
    return made._run


def test_a_call_that_happened_is_answered_with_its_result(ledger: Ledger) -> None:
    """As a replay would answer it, in another session, without the handler and without an event."""
    with executor(ledger, pay) as first:
        said = first.execute(CALL)
    session = Session()
    with executor(ledger, never, session=session) as second:
        found = recall_answer(CALL, run_of(second))
        again = recall_answer(CALL, run_of(second))
    assert found is not None
    assert (found.text, found.outcome, found.result.value, found.call_id) == (said.text, "replayed", Receipt(7), "c1")
    assert again == found
    assert session[ToolInvoked].count() == 0


def test_a_call_of_which_nothing_is_known_is_none(ledger: Ledger) -> None:
    """It was never claimed, said that it failed, or is another call than the one that was."""
    with executor(ledger, fail) as run:
        run.execute(CALL)
    with executor(ledger, pay) as run:
        run.execute(ToolCall("c2", "refund", '{"order": "B"}'))
    with executor(ledger, never) as run:
        for arguments in ('{"order": "A"}', '{"order": "B", "cents": 2}', '{"order": 7}', "no JSON", None):
            assert recall_answer(ToolCall("c1", "refund", arguments), run_of(run)) is None
        assert recall_answer(ToolCall("c1", "unknown", '{"order": "A"}'), run_of(run)) is None
        assert run.execute(ToolCall("c1", "refund", '{"order": "B"}')).outcome == "replayed"  # the id is still new
    with executor(ledger, never, config=None) as run:
        assert recall_answer(CALL, run_of(run)) is None


def test_a_call_in_doubt_is_unknown(ledger: Ledger) -> None:
    """The text says why, and not to repeat it; no service is asked and nothing is claimed."""
    asked: list[Any] = []
    with executor(ledger, boom) as run:
        run.execute(CALL)
    (before,) = ledger.entries()
    with executor(ledger, never, IdempotencyConfig(scope="shop", reconcile=asked.append)) as run:
        found = recall_answer(CALL, run_of(run))
    assert found is not None
    assert (found.outcome, found.success, found.is_error) == ("unknown", False, True)
    assert "the line went dead" in found.text
    assert asked == []
    assert ledger.entries() == [before]
    with executor(ledger, never, hide_errors=True) as run:
        hidden = recall_answer(CALL, run_of(run))
    assert hidden is not None
    assert "went dead" not in hidden.text


def test_a_running_call_is_told_from_one_in_doubt(ledger: Ledger) -> None:
    """While its lease lasts it may yet end."""
    said: list[str] = []

    def asking(params: Refund) -> ToolResult[Receipt]:
        with executor(ledger, never) as inside:
            found = recall_answer(CALL, run_of(inside))
            assert found is not None
            said.append(found.text)
        return ToolResult.ok(Receipt(1))

    with executor(ledger, asking) as run:
        run.execute(CALL)
    assert said[0].startswith("The outcome of 'refund' is unknown: it is still running.")


def test_the_log_knows_calls_that_the_ledger_does_not(ledger: Ledger) -> None:
    """An event with the id and the tool is the answer; one of another tool with the same id is not."""
    session = Session()
    with executor(ledger, fail, config=None, session=session) as run:
        said = run.execute(CALL)
        assert recall_answer(CALL, run_of(run)) == said
        assert recall_answer(ToolCall("c1", "other", "{}"), run_of(run)) is None


def test_what_the_ledger_learned_later_counts_more_than_a_failed_event(ledger: Ledger) -> None:
    """The event says unknown, an operator has settled it since."""
    session = Session()
    with executor(ledger, boom, session=session) as run:
        assert run.execute(CALL).outcome == "unknown"
        (entry,) = ledger.entries()
        ledger.resolve(entry.id, ToolResult.ok({"number": 9}, message="Paid by hand."))
        found = recall_answer(CALL, run_of(run))
    assert found is not None
    assert (found.outcome, found.result.message) == ("replayed", "Paid by hand.")


def test_another_call_under_a_custom_key_is_not_this_one(ledger: Ledger) -> None:
    """Other params under the key: nothing is known of these."""
    config = IdempotencyConfig(scope="shop", strategy="custom", key_fn=lambda params: params.order)
    with executor(ledger, pay, config) as run:
        run.execute(CALL)
    with executor(ledger, never, config) as run:
        assert recall_answer(CALL, run_of(run)) is not None
        assert recall_answer(ToolCall("c1", "refund", '{"order": "A", "cents": 2}'), run_of(run)) is None


def test_a_ledger_that_cannot_be_read_leaves_it_unknown(tmp_path: Path) -> None:
    """Then no answer may say that the call was not run."""
    path = tmp_path / "ledger.db"
    with SqliteEffectLedger(path) as ledger, executor(ledger, never) as run:
        ledger.close()
        path.write_bytes(b"no database at all, no database at all" * 100)
        with pytest.raises(LedgerError):
            ledger.entries()
        found = recall_answer(CALL, run_of(run))
    assert found is not None
    assert found.outcome == "unknown"
    assert "the ledger cannot be read" in found.text


def test_find_tells_one_row(ledger: Ledger) -> None:
    """The same entry that operators see."""
    with executor(ledger, pay) as run:
        run.execute(CALL)
    (entry,) = ledger.entries()
    found: LedgerEntry | None = ledger.find(entry.id)
    assert found == entry
