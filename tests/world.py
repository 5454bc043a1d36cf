"""A small world for calls: a session, files, a counter that can be restored, and tools that change all three."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolPolicy,
    ToolResult,
)
from weakincentives.resources import Binding
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor

BEFORE = {"kept.txt": b"before", "old/deep.txt": b"deep"}
UNDONE = "Rolled back: 2 files and the Note state. Nothing was changed."


@dataclass(frozen=True)
class Note:
    """A STATE slice."""

    text: str


@dataclass(frozen=True)
class Go:
    """What the tools take."""

    how: str = ""
    number: int = 0


class Counter:
    """A resource whose state can be restored."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.alive = 0

    def snapshot(self) -> int:
        self.alive += 1
        return self.value

    def restore(self, snapshot: int, /) -> None:
        self.value = snapshot

    def release(self, snapshot: int, /) -> None:
        self.alive -= 1


Handler = Callable[..., Any]


def change(context: ToolContext) -> None:
    """Touch everything a call may touch."""
    context.session[Note].append(Note("during"))
    files = context.filesystem
    assert files is not None
    files.write("kept.txt", "during")
    files.write("new.txt", "new")
    context.resources.get(Counter).value += 1


def make_tool(handler: Handler | None, name: str = "act", **options: Any) -> Tool[Go, Any]:
    return Tool[Go, Any](name=name, description="Does something.", handler=handler, **options)


def pictures(files: Filesystem) -> dict[str, Any]:
    """Every path with its bytes; directories have None."""
    return {path: files.read_bytes(path) if files.stat(path).kind == "file" else None for path in files.glob("**")}


class World:
    """One session, its files and its counter, and an executor over the given tools."""

    def __init__(
        self,
        *tools: Tool[Any, Any],
        policies: Sequence[ToolPolicy] = (),
        session: Session | None = None,
        files: Filesystem | None = None,
        resources: Mapping[Any, object] | None = None,
        **options: Any,
    ) -> None:
        self.session = Session() if session is None else session
        self.session[Note].seed(Note("before"))
        self.files = InMemoryFilesystem(BEFORE) if files is None else files
        self.counter = Counter(7)
        self.heard: list[ToolInvoked] = []
        self.session.dispatcher.subscribe(ToolInvoked, self.heard.append)
        section = MarkdownSection(title="Act", template="", tools=tools, policies=tuple(policies))
        prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="world", name="world", sections=[section]))
        bound = {Filesystem: self.files, Counter: self.counter, **(resources or {})}
        self.executor = ToolExecutor(prompt=prompt.bind(resources=bound), session=self.session, **options)
        self._ids = itertools.count(1)

    def call(self, name: str = "act", arguments: Any = None, call_id: str | None = None) -> ToolReply:
        """One call with a new id."""
        return self.executor.execute(self.next_call(name, arguments, call_id))

    async def acall(self, name: str = "act", arguments: Any = None) -> ToolReply:
        """One call from a task."""
        return await self.executor.aexecute(self.next_call(name, arguments))

    def next_call(self, name: str = "act", arguments: Any = None, call_id: str | None = None) -> ToolCall:
        return ToolCall(f"call-{next(self._ids)}" if call_id is None else call_id, name, arguments)

    @property
    def events(self) -> tuple[ToolInvoked, ...]:
        return tuple(self.session[ToolInvoked].all())

    def picture(self) -> tuple[Any, ...]:
        """Everything that a call which did not succeed must leave as it was."""
        return tuple(self.session[Note].all()), pictures(self.files), self.counter.value


def ok(text: str = "done") -> ToolResult[Any]:
    return ToolResult(text, None)


def fine(params: Go) -> ToolResult[Any]:
    """A handler that has nothing to do."""
    return ok()


def binding(resource_type: type[Any], made: Callable[[], object], **options: Any) -> dict[Any, object]:
    """`resources=` with one provider."""
    return {resource_type: Binding(resource_type, lambda _: made(), **options)}


def outcomes(events: Iterable[ToolInvoked]) -> list[str]:
    return [event.outcome for event in events]
