"""What the system says is on record too: served, shown, exported masked, and compared by replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, MarkdownSection, Prompt, Session
from weakincentives.prompt import PromptTemplate, SectionVisibility
from weakincentives.runtime import MainLoopConfig, RecordedRun, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.testing import ScriptedAdapter, call, replay, say

RULES = "Refunds need a receipt. The key is sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD."


class Desk(MainLoop[str, Any]):
    """Its rules are a summary until they are opened."""

    rules = RULES

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        rules = MarkdownSection(
            title="Rules", template=self.rules, summary="When to refund.", visibility=SectionVisibility.SUMMARY
        )
        ticket = MarkdownSection(title="Ticket", template=request)
        template = PromptTemplate[Any](ns="t", key="desk", system=[rules], sections=[ticket])
        return Prompt(template), Session(bus=self.bus)


class NewRules(Desk):
    """The program was changed since."""

    rules = "Refund everything."


OPEN = call("open_sections", section_keys=["rules"], reason="asked").with_id("o1")


def recorded(store: SqliteRunStore, *turns: Any, desk: type[Desk] = Desk) -> ScriptedAdapter:
    """Run as far as the turns go."""
    adapter = ScriptedAdapter(*turns)
    desk(adapter, config=MainLoopConfig(runs=store)).execute("It broke.", run_id="r")
    return adapter


def test_what_was_said_is_served(tmp_path: Path) -> None:
    """A run goes on with what the model had read, whatever the program says today."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        with pytest.raises(KeyboardInterrupt):
            recorded(store, OPEN, call("nothing").with_id("n1"), KeyboardInterrupt())
        later = recorded(store, say("No."), desk=NewRules)
        assert "Refunds need a receipt" in (later.requests[0].system or "")
        assert "Refund everything" not in (later.requests[0].system or "")
        assert "Ticket" not in (later.requests[0].system or "")


def test_it_can_be_looked_at(tmp_path: Path) -> None:
    """As of each step; an exported run has its credentials masked."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        recorded(store, OPEN, say("No."))
        run = store.open("r")
        prompts = [run.prompt_at(step.seq) for step in run.steps() if step.kind == "prompt"]
        assert ["When to refund." in prompt.system for prompt in prompts if prompt] == [True, False]
        assert ["receipt" in prompt.system for prompt in prompts if prompt] == [False, True]
        assert all("It broke." in prompt and "It broke." not in prompt.system for prompt in prompts if prompt)
        exported = export_run(store, "r", tmp_path / "r.wink")
        assert b"sk-abcdef" not in exported.read_bytes()
        with SqliteRunStore(exported) as other:
            last = RecordedRun(other, "r").prompt_at(len(run.steps()))
            assert last is not None
            assert "receipt" in last.system


def test_a_long_one_is_kept_once(tmp_path: Path) -> None:
    """Beside the rows, as other long texts are; exports have it too."""

    class Long(Desk):
        rules = "Refunds need a receipt. " * 2_000

    with SqliteRunStore(tmp_path / "runs.db") as store:
        recorded(store, OPEN, say("No."), desk=Long)
        exported = export_run(store, "r", tmp_path / "r.wink")
        with SqliteRunStore(exported) as other:
            assert list(other.verify()) == []
            last = other.open("r").prompt_at(len(store.open("r").steps()))
            assert last is not None
            assert last.system.count("receipt") == 2_000


def test_a_replay_tells_other_words_of_the_system(tmp_path: Path) -> None:
    """They are a part of the prompt."""
    with SqliteRunStore(tmp_path / "runs.db") as store:
        recorded(store, OPEN, say("No."))
        exported = export_run(store, "r", tmp_path / "r.wink", masked=False)
    replay(exported, Desk).assert_same()
    kinds = {one.kind for one in replay(exported, NewRules).divergences}
    assert kinds == {"prompt"}
