"""A smaller job, for models that run on this machine: a shopping list, and a check that it says what was done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..adapters import CallStarted, ProgressEvent
from ..errors import PromptEvaluationError
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolAnnotations, ToolContext, ToolResult
from ..runtime import Session, SqliteRunStore, ToolInvoked
from .play import RUN_ID, OnEvent, Played

MAX_TURNS = 8


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to buy."""

    name: str = field(metadata={"description": "What to buy, in a word or two", "minLength": 1, "maxLength": 40})


def _add_item(params: Item, *, context: ToolContext) -> ToolResult[str]:
    # Written first and looked at then: a second entry is undone with the call.
    before = [item.name for item in context.session[Item].all()]
    context.session[Item].append(params)
    if params.name in before:
        return ToolResult.error(f"{params.name} is on the list already.")
    return ToolResult.ok(params.name, message="It is on the list:")


def _read_list(params: None, *, context: ToolContext) -> ToolResult[str]:
    del params
    return ToolResult.ok(", ".join(item.name for item in context.session[Item].all()) or "The list is empty.")


TEMPLATE = PromptTemplate[Any](
    ns="demo",
    key="errand",
    sections=[
        MarkdownSection(
            title="Task",
            template="Put milk, bread and tea on the shopping list, one call for each. Then say that you are done.",
            tools=[
                Tool[Item, str](name="add_item", description="Put one thing on the list.", handler=_add_item),
                Tool[None, str](
                    name="read_list",
                    description="What is on the list.",
                    handler=_read_list,
                    annotations=ToolAnnotations(read_only=True, open_world=False),
                ),
            ],
        )
    ],
)


def play(adapter: Any, on_event: OnEvent, *, record: SqliteRunStore | None = None) -> Played:
    """Let a model do the errand. The list may be anything; the log must be true.

    With a store the run is on record there, as `demo`.
    """
    asked: Counter[str] = Counter()
    played, session = Played(), Session()

    def watch(event: ProgressEvent) -> None:
        if isinstance(event, CallStarted):
            asked[event.call_id] += 1
        on_event(event)

    try:
        recorded: dict[str, Any] = {} if record is None else {"record": record.run(RUN_ID)}
        response = adapter.evaluate(Prompt(TEMPLATE), session, on_event=watch, **recorded)
        played.usage, played.turns = response.usage, response.turns
    except PromptEvaluationError as error:
        if not str(error).startswith("The model did not finish within"):
            played.error = str(error)
    events = session[ToolInvoked].all()
    kept = [event.params.name for event in events if event.tool_name == "add_item" and event.success]
    names = [item.name for item in session[Item].all()]
    told = Counter(event.call_id for event in events)
    played.checks = [
        (f"the list holds what the calls that succeeded put there: {', '.join(names) or 'nothing'}", names == kept),
        (f"{asked.total()} calls, one event each", told == asked and len(events) == asked.total()),
        ("every call was of a tool that there is, with arguments that fit", all(event.admitted for event in events)),
        (f"it ended within {MAX_TURNS} turns", played.error is None),
    ]
    return played
