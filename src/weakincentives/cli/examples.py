"""Running the examples of tools, each in a transaction that is thrown away."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ..adapters import ToolExecutor
from ..errors import RollbackError, WinkError
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolExample
from ..runtime import ToolCall, ToolInvoked, ToolReply, create_snapshot, release_snapshot, restore_snapshot
from ..serde import dump_json
from ..session import Session

State = Literal["ok", "note", "skipped", "WRONG"]

_BROKEN = frozenset({"crashed", "invalid", "timeout", "deadline", "undone", "unknown"})


class Verdict(NamedTuple):
    """What came of one example."""

    state: State
    tool: str
    text: str


def tried(prompt: Prompt[Any], *, effects: bool) -> Iterator[Verdict]:
    """Run every example of the prompt's tools on its resources and a fresh session; then take everything back.

    Policies are not asked: an example stands alone. An example that its handler answers with an error is a note, since
    it may need files or state that are not there; one that raises is wrong.
    """
    for bound in prompt.template.tree.tools.values():
        tool = bound.tool
        if not tool.examples:
            yield Verdict("note", tool.name, "has no example")
        elif tool.idempotency is not None and not effects:
            yield Verdict("skipped", tool.name, "its effects are real; --effects runs its examples")
        else:
            yield from (_try(tool, example, prompt) for example in tool.examples)


def _try(tool: Tool[Any, Any], example: ToolExample[Any, Any], prompt: Prompt[Any]) -> Verdict:
    what = f"example {example.description!r}"
    try:
        reply, error = _run_once(tool, example, prompt)
    except RollbackError as error:
        return Verdict("WRONG", tool.name, f"{what} could not be taken back: {error}")
    except WinkError as error:
        return Verdict("WRONG", tool.name, f"{what}: {error}")
    if reply.outcome in _BROKEN:
        return Verdict("WRONG", tool.name, f"{what} {reply.outcome}: {_first_line(reply)}{_where(error)}")
    if not reply.success:
        return Verdict("note", tool.name, f"{what} answers: {_first_line(reply)}")
    if reply.result.value != example.output:
        return Verdict("note", tool.name, f"{what} gives another value than it says")
    return Verdict("ok", tool.name, what)


def _run_once(
    tool: Tool[Any, Any], example: ToolExample[Any, Any], prompt: Prompt[Any]
) -> tuple[ToolReply, BaseException | None]:
    section = MarkdownSection[Any](title="Tool", template="", tools=[tool])
    alone: Prompt[Any] = Prompt(PromptTemplate[Any](ns="wink", key="check", sections=[section]))
    alone = alone.bind(resources=prompt.resources.registry)
    session = Session()
    prompt.install(session)
    with ToolExecutor(prompt=alone, session=session) as executor:
        before = create_snapshot(session, alone.resources)
        try:
            arguments = None if example.input is None else dump_json(example.input)
            reply = executor.execute(ToolCall("example", tool.name, arguments))
            event = session[ToolInvoked].latest()
            return reply, None if event is None else event.error
        finally:
            restore_snapshot(session, alone.resources, before)
            release_snapshot(session, before)


def _where(error: BaseException | None) -> str:
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _first_line(reply: ToolReply) -> str:
    return (reply.text.splitlines() or [""])[0]


__all__ = ["Verdict", "tried"]
