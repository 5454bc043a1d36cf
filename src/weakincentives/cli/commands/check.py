"""`wink check TARGET`: is an agent sound? Its definition, its text, and every example of its tools."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ...adapters import ToolExecutor
from ...errors import PromptRenderError, RollbackError, WinkError
from ...prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolAnnotations, ToolExample
from ...runtime import ToolCall, ToolInvoked, ToolReply, create_snapshot, release_snapshot, restore_snapshot
from ...serde import dump_json
from ...session import Session
from ..loading import last_line, load, prompt_and_session, read_request
from ..output import show


def run(arguments: argparse.Namespace) -> int:
    """Check everything; 1 when something is wrong."""
    loaded = load(arguments.target)
    prompt, session = prompt_and_session(loaded, read_request(arguments.request))
    show(f"ok      {loaded.name}: {_number(len(prompt.sections), 'section')}, prompt {prompt.name!r}")
    wrong = 0
    try:
        prompt.install(session)
        rendered = prompt.render(session=session)
        length = len(rendered.system) + len(rendered.text)
        show(f"ok      renders: {length:,} characters, {_number(len(prompt.tools(session=session)), 'tool')}")
    except PromptRenderError as error:
        if arguments.request is None and error.dataclass_type is not None:
            show(f"skipped rendering: {error} (give params with --request)")
        else:
            wrong += 1
            show(f"WRONG   rendering: {error}")
    except WinkError as error:
        wrong += 1
        show(f"WRONG   rendering: {error}")
    not_run: list[str] = []
    for result in run_examples(prompt, effects=arguments.effects):
        wrong += result.state == "WRONG"
        if result.state == "skipped":
            not_run.append(result.tool)
        show(f"{result.state:7} {result.tool}: {result.text}")
    silent = _without_annotations(prompt.sections)
    if silent:
        show(
            f"note    {', '.join(silent)}: killed while it runs, a recorded call is unknown and not repeated; "
            "a tool that changes only state and files should say so: ToolAnnotations(open_world=False)"
        )
    show(f"{wrong} wrong" if wrong else "all is well", end="")
    if not_run:
        names = ", ".join(dict.fromkeys(not_run))
        show(f"; {_number(len(not_run), 'example')} of {names} not run (--effects runs them, for real)", end="")
    show()
    return 1 if wrong else 0


def _without_annotations(sections: Iterable[Section[Any]]) -> list[str]:
    """The tools that do not say what they touch: for the run record they may leave the machine."""
    tools = (tool for section in _all(sections) for tool in section.tools)
    return [tool.name for tool in tools if tool.annotations == ToolAnnotations() and tool.idempotency is None]


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


State = Literal["ok", "note", "skipped", "WRONG"]

Trial = Sequence[tuple[Tool[Any, Any], ToolExample[Any, Any]]]

_BROKEN = frozenset({"crashed", "invalid", "timeout", "deadline", "undone", "unknown"})
_SHOWN_CHARS = 120


class ExampleResult(NamedTuple):
    """What came of one example."""

    state: State
    tool: str
    text: str


def run_examples(prompt: Prompt[Any], *, effects: bool) -> Iterator[ExampleResult]:
    """Run every example of the prompt's tools, each in a transaction of its own that is then undone.

    An example gets a fresh session and the prompt's resources, with what its section says that examples need in place
    of them; the examples of a section that says so go on from one another. Policies are not asked: an example stands
    alone. One that its handler answers with an error is a note, since it may need files or state that are not there;
    one that raises is wrong.
    """
    for section in _all(prompt.sections):
        story: list[tuple[Tool[Any, Any], ToolExample[Any, Any]]] = []
        for tool in section.tools:
            if not tool.examples:
                yield ExampleResult("note", tool.name, "has no example")
            elif tool.idempotency is not None and not effects:
                why = "was not run: its effect would be real, and no transaction undoes it"
                for example in tool.examples:
                    yield ExampleResult("skipped", tool.name, f"{_named(example)} {why}")
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


def _named(example: ToolExample[Any, Any]) -> str:
    return f"example {example.description!r}"


def _try(trial: Trial, section: Section[Any], prompt: Prompt[Any]) -> Iterator[ExampleResult]:
    """Run the examples one after the other on one session, then undo everything."""
    tools = MarkdownSection[Any](title="Tools", template="", tools=section.tools)
    alone: Prompt[Any] = Prompt(PromptTemplate[Any](ns="wink", key="check", sections=[tools]))
    try:
        alone = alone.bind(resources=prompt.resources.registry).bind(resources=section.example_resources())
    except Exception as error:  # noqa: BLE001 - a user's section
        text = f"example_resources() of section {section.key!r} raised {type(error).__name__}: {error}"
        yield ExampleResult("WRONG", trial[0][0].name, text)
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
        yield ExampleResult("WRONG", trial[-1][0].name, f"{what}{_why(error)}")


def _told(trial: Trial, executor: ToolExecutor, session: Session) -> Iterator[ExampleResult]:
    """One result for each example, also for those that cannot go on from one that ended the story."""
    for number, (tool, example) in enumerate(trial):
        try:
            arguments = None if example.input is None else dump_json(example.input)
            call = ToolCall(f"example-{number}", tool.name, arguments)
            result = _run(executor, call, example, session)
        except WinkError as error:
            yield from _failed(trial, number, error)
            return
        yield result


def _failed(trial: Trial, number: int, error: WinkError) -> Iterator[ExampleResult]:
    tool, example = trial[number]
    yield ExampleResult("WRONG", tool.name, f"{_named(example)}{_why(error)}")
    for later, left in trial[number + 1 :]:
        text = f"{_named(left)} was not run: {_named(example)} of {tool.name}, which comes before it, failed"
        yield ExampleResult("note", later.name, text)


def _why(error: WinkError) -> str:
    return f" could not be undone: {error}" if isinstance(error, RollbackError) else f": {error}"


def _run(executor: ToolExecutor, call: ToolCall, example: ToolExample[Any, Any], session: Session) -> ExampleResult:
    reply = executor.execute(call)
    what = _named(example)
    if reply.outcome in _BROKEN:
        event = session[ToolInvoked].latest()
        where = last_line(None if event is None else event.error)
        return ExampleResult("WRONG", call.name, f"{what} {reply.outcome}: {_first_line(reply)}{where}")
    if not reply.success:
        return ExampleResult("note", call.name, f"{what} answers: {_first_line(reply)}")
    if reply.result.value != example.output:
        value = repr(reply.result.value)
        value = value if len(value) <= _SHOWN_CHARS else f"{value[: _SHOWN_CHARS - 3]}..."
        return ExampleResult("note", call.name, f"{what} gives another value than it says: {value}")
    return ExampleResult("ok", call.name, what)


def _first_line(reply: ToolReply) -> str:
    return (reply.text.splitlines() or [""])[0]
