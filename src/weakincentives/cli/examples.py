"""Running the examples of tools, each in a transaction that is thrown away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..adapters import ToolExecutor
from ..errors import RollbackError, WinkError
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolExample
from ..runtime import ToolCall, ToolInvoked, ToolReply, create_snapshot, release_snapshot, restore_snapshot
from ..serde import dump_json
from ..session import Session
from .loading import last_line

State = Literal["ok", "note", "skipped", "WRONG"]

Trial = Sequence[tuple[Tool[Any, Any], ToolExample[Any, Any]]]

_BROKEN = frozenset({"crashed", "invalid", "timeout", "deadline", "undone", "unknown"})
_SHOWN_CHARS = 120


class Verdict(NamedTuple):
    """What came of one example."""

    state: State
    tool: str
    text: str


def tried(prompt: Prompt[Any], *, effects: bool) -> Iterator[Verdict]:
    """Run every example of the prompt's tools, each in a transaction of its own that is then taken back.

    An example gets a fresh session and the prompt's resources, with what its section says that examples need in place
    of them; the examples of a section that says so go on from one another. Policies are not asked: an example stands
    alone. One that its handler answers with an error is a note, since it may need files or state that are not there;
    one that raises is wrong.
    """
    for section in _all(prompt.sections):
        story: list[tuple[Tool[Any, Any], ToolExample[Any, Any]]] = []
        for tool in section.tools:
            if not tool.examples:
                yield Verdict("note", tool.name, "has no example")
            elif tool.idempotency is not None and not effects:
                yield from (Verdict("skipped", tool.name, _not_run(example)) for example in tool.examples)
            elif section.examples_continue:
                story += [(tool, example) for example in tool.examples]
            else:
                for example in tool.examples:
                    yield from _try([(tool, example)], section, prompt)
        if story:
            yield from _try(story, section, prompt)


def _all(sections: Iterable[Section[Any]]) -> Iterator[Section[Any]]:
    for section in sections:
        yield section
        yield from _all(section.children)


def _not_run(example: ToolExample[Any, Any]) -> str:
    return f"{_named(example)} was not run: its effect would be real, and no transaction takes it back"


def _named(example: ToolExample[Any, Any]) -> str:
    return f"example {example.description!r}"


def _try(trial: Trial, section: Section[Any], prompt: Prompt[Any]) -> Iterator[Verdict]:
    """Run the examples one after the other on one session, then take everything back."""
    tools = MarkdownSection[Any](title="Tools", template="", tools=section.tools)
    alone: Prompt[Any] = Prompt(PromptTemplate[Any](ns="wink", key="check", sections=[tools]))
    try:
        alone = alone.bind(resources=prompt.resources.registry).bind(resources=section.example_resources())
    except Exception as error:  # noqa: BLE001 - a user's section
        text = f"example_resources() of section {section.key!r} raised {type(error).__name__}: {error}"
        yield Verdict("WRONG", trial[0][0].name, text)
        return
    session = Session()
    prompt.install(session)
    begun = False
    try:
        with ToolExecutor(prompt=alone, session=session) as executor:
            before = create_snapshot(session, alone.resources)
            begun = True
            try:
                yield from _told(trial, executor, session)
            finally:
                restore_snapshot(session, alone.resources, before)
                release_snapshot(session, before)
    except WinkError as error:
        if not begun:
            yield from _failed(trial, 0, error)
            return
        what = _named(trial[0][1]) if len(trial) == 1 else f"the examples of section {section.key!r}"
        yield Verdict("WRONG", trial[-1][0].name, f"{what}{_why(error)}")


def _told(trial: Trial, executor: ToolExecutor, session: Session) -> Iterator[Verdict]:
    """One verdict for each example, also for those that cannot go on from one that ended the story."""
    for number, (tool, example) in enumerate(trial):
        try:
            call = ToolCall(f"example-{number}", tool.name, _arguments(example))
            verdict = _run(executor, call, example, session)
        except WinkError as error:
            yield from _failed(trial, number, error)
            return
        yield verdict


def _failed(trial: Trial, number: int, error: WinkError) -> Iterator[Verdict]:
    tool, example = trial[number]
    yield Verdict("WRONG", tool.name, f"{_named(example)}{_why(error)}")
    for later, left in trial[number + 1 :]:
        text = f"{_named(left)} was not run: {_named(example)} of {tool.name}, which comes before it, failed"
        yield Verdict("note", later.name, text)


def _why(error: WinkError) -> str:
    return f" could not be taken back: {error}" if isinstance(error, RollbackError) else f": {error}"


def _arguments(example: ToolExample[Any, Any]) -> str | bytes | None:
    return None if example.input is None else dump_json(example.input)


def _run(executor: ToolExecutor, call: ToolCall, example: ToolExample[Any, Any], session: Session) -> Verdict:
    reply = executor.execute(call)
    what = _named(example)
    if reply.outcome in _BROKEN:
        event = session[ToolInvoked].latest()
        where = last_line(None if event is None else event.error)
        return Verdict("WRONG", call.name, f"{what} {reply.outcome}: {_first_line(reply)}{where}")
    if not reply.success:
        return Verdict("note", call.name, f"{what} answers: {_first_line(reply)}")
    if reply.result.value != example.output:
        return Verdict("note", call.name, f"{what} gives another value than it says: {_shown(reply.result.value)}")
    return Verdict("ok", call.name, what)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def _first_line(reply: ToolReply) -> str:
    return (reply.text.splitlines() or [""])[0]


__all__ = ["Verdict", "tried"]
