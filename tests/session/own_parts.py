"""What the tests of undoing own writes share: a world whose one tool fails, slices, and a thread beside the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.world import Go, Note, World, make_tool

from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session
from weakincentives.session import reducer


@dataclass(frozen=True)
class Tick:
    by: str = ""


@dataclass(frozen=True)
class Calls:
    names: tuple[str, ...] = ()

    @reducer(on=ToolInvoked)
    def count(self, event: ToolInvoked) -> Calls:
        return Calls((*self.names, f"{event.tool_name} {event.outcome}"))


@dataclass(frozen=True)
class Line:
    text: str


def texts(session: Session) -> list[str]:
    return [note.text for note in session[Note].all()]


def failing(work: Callable[[ToolContext], object], session: Session | None = None) -> World:
    """A world whose one tool does this and then fails."""

    def act(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        work(context)
        return ToolResult.error("No.")

    return World(make_tool(act), session=session)


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def core_of(session: Session) -> Any:
    return getattr(session, "_core")  # noqa: B009 - what is noted is of no concern to users
