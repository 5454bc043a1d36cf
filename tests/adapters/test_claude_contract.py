"""The contract of all adapters, with the real Claude Code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from tests.adapters.loopback import LoopbackServer
from tests.conftest import needs

from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.adapters.core import ProviderAdapter
from weakincentives.budget import TokenUsage
from weakincentives.runtime import PromptExecuted, PromptRendered
from weakincentives.testing.adapters import AdapterContract, Workshop, answers, assert_no_orphans
from weakincentives.testing.scripted import Call


@pytest.mark.torture  # two dozen starts of a large program
class TestClaude(AdapterContract):
    """Claude Code knows our tools under longer names, so the script says those."""

    @pytest.fixture(autouse=True)
    def _set_up(self, tmp_path: Path) -> Iterator[None]:
        needs(
            "claude-cli",
            present=find_spec("claude_agent_sdk") is not None and find_spec("mcp") is not None,
            install="pip install 'weakincentives[claude-agent-sdk]'",
        )
        self.config = tmp_path
        self.server: LoopbackServer | None = None
        yield
        if self.server is not None:
            self.server.close()

    def make(self, *turns: Any, **options: Any) -> ProviderAdapter:
        self.server = LoopbackServer(*[_renamed(turn) for turn in turns])
        env = {
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CONFIG_DIR": str(self.config),
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        return ClaudeAgentSDKAdapter("claude-sonnet-4-5", env=env, **options)

    def check_script(self, shop: Workshop, response: Any, adapter: ProviderAdapter) -> None:
        """The same end; only what Claude Code refuses by itself is refused in its own words."""
        assert (response.text, response.stop_reason, response.turns) == ("All is done.", "end_turn", 5)
        assert shop.outcomes == self.OUTCOMES
        assert shop.notes == ["b.txt"]
        assert sorted(shop.files.glob("**/*")) == ["a.txt", "b.txt"]
        replies = answers(response.history)
        assert [text.splitlines()[0] for _, text, _ in replies[:4]] == [
            "OK",
            "Wrote b.txt.",
            "It did not work.",
            "Internal error: no such shelf",
        ]
        assert replies[2][1].rstrip().endswith("Nothing was changed: 1 file and the note were restored.")
        assert [is_error for _, _, is_error in replies[:4]] == [False, False, False, True]
        assert len({call_id for call_id, _, _ in replies}) == 10
        assert_no_orphans(response.history)
        total = sum([self.usage] * 5, TokenUsage())
        (executed,) = shop.session[PromptExecuted].all()
        assert response.usage == executed.usage == total
        assert shop.session[PromptRendered].count() == 1
        self.finish(adapter)

    @pytest.mark.skip(reason="Claude Code makes the ids and does not repeat them")
    def test_missing_and_repeated_ids_are_mended(self) -> None: ...

    @pytest.mark.skip(reason="Claude Code makes the ids and does not repeat them")
    def test_ids_may_come_again_in_later_turns(self) -> None: ...

    @pytest.mark.skip(reason="the process needs longer to start than this deadline; see test_claude.py")
    def test_a_deadline_inside_a_call_ends_the_evaluation(self) -> None: ...

    @pytest.mark.skip(reason="Claude Code reports the tokens of a turn when it ends; see test_claude.py")
    def test_a_budget_stops_calls_and_requests(self) -> None: ...

    @pytest.mark.skip(reason="Claude Code runs the other calls of the turn as well; see test_claude.py")
    def test_opening_sections_keeps_the_transcript(self) -> None: ...

    @pytest.mark.skip(reason="Claude Code runs the loop, so there is no manual mode")
    def test_manual_mode_goes_step_by_step(self) -> None: ...

    def finish(self, adapter: ProviderAdapter) -> None:
        assert self.server is not None
        self.server.assert_complete()


def _renamed(turn: Any) -> Any:
    if isinstance(turn, list | tuple):
        return [_renamed(part) for part in cast("Sequence[Any]", turn)]
    return replace(turn, name=f"mcp__wink__{turn.name}") if isinstance(turn, Call) else turn


del AdapterContract  # pytest would collect it
