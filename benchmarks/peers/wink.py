"""WINK itself, in the project's own environment."""

from dataclasses import dataclass
from typing import Literal

from weakincentives import Session, ToolContext, ToolResult
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.testing import ScriptedAdapter, call_raw, say

from . import work


@dataclass(slots=True, frozen=True)
class Find:
    path: str
    pattern: str
    mode: Literal["regex", "literal", "glob"]
    span: dict[str, int]
    globs: list[str]
    limit: int


def handler(params: Find, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None, message=f"{params.path}:{params.limit}")


async def async_handler(params: Find, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None, message=f"{params.path}:{params.limit}")


def conversation(turns: int, *, asynchronous: bool) -> work.Conversation:
    handle = async_handler if asynchronous else handler
    tool = Tool[Find, None](name=work.NAME, description=work.DESCRIPTION, handler=handle, max_repeats=None)
    section = MarkdownSection(title="Task", template=work.QUESTION, tools=[tool])
    prompt: Prompt[str] = Prompt(PromptTemplate[str](ns="peers", key="find", sections=[section]))
    script = [*[call_raw(work.NAME, work.TEXT)] * turns, say(work.DONE)]

    async def arun() -> object:
        session = Session()
        response = await ScriptedAdapter(*script, max_turns=turns + 1).aevaluate(prompt, session)
        assert response.text == work.DONE, response
        return session, response

    def run() -> object:
        session = Session()
        response = ScriptedAdapter(*script, max_turns=turns + 1).evaluate(prompt, session)
        assert response.text == work.DONE, response
        return session, response

    return arun if asynchronous else run
