"""An editor hands work to a researcher and a writer; what a writer did that came to no end is undone with its call."""

from dataclasses import dataclass

from weakincentives import Budget, Session
from weakincentives.adapters import CallFinished, subagent
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ToolAnnotations,
    ToolContext,
    ToolInvoked,
    ToolResult,
    tool,
)
from weakincentives.session import append_all
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Topic:
    topic: str


@dataclass(frozen=True)
class Facts:
    topic: str
    facts: list[str]

    def render(self) -> str:
        return f"About {self.topic}: {' '.join(self.facts)}"


@dataclass(frozen=True)
class WriteFile:
    path: str
    text: str


@dataclass(frozen=True)
class ReadFile:
    path: str


@tool(annotations=ToolAnnotations(read_only=True))
def read_file(params: ReadFile, *, context: ToolContext) -> ToolResult[str]:
    """Read a file."""
    return ToolResult.ok(context.resources.get(Filesystem).read(params.path))


@tool(annotations=ToolAnnotations(open_world=False))
def write_file(params: WriteFile, *, context: ToolContext) -> ToolResult[str]:
    """Write a file."""
    context.resources.get(Filesystem).write(params.path, params.text)
    return ToolResult.ok(params.path, message="Written:")


research = subagent(
    name="research",
    description="Find out about a topic.",
    prompt=PromptTemplate[Facts](
        ns="book",
        key="research",
        sections=[MarkdownSection[Topic](title="Task", template="Find facts about ${topic}.", tools=[read_file])],
    ),
    params=Topic,
    read_only=True,
)
write = subagent(
    name="write_chapter",
    description="Have a chapter written.",
    prompt=PromptTemplate(
        ns="book",
        key="write",
        sections=[MarkdownSection[Topic](title="Task", template="Write about ${topic}.", tools=[write_file])],
    ),
    params=Topic,
    budget=Budget(max_total_tokens=50_000),
    max_turns=3,
)
editor = Prompt(
    PromptTemplate(
        ns="book",
        key="edit",
        sections=[MarkdownSection(title="Task", template="Make a book about pets.", tools=[research, write])],
    )
)
model = ScriptedAdapter(
    call("research", topic="cats"),
    call("read_file", path="notes.txt"),
    say('{"topic": "cats", "facts": ["Cats sleep."]}'),
    call("write_chapter", topic="cats"),
    call("write_file", path="cats.md", text="Cats sleep."),
    say("The chapter is in cats.md."),
    call("write_chapter", topic="dogs"),
    call("write_file", path="dogs.md", text="Dogs"),
    call("write_file", path="dogs.md", text="Dogs ..."),
    call("write_file", path="dogs.md", text="Dogs ... ?"),
    say("One chapter is done. The one about dogs came to no end."),
)


def show(event: object) -> None:
    """The calls as they end, indented below the call that they are in."""
    if isinstance(event, CallFinished):
        print(f"{'    ' * len(event.path)}{event.tool_name}: {event.text.splitlines()[0]}")


session, files = Session(), InMemoryFilesystem()
files.write("notes.txt", "Cats sleep.")
session[Facts].register(Facts, append_all)
response = model.evaluate(editor.bind(resources={Filesystem: files}), session, on_event=show)

print(response.text)
print("facts:", [facts.facts for facts in session[Facts].all()])
print("files:", files.glob("*"))
for event in session[ToolInvoked].all():
    undone = f", undid {len(event.undone_calls)} calls" if event.undone_calls else ""
    print(f"log: {event.prompt_name}.{event.tool_name} {event.outcome}{undone}")
