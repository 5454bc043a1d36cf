"""Batches of requests whose runs are on record: killed and run again, tried again, resumed in async code."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from weakincentives import MainLoop, Session
from weakincentives.adapters import ModelRequest
from weakincentives.errors import PromptEvaluationError, RecordError
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, Retries, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Ticket:
    number: int


@dataclass(frozen=True)
class Note:
    text: str


def note(params: Note, *, context: ToolContext) -> ToolResult[str]:
    context.session[Note].append(params)
    return ToolResult.ok("", message="Noted.")


NOTE = Tool[Note, str](
    name="note", description="Note.", handler=note, annotations=ToolAnnotations(open_world=False), max_repeats=None
)


class Desk(MainLoop[Ticket, str]):
    prepared = 0

    def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
        self.prepared += 1
        task = MarkdownSection(title="Task", template=f"Answer ticket {request.number}.", tools=[NOTE])
        return Prompt(name="desk", sections=[task]), Session(bus=self.bus)


def name(ticket: Ticket) -> str:
    return f"ticket-{ticket.number}"


class Model:
    """Asks for a note, then answers; writes down what it was asked, and may end the process or fail instead."""

    def __init__(self, asked: Path) -> None:
        self.asked = asked
        self.fails: Counter[str] = Counter()

    def __call__(self, request: ModelRequest) -> object:
        ticket = request.messages[0].text.split("ticket ")[1].split(".")[0]
        question = f"{ticket} {len(request.messages)}"
        if self.fails[question] > 0:
            self.fails[question] -= 1
            raise RuntimeError("the provider is gone")
        with self.asked.open("a") as log:
            log.write(f"{question}\n")
        return call("note", text=ticket) if len(request.messages) == 1 else say(f"Answer {ticket}.")


def desk(store: SqliteRunStore, model: Model) -> Desk:
    return Desk(ScriptedAdapter(*[model] * 40), config=MainLoopConfig(runs=store))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path / "asked")


TICKETS = [Ticket(number) for number in range(6)]

PROGRAM = """
import os, sys
from pathlib import Path
from tests.record.test_batches import TICKETS, Model, SqliteRunStore, desk, name

class Killed(Model):
    def __call__(self, request):
        turn = super().__call__(request)
        if len(self.asked.read_text().splitlines()) == 7:
            os._exit(9)
        return turn

folder = Path(sys.argv[1])
desk(SqliteRunStore(folder / "runs.db"), Killed(folder / "asked")).run(TICKETS, concurrency=3, run_id=name)
"""


def test_a_batch_that_was_killed_and_is_run_again(tmp_path: Path, model: Model) -> None:
    """It goes on with those that were interrupted, and asks nothing of those that have ended."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 9
    with SqliteRunStore(tmp_path / "runs.db") as store:
        loop = desk(store, model)
        results = loop.run(TICKETS, concurrency=3, run_id=name)
        assert [result.response and result.response.text for result in results] == [f"Answer {n}." for n in range(6)]
        notes = [result.session and result.session[Note].all() for result in results]
        assert notes == [[Note(f"{number}")] for number in range(6)]
        asked = Counter(model.asked.read_text().splitlines())
        assert set(asked) == {f"{number} {length}" for number in range(6) for length in (1, 3)}
        # Only what three requests had asked when the process ended, and was not answered, can have been asked twice.
        assert sum(asked.values()) <= 12 + 3
        assert sorted(info.run_id for info in store.infos()) == [name(ticket) for ticket in TICKETS]

        again = loop.run(TICKETS, run_id=name)
        assert [result.response and result.response.text for result in again] == [f"Answer {n}." for n in range(6)]
        assert Counter(model.asked.read_text().splitlines()) == asked


def test_another_attempt_goes_on_where_the_last_one_failed(tmp_path: Path, model: Model) -> None:
    """With ids the note is not made again; without them each attempt is a run of its own."""
    retries = Retries(request=1, delay=0)
    with SqliteRunStore(tmp_path / "runs.db") as store:
        model.fails["1 3"] = 1
        (result,) = desk(store, model).run([Ticket(1)], run_id=name, retries=retries)
        assert (result.ok, result.attempts) == (True, 2)
        assert model.asked.read_text().splitlines() == ["1 1", "1 3"]
        assert [info.run_id for info in store.infos()] == ["ticket-1"]

        model.fails["2 3"] = 1
        (result,) = desk(store, model).run([Ticket(2)], retries=retries)
        assert (result.ok, result.attempts) == (True, 2)
        assert model.asked.read_text().splitlines()[2:] == ["2 1", "2 1", "2 3"]


def test_another_attempt_after_prepare_failed(tmp_path: Path, model: Model) -> None:
    """Nothing is on record then, so the second attempt begins the run."""

    class Failing(Desk):
        def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
            if self.prepared == 0:
                self.prepared = 1
                raise RuntimeError("not yet")
            return super().prepare(request)

    with SqliteRunStore(tmp_path / "runs.db") as store:
        loop = Failing(ScriptedAdapter(*[model] * 2), config=MainLoopConfig(runs=store))
        (result,) = loop.run([Ticket(1)], run_id=name, retries=Retries(prepare=1, delay=0))
        assert result.ok


def test_a_failed_run_of_an_earlier_batch_is_tried_again_only_if_told_to(tmp_path: Path, model: Model) -> None:
    """Its recorded error is its result; `retries` goes on with it."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        loop = desk(store, model)
        model.fails["1 3"] = 1
        for _ in range(2):
            (result,) = loop.run([Ticket(1)], run_id=name)
            assert isinstance(result.error, PromptEvaluationError)
            assert "the provider is gone" in str(result.error)
        (result,) = loop.run([Ticket(1)], run_id=name, retries=Retries(request=1, delay=0))
        assert result.ok
        assert model.asked.read_text().splitlines() == ["1 1", "1 3"]


def test_ids_need_a_store(model: Model) -> None:
    """That is said at once, not in the result of each request."""
    loop = Desk(ScriptedAdapter(model))
    for run in (loop.run, loop.stream_results):
        with pytest.raises(TypeError, match=r"has no store for runs: pass MainLoopConfig\(runs=\.\.\.\)"):
            list(run([Ticket(1)], run_id=name))


def test_resume_in_async_code(tmp_path: Path, model: Model) -> None:
    """`aresume` does what `resume` does; an unknown run is an error."""

    async def main() -> None:
        with SqliteRunStore(tmp_path / "runs.db") as store:
            model.fails["1 3"] = 1
            with pytest.raises(PromptEvaluationError):
                await desk(store, model).aexecute(Ticket(1), run_id="one")
            response, session = await desk(store, model).aresume("one", retry=True)
            assert response.text == "Answer 1."
            assert session[Note].all() == [Note("1")]
            assert model.asked.read_text().splitlines() == ["1 1", "1 3"]
            with pytest.raises(RecordError, match="There is no run 'other' in this store"):
                await desk(store, model).aresume("other")

    asyncio.run(main())


__all__ = ["TICKETS", "Model", "SqliteRunStore", "desk", "name"]
