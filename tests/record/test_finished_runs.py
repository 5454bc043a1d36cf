"""A run that has ended gives its recorded answer: nothing is asked, run, written or held to a limit again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from weakincentives import Budget, Deadline, MainLoop, Session, ToolInvoked
from weakincentives.budget import BudgetTracker, TokenUsage
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import NotResumableError, PromptEvaluationError, RunBusyError
from weakincentives.prompt import IdempotencyConfig, MarkdownSection, Prompt, Tool, ToolResult
from weakincentives.runtime import MainLoopConfig, RunContext, SqliteRunStore
from weakincentives.runtime.record import NewRows, NewRun, RunInfo
from weakincentives.runtime.record.runs import request_text
from weakincentives.testing import FakeClock, ScriptedAdapter, call, say


@dataclass(frozen=True)
class Pay:
    amount: int


class Desk(MainLoop[str, str]):
    """Works in a folder, and pays."""

    root: Path
    paid: list[int]

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        session = Session(bus=self.bus)

        def pay(params: Pay) -> ToolResult[str]:
            self.paid.append(params.amount)
            return ToolResult.ok(f"paid {params.amount}")

        tool = Tool[Pay, str](name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig())
        task = MarkdownSection(title="Task", template=request, tools=[tool])
        files = VfsToolsSection(session=session, config=VfsConfig(root=self.root))
        return Prompt(name="desk", sections=[task, files]), session


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    (tmp_path / "root").mkdir()
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as made:
        yield made


def desk(store: SqliteRunStore, *script: Any, **config: Any) -> Desk:
    """A program that starts."""
    adapter = ScriptedAdapter(*script, **config.pop("adapter", {}))
    made = Desk(adapter, config=MainLoopConfig(runs=store, **config))
    made.root, made.paid = store.path.parent / "root", []
    return made


def finished(store: SqliteRunStore) -> Path:
    """A run that wrote a file in two steps, with tokens that it used; the file."""
    writes = [call("write_file", path="a.txt", content=text, overwrite=True) for text in ("one", "two")]
    used = [say("Done.", usage=TokenUsage(1000, 1000))]
    desk(store, call("pay", amount=5), *writes, *used).execute("go", run_id="r")
    return store.path.parent / "root" / "a.txt"


def test_events_and_logs_name_the_run_as_its_record_does(store: SqliteRunStore) -> None:
    """Its id is the one in `RunContext`, in every attempt, unless the caller gives ids of its own."""
    _, session = desk(store, call("pay", amount=5), say("Done.")).execute("go", run_id="r")
    (event,) = session[ToolInvoked].all()
    assert event.run_context is not None
    assert event.run_context.run_id == "r"
    response, session = desk(store, call("pay", amount=5), say("Done.")).execute("go")
    (event,) = session[ToolInvoked].all()
    assert event.run_context is not None
    assert event.run_context.run_id == response.run_id
    own = RunContext(run_id="mine")
    _, session = desk(store, call("pay", amount=5), say("Done.")).execute("go", run_id="r2", run_context=own)
    (event,) = session[ToolInvoked].all()
    assert event.run_context is not None
    assert event.run_context.run_id == "mine"


@pytest.mark.parametrize("found", ["by hand", "one", None])
def test_files_are_left_as_they_are(store: SqliteRunStore, found: str | None) -> None:
    """Work goes on in the folder after a run has ended: its answer can be had all the same, and changes nothing."""
    file = finished(store)
    file.unlink() if found is None else file.write_text(found)
    again = desk(store)
    assert again.execute("go", run_id="r")[0].text == again.resume("r")[0].text == "Done."
    assert (file.read_text() if file.exists() else None) == found
    assert again.paid == []


def test_no_limit_holds(store: SqliteRunStore) -> None:
    """A deadline that has passed, a budget that is too small and fewer turns do not keep a recorded answer back."""
    finished(store)
    clock = FakeClock()
    past = Deadline(clock.now() + timedelta(seconds=1), clock=clock)
    clock.advance(2)
    tracker = BudgetTracker(Budget(max_total_tokens=10))
    assert desk(store).execute("go", run_id="r", deadline=past)[0].text == "Done."
    assert desk(store).execute("go", run_id="r", budget=Budget(max_total_tokens=10))[0].text == "Done."
    response, _ = desk(store, adapter={"max_turns": 2}).execute("go", run_id="r", budget_tracker=tracker)
    assert (response.text, response.turns, response.usage) == ("Done.", 4, TokenUsage(1000, 1000))
    assert tracker.consumed == TokenUsage()  # paid for by another process


def test_an_error_of_a_limit_is_raised_again_whatever_the_limit_is_now(store: SqliteRunStore) -> None:
    """The recorded error, not what the same loop would do with another limit."""
    with pytest.raises(PromptEvaluationError, match="2 turns"):
        desk(store, *[call("pay", amount=n) for n in (1, 2, 3)], adapter={"max_turns": 2}).execute("go", run_id="r")
    with pytest.raises(PromptEvaluationError, match="2 turns") as raised:
        desk(store, say("More."), adapter={"max_turns": 9}).execute("go", run_id="r")
    assert raised.value.phase == "response"


class DyingStore(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Ends the process, as far as the record knows, when the end of a call is to be written."""

    def append(self, info: RunInfo, rows: NewRows) -> None:
        if any(step.kind == "call" for step in rows.steps):
            raise KeyboardInterrupt
        super().append(info, rows)


def test_a_run_that_was_killed_before_its_first_step_keeps_its_session(store: SqliteRunStore) -> None:
    """Otherwise an effect of the second attempt would belong to another session, and the third would repeat it."""
    text, digest = request_text("go")
    store.take("r", NewRun("Desk", "the first session", text, digest)).release()
    ledger = store.ledger()
    with DyingStore(store.path) as dying:
        second = desk(dying, call("pay", amount=5), effect_ledger=ledger)
        with pytest.raises(KeyboardInterrupt):
            second.execute("go", run_id="r")
    third = desk(store, say("Done."), effect_ledger=ledger)
    _, session = third.execute("go", run_id="r")
    assert (second.paid, third.paid) == ([5], [])
    assert [event.outcome for event in session[ToolInvoked].all()] == ["replayed"]
    assert session.session_id == "the first session"


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr


class Clerk(MainLoop[Login, str]):
    def prepare(self, request: Login) -> tuple[Prompt[str], Session]:
        assert request.password.get_secret_value() == "hunter2"
        return Prompt(name="clerk", sections=[MarkdownSection(title="Task", template="Go.")]), Session()


def test_a_request_with_secrets_is_not_read_back(store: SqliteRunStore) -> None:
    """They are not in the record, so the mask in their place is not taken for one."""
    request = Login("ada", SecretStr("hunter2"))
    Clerk(ScriptedAdapter(say("Done.")), config=MainLoopConfig(runs=store)).execute(request, run_id="r")
    again = Clerk(ScriptedAdapter(), config=MainLoopConfig(runs=store))
    with pytest.raises(NotResumableError, match=r"secret.*request="):
        again.resume("r")
    assert again.resume("r", request=request)[0].text == "Done."
    assert "hunter2" not in str(store.info("r"))


@pytest.mark.parametrize("run_id", [4711, b"r", None])
def test_a_run_id_is_a_text(store: SqliteRunStore, run_id: Any) -> None:
    """The number of a ticket is easily passed as it is."""
    with pytest.raises(TypeError, match="run id"):
        store.take(run_id, NewRun("Desk", "s"))


def test_a_run_that_this_process_has_is_not_said_to_be_another_ones(store: SqliteRunStore) -> None:
    """Another thread or task may have it."""
    with SqliteRunStore(store.path) as other:
        held = other.take("r", NewRun("Desk", "s"))
        with pytest.raises(RunBusyError, match="this process") as raised:
            store.take("r")
        held.release()
    assert "end that process" not in str(raised.value)
