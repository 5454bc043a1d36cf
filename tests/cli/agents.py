"""Agents that the tests of the command line run, check and look at."""

from dataclasses import dataclass

from weakincentives.filesystem import Filesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolExample,
    ToolResult,
)
from weakincentives.prompt.idempotency import IdempotencyConfig
from weakincentives.runtime import MainLoop, Session
from weakincentives.testing import call, say


@dataclass(frozen=True)
class Who:
    name: str


@dataclass(frozen=True)
class Where:
    town: str


@dataclass(frozen=True)
class Number:
    x: int = 1
    """What to add to."""


@dataclass(frozen=True)
class Review:
    verdict: str


def _add(params: Number, *, context: ToolContext) -> ToolResult[int]:
    return ToolResult.ok(params.x + 1)


def _note(params: Number, *, context: ToolContext) -> ToolResult[str]:
    context.resources.get(Filesystem).write("note.txt", str(params.x))
    return ToolResult.ok("noted")


def _raise(params: Number, *, context: ToolContext) -> ToolResult[int]:
    raise ValueError("password=hunter2 is wrong")


def _refuse(params: Number, *, context: ToolContext) -> ToolResult[int]:
    return ToolResult.error("Not today.")


def _pay(params: Number, *, context: ToolContext) -> ToolResult[int]:
    PAID.append(params.x)
    return ToolResult.ok(params.x)


PAID: list[int] = []

add = Tool[Number, int](
    name="add",
    description="Add one.",
    handler=_add,
    examples=[ToolExample("One and one", Number(1), 2)],
    annotations=ToolAnnotations(read_only=True),
)
note = Tool[Number, str](
    name="note", description="Note a number.", handler=_note, examples=[ToolExample("Note it", Number(3), "noted")]
)
broken = Tool[Number, int](
    name="broken", description="Raises.", handler=_raise, examples=[ToolExample("Raise", Number(1), 2)]
)
moody = Tool[Number, int](
    name="moody", description="Refuses.", handler=_refuse, examples=[ToolExample("Ask", Number(1), 2)]
)
pay = Tool[Number, int](
    name="pay",
    description="Pays.",
    handler=_pay,
    examples=[ToolExample("Pay one", Number(1), 1)],
    idempotency=IdempotencyConfig(),
)

greeter = PromptTemplate[None](
    ns="tests",
    key="greeter",
    sections=[
        MarkdownSection[Who](title="Task", template="Greet ${name}.", tools=[add], policies=[ReadBeforeWritePolicy()])
    ],
)
plain = PromptTemplate[None](
    ns="tests", key="plain", sections=[MarkdownSection(title="Task", template="Hi.", tools=[note])]
)
two = PromptTemplate[None](
    ns="tests",
    key="two",
    sections=[
        MarkdownSection[Who](title="A", template="${name}"),
        MarkdownSection[Where](title="B", template="${town}"),
    ],
)
unsound = PromptTemplate[None](
    ns="tests", key="unsound", sections=[MarkdownSection(title="Task", template="", tools=[broken, moody, pay])]
)
reviewer = PromptTemplate[Review](
    ns="tests", key="reviewer", sections=[MarkdownSection(title="Task", template="Review.")]
)


class Greeter(MainLoop[Who, None]):
    def prepare(self, request: Who) -> tuple[Prompt[None], Session]:
        if request.name == "nobody":
            raise LookupError("there is nobody")
        return Prompt(greeter).bind(request), Session(bus=self.bus)


class Talker(MainLoop[str, None]):
    def prepare(self, request: str) -> tuple[Prompt[None], Session]:
        return Prompt(plain).bind(sections=[MarkdownSection(title="Said", template=request)]), Session(bus=self.bus)


SCRIPT = [[say("Let me see."), call("add", x=4)], say('{"verdict": "fine"}')]
NOT_AN_AGENT = 7
