"""The contract of all adapters, with the real Claude Code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from tests.adapters.loopback import LoopbackServer
from tests.conftest import needs

from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.budget import Budget, TokenUsage
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.loop.adapter import Adapter
from weakincentives.loop.response import history_of
from weakincentives.runtime import PromptExecuted, PromptRendered, ToolInvoked
from weakincentives.testing.adapter_contract import AdapterContract, Verdict, Workshop, answers, assert_no_orphans
from weakincentives.testing.scripted import Call, call, say

pytestmark = pytest.mark.slow  # a program of 200 MB


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

    def make(self, *turns: Any, **options: Any) -> Adapter:
        self.server = LoopbackServer(*[_renamed(turn) for turn in turns])
        env = {
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CONFIG_DIR": str(self.config),
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        return ClaudeAgentSDKAdapter("claude-sonnet-4-5", env=env, **options)

    def check_script(self, shop: Workshop, response: Any, adapter: Adapter) -> None:
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
        assert replies[2][1].rstrip().endswith("Rolled back: 1 file and the Note state. Nothing was changed.")
        assert [is_error for _, _, is_error in replies[:4]] == [False, False, False, True]
        assert len({call_id for call_id, _, _ in replies}) == 10
        assert_no_orphans(response.history)
        total = sum([self.usage] * 5, TokenUsage())
        (executed,) = shop.session[PromptExecuted].all()
        assert response.usage == executed.usage == total
        assert shop.session[PromptRendered].count() == 1
        self.finish(adapter)

    # Where Claude Code, which runs the loop, does it in its own way: what holds all the same.

    def test_missing_and_repeated_ids_are_mended(self) -> None:
        """Calls of one id are one call to Claude Code: none runs twice, and each id is answered."""
        shop = Workshop()
        adapter = self.make(
            (
                call("write", path="1").with_id("one"),
                call("write", path="2").with_id("same"),
                call("write", path="2").with_id("same"),
            ),
            say("Done."),
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.notes == ["1", "2"]
        done = [event.call_id for event in shop.session[ToolInvoked].all() if event.success]
        assert done == ["one", "same"]
        assert_no_orphans(response.history)

    def test_ids_may_come_again_in_later_turns(self) -> None:
        """The service makes ids that do not come again; one that does is taken for the call it was."""
        shop = Workshop()
        adapter = self.make(call("write", path="1").with_id("x"), call("write", path="2").with_id("x"), say("Done."))
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.notes == ["1"]
        assert_no_orphans(response.history)

    def test_a_deadline_inside_a_call_ends_the_evaluation(self) -> None:
        """The call is undone, the other is recorded as not run; the process needs some seconds to start."""
        shop = Workshop()
        adapter = self.make((call("write", path="1", then="wait"), call("write", path="2")), say("Never."))
        deadline = Deadline.after(timedelta(seconds=15))
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(shop.prompt, shop.session, deadline=deadline)
        shop.go_on.set()
        assert caught.value.phase == "deadline"
        assert shop.outcomes[0] == ("write", "deadline")
        assert shop.outcomes[1:] in ([("write", "deadline")], [("write", "cancelled")])
        assert shop.notes == []
        assert_no_orphans(history_of(caught.value))

    def test_a_budget_stops_calls_and_requests(self) -> None:
        """Claude Code tells the tokens of a turn when it ends, so that turn's calls run; no other turn begins."""
        shop = Workshop()
        adapter = self.make(call("write", path="1"), call("write", path="2"), say("Never."), say("Never."))
        budget = Budget(max_total_tokens=self.usage.total * 2 - 1)
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(shop.prompt, shop.session, budget=budget)
        assert caught.value.phase == "budget"
        assert shop.outcomes[0] == ("write", "succeeded")
        assert len(shop.outcomes) == 2
        assert_no_orphans(history_of(caught.value))

    def test_opening_sections_keeps_the_transcript(self) -> None:
        """The other calls of the turn run as well; the section's tools work from then on."""
        shop = Workshop()
        adapter = self.make(
            (call("write", path="1"), call("open_sections", section_keys=["manual"], reason="to dig")),
            call("dig"),
            say("Gold."),
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.outcomes == [("write", "succeeded"), ("open_sections", "expanded"), ("dig", "succeeded")]
        opened = [text for _, text, _ in answers(response.history) if text.startswith("Opened: manual")]
        assert "Dig with care." in opened[0]
        self.check_opened(shop)
        assert_no_orphans(response.history)

    def test_a_refusal_to_give_a_typed_answer_ends_at_once(self) -> None:
        """Claude Code itself tries a refused request once more; then it is over, and we ask for nothing."""
        shop = Workshop(Verdict)
        adapter = self.make(*[say("I would rather not.", stop_reason="refusal")] * 2)
        with pytest.raises(PromptEvaluationError, match="The model declined to answer") as caught:
            adapter.evaluate(shop.prompt, shop.session)
        assert caught.value.phase == "response"
        assert shop.session[PromptExecuted].count() == 1
        self.finish(adapter)

    def test_a_refusal_is_an_answer_where_no_type_is_declared(self) -> None:
        """As with every other adapter: the response says so."""
        shop = Workshop()
        adapter = self.make(*[say("I would rather not.", stop_reason="refusal")] * 2)
        assert adapter.evaluate(shop.prompt, shop.session).stop_reason == "refusal"

    def test_a_truncated_typed_answer_is_asked_for_in_fewer_words(self) -> None:
        """Claude Code has the model go on where it was cut, so there is nothing for us to ask for."""
        shop = Workshop(Verdict)
        adapter = self.make(say('{"passed": tr', stop_reason="max_tokens"), say('{"passed": true}'))
        assert adapter.evaluate(shop.prompt, shop.session).output == Verdict(True)
        self.finish(adapter)

    def test_manual_mode_goes_step_by_step(self) -> None:
        """There is none, since no turn is ours to hand out; asking for it is refused at once."""
        with pytest.raises(ValueError, match="no manual mode: Claude Code runs the loop"):
            self.make(say("Never."), manual=True)
        assert self.server is not None
        self.server.close()
        shop, adapter = Workshop(), self.make(say("Never."))
        with pytest.raises(ValueError, match="tool_results= belongs to manual mode"):
            adapter.evaluate(shop.prompt, shop.session, tool_results=[])

    def finish(self, adapter: Adapter) -> None:
        assert self.server is not None
        self.server.assert_complete()


def _renamed(turn: Any) -> Any:
    if isinstance(turn, list | tuple):
        return [_renamed(part) for part in cast("Sequence[Any]", turn)]
    return replace(turn, name=f"mcp__wink__{turn.name}") if isinstance(turn, Call) else turn


del AdapterContract  # pytest would collect it
