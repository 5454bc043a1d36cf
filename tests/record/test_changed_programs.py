"""A run that goes on otherwise than it was begun: one that failed, forks, changed tools, removed tools."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.errors import PromptEvaluationError, RunFormatError
from weakincentives.prompt import IdempotencyConfig, MarkdownSection, Prompt, Tool, ToolAnnotations, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import CallMessage


@dataclass(frozen=True)
class Order:
    name: str


@dataclass(frozen=True)
class OrderWithCount:
    name: str
    count: int = 1


@dataclass(frozen=True)
class OrderOfCount:
    count: int


class Model(TurnAdapter):
    """Orders three times, and fails at the questions in `failing`."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.failing = failing
        self.asked: list[int] = []

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        self.asked.append(at)
        if at in self.failing:
            raise ConnectionError("no network")
        if at == 3:
            return ModelTurn("done")
        call = CallMessage(f"c{at}", "order", f'{{"name": "n{at}"}}')
        return ModelTurn("", (call,), stop_reason="tool_use")


class Desk(MainLoop[str, Any]):
    """Has one tool, `order`, with these params."""

    def __init__(
        self, model: Model, store: SqliteRunStore, params: type[Any] = Order, name: str = "order",
        once: IdempotencyConfig | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model, config=MainLoopConfig(runs=store, effect_ledger=store.ledger()))
        self.model = model
        self.params, self.name, self.once = params, name, once
        self.ran: list[Any] = []

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        def order(params: Any) -> ToolResult[str]:
            self.ran.append(params)
            return ToolResult.ok("Ordered.")

        made: Any = Tool[self.params, str]  # pyright: ignore[reportInvalidTypeArguments] - a type chosen at run time
        tool = made(
            name=self.name, description="Order.", handler=order, idempotency=self.once,
            annotations=ToolAnnotations(open_world=False),
        )  # fmt: skip
        return Prompt(name="desk", sections=[MarkdownSection(title="T", template=request, tools=[tool])]), Session()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


def test_a_failed_run_raises_its_error_again_until_it_is_retried(store: SqliteRunStore) -> None:
    """Nothing is asked before; then it goes on from where it was, and each call ran once."""
    first = Desk(Model(failing=(2,)), store)
    with pytest.raises(PromptEvaluationError, match="no network"):
        first.execute("go", run_id="r")
    second = Desk(Model(), store)
    with pytest.raises(PromptEvaluationError, match="no network"):
        second.resume("r")
    assert second.model.asked == []
    response, session = second.resume("r", retry=True)
    assert (response.text, second.model.asked) == ("done", [2, 3])
    assert [*first.ran, *second.ran] == [Order("n0"), Order("n1"), Order("n2")]
    assert [event.call_id for event in session[ToolInvoked].all()] == ["c0", "c1", "c2"]
    info = store.info("r")
    assert info is not None
    assert info.status == "done"
    assert [step.kind for step in store.steps("r")].count("end") == 2


def test_a_retried_run_may_fail_and_be_retried_again(store: SqliteRunStore) -> None:
    """Also when the same question fails; its end is that of the last attempt."""
    for failing, asked in (((1,), [0, 1]), ((1, 2), [1]), ((2,), [1, 2]), ((), [2, 3])):
        desk = Desk(Model(failing), store)
        retry = store.info("r") is not None
        if failing:
            with pytest.raises(PromptEvaluationError, match="no network"):
                desk.resume("r", retry=True) if retry else desk.execute("go", run_id="r")
        else:
            assert desk.resume("r", retry=True)[0].text == "done"
        assert desk.model.asked == asked
    assert Desk(Model(), store).resume("r", retry=True)[0].text == "done"  # a run that is done is not run again


def test_a_retried_run_that_was_interrupted_goes_on_by_itself(store: SqliteRunStore) -> None:
    """Once it was taken up again it is a run like any other that is not over."""
    with pytest.raises(PromptEvaluationError):
        Desk(Model(failing=(2,)), store).execute("go", run_id="r")
    store.take("r", retry=True).release()  # as a process that was killed at once
    assert [info.run_id for info in store.interrupted()] == ["r"]
    desk = Desk(Model(), store)
    assert desk.execute("go", run_id="r")[0].text == "done"
    assert desk.model.asked == [2, 3]


def interrupted(store: SqliteRunStore) -> None:
    """A run with two recorded calls whose process ended."""
    with pytest.raises(PromptEvaluationError):
        Desk(Model(failing=(2,)), store).execute("go", run_id="whole")
    calls = [step.seq for step in store.steps("whole", kinds=["call"])]
    store.fork("whole", at=calls[-1], new_id="r")


def test_a_changed_tool_that_reads_its_calls_is_a_warning(
    store: SqliteRunStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on, and the log names the tool."""
    interrupted(store)
    desk = Desk(Model(), store, OrderWithCount)
    with caplog.at_level(logging.WARNING):
        assert desk.execute("go", run_id="r")[0].text == "done"
    assert "These tools were changed since the run was recorded: order" in caplog.text
    assert desk.ran == [OrderWithCount("n2")]


def test_an_unchanged_tool_is_no_warning(store: SqliteRunStore, caplog: pytest.LogCaptureFixture) -> None:
    """The same program in another process has the same fingerprints."""
    interrupted(store)
    with caplog.at_level(logging.WARNING):
        Desk(Model(), store).execute("go", run_id="r")
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("params", "name", "problem"),
    [(OrderOfCount, "order", "step 4 \\(order: .*step 6"), (Order, "buy", "no such tool any more.*step 6")],
)
def test_a_tool_that_cannot_read_its_calls_is_refused_unless_accepted(
    store: SqliteRunStore, params: type[Any], name: str, problem: str
) -> None:
    """The error lists the calls and names the way on; nothing was asked or run, and the run can still be taken."""
    interrupted(store)
    desk = Desk(Model(), store, params, name)
    with pytest.raises(RunFormatError, match=problem) as caught:
        desk.execute("go", run_id="r")
    assert "accept_changed=" in str(caught.value)
    assert (desk.model.asked, desk.ran) == ([], [])
    response, session = desk.resume("r", accept_changed=["order"])
    assert response.text == "done"
    assert [event.outcome for event in session[ToolInvoked].all()][:2] == ["succeeded", "succeeded"]
    assert desk.model.asked == [2, 3]


@pytest.mark.parametrize(("effects", "again"), [("shared", []), ("fresh", [Order("n1"), Order("n2")])])
def test_an_effect_of_either_side_of_a_fork_happens_once_unless_it_is_to_be_fresh(
    store: SqliteRunStore, effects: Literal["shared", "fresh"], again: list[Order]
) -> None:
    """An order that was made after the point of the fork is replayed in the fork, not repeated."""
    once = IdempotencyConfig(scope="session")
    Desk(Model(), store, once=once).execute("go", run_id="whole")
    first_call = next(iter(store.steps("whole", kinds=["call"])))
    forked = store.open("whole").fork(at=first_call.seq, effects=effects)
    desk = Desk(Model(), store, once=once)
    response, session = desk.resume(forked)
    assert response.text == "done"
    assert desk.ran == again
    outcome = "succeeded" if again else "replayed"
    assert [event.outcome for event in session[ToolInvoked].all()] == ["succeeded", outcome, outcome]
    assert desk.model.asked == [1, 2, 3]
