"""What an earlier release saved can be read for ever; the files in `data/` were written by it, once."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from weakincentives import Session, ToolInvoked
from weakincentives.contrib.tools import Plan
from weakincentives.prompt import IdempotencyConfig, Tool, ToolResult
from weakincentives.runtime import SqliteEffectLedger
from weakincentives.testing import FakeClock, execute_tool

DATA = Path(__file__).parent / "data"
RECORDED = datetime.fromtimestamp(1794881940, tz=UTC)


def test_a_session_that_0_1_saved_is_read() -> None:
    """Its classes have moved since; the names in the text are those of then."""
    session = Session.from_json((DATA / "session-0.1.json").read_text())
    plan = session[Plan].latest()
    assert plan is not None
    assert [step.title for step in plan.steps] == ["one", "two"]
    names = ["planning_setup_plan", "write_file", "read_file", "list_directory"]
    assert [event.tool_name for event in session[ToolInvoked].all()] == names
    assert Session.from_json(session.to_json())[Plan].all() == session[Plan].all()


@dataclass(frozen=True)
class Order:
    item: str


def test_an_effect_that_0_1_recorded_is_replayed_with_its_value(tmp_path: Path) -> None:
    """The row names the class of its value as it was then, and its key is that of the same params today.

    It was kept for a day from 2026-11-17: the ledger's clock stands in that day, so that the test is not over with it.
    """
    shutil.copy(DATA / "ledger-0.1.db", tmp_path / "ledger.db")

    def plan_it(params: Order) -> ToolResult[object]:
        raise AssertionError("it happened already")

    tool = Tool[Order, object](
        name="plan_it",
        description="Plan an order.",
        handler=plan_it,
        idempotency=IdempotencyConfig(scope="global"),
    )
    with SqliteEffectLedger(tmp_path / "ledger.db", clock=FakeClock(RECORDED + timedelta(hours=1))) as ledger:
        reply = execute_tool(tool, {"item": "tea"}, effect_ledger=ledger)
    assert reply.outcome == "replayed"
    assert reply.result.value == Plan(objective="tea", status="active", steps=())
