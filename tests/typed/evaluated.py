"""What a type checker knows of evaluations, sessions and scripts; see test_typed.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from weakincentives.adapters import PromptResponse
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.runtime import MainLoop
from weakincentives.session import Session
from weakincentives.testing import ScriptedAdapter, call, make_context, make_context_with_files, say
from weakincentives.testing.scripted import Turn


@dataclass(frozen=True)
class Verdict:
    passed: bool


VERDICT = PromptTemplate[Verdict](ns="typed", key="verdict")
SCRIPT = [call("ask"), say('{"passed": true}')]
SEVERAL: list[Turn] = [[call("ask"), call("ask")], say("Done.")]


def ask(params: None, *, context: ToolContext) -> ToolResult[bool]:
    """An evaluation inside a call, on the call's own session and on a fork of it."""
    fork = context.session.fork()
    with ScriptedAdapter(say('{"passed": true}'), say('{"passed": false}')) as adapter:
        first = adapter.evaluate(Prompt(VERDICT), context.session)
        second = adapter.evaluate(Prompt(VERDICT), fork)
    return ToolResult.ok(first.output.passed and not second.output.passed)


class Judging(MainLoop[str, Verdict]):
    def prepare(self, request: str) -> tuple[Prompt[Verdict], Session]:
        return Prompt(VERDICT), Session()


def main() -> None:
    """Every line is true at run time too."""
    tool = Tool[None, bool](name="ask", description="Ask.", handler=ask)
    template = PromptTemplate[Verdict](ns="typed", key="asking", sections=[MarkdownSection(title="T", tools=[tool])])
    with ScriptedAdapter(*SCRIPT) as adapter:
        response = adapter.evaluate(Prompt(template), make_context().session)
    assert_type(response, PromptResponse[Verdict])
    assert_type(response.output, Verdict)
    assert_type(response.output.passed, bool)
    assert response.output.passed
    ScriptedAdapter(*SEVERAL).evaluate(
        Prompt(name="plain", sections=[MarkdownSection(title="T", tools=[tool])]), Session()
    )
    answer, _ = Judging(adapter=ScriptedAdapter(*SCRIPT[1:])).execute("Is it good?")
    assert_type(answer.output, Verdict)
    context = make_context_with_files(["a.txt"])
    assert context.filesystem.exists("a.txt")
    with make_context() as made:
        assert not made.filesystem.exists("a.txt")
