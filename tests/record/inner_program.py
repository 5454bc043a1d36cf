"""The program that test_inner_effects kills: `inner_program.py WHERE CALL...`, in the current directory.

Its model wants these calls in one turn. Each is of a tool that only reads, and whose handler asks another agent, which
sends a mail. `kill` in WHERE ends the process there: `last` when all mails are sent, `first` when one call has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weakincentives import Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest
from weakincentives.errors import VisibilityExpansionRequired
from weakincentives.prompt import MarkdownSection, Prompt, SectionVisibility, Tool, ToolAnnotations, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say

HERE = Path()
SENT = HERE / "sent.txt"


@dataclass(frozen=True)
class Item:
    name: str


def sent() -> list[str]:
    return SENT.read_text().split() if SENT.exists() else []


def wait_for(count: int) -> None:
    wait_until(lambda: len(sent()) >= count)


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not done() and time.monotonic() < until:
        time.sleep(0.002)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)


def prompt_of(where: str, names: list[str]) -> Prompt[Any]:
    mails = [name for name in names if name.startswith("mail")]
    answered: list[str] = []

    def mail(params: Item) -> ToolResult[Any]:
        with SENT.open("a") as file:
            file.write(f"{params.name}\n")
        return ToolResult.ok(None, "Sent.")

    def ask(params: Item) -> ToolResult[Any]:
        if params.name in {"slow", "opens"} and where != "nowhere":
            time.sleep(30)  # until the process is killed
        if params.name in {"open", "opens"}:
            wait_for(len(mails))
            raise VisibilityExpansionRequired("Opened.", section_keys=("more",))
        if params.name in mails:
            tool = Tool[Item, Any](name="mail", description="Mail.", handler=mail)
            task = MarkdownSection(title="T", template="x", tools=[tool])
            ScriptedAdapter(call("mail", name=params.name), say("ok")).evaluate(
                Prompt(name="inner", sections=[task]), Session()
            )
            if where == "last" and params.name == mails[-1]:
                wait_for(len(mails))
                kill()
            if where == "first":
                # One that opened is on record then; one that answered waits until the others have read.
                wait_for(len(mails))
                with SqliteRunStore(HERE / "runs.db") as store:
                    wait_until(lambda: bool(answered) or any(step.kind == "call" for step in store.steps("run")))
                kill()
            time.sleep(30)  # until the process is killed
        time.sleep(0.05)  # calls of a tool that is known to be quick would not overlap
        answered.append(params.name)
        return ToolResult.ok(None, f"Asked {params.name}.")

    tool = Tool[Item, Any](
        name="ask", description="Ask.", handler=ask, annotations=ToolAnnotations(read_only=True, open_world=False)
    )
    more = MarkdownSection(
        title="More", key="more", template="Much.", summary="Little.", visibility=SectionVisibility.SUMMARY
    )
    return Prompt(name="outer", sections=[MarkdownSection(title="Task", template="x", tools=[tool]), more])


def main(where: str, *names: str) -> None:
    session = Session()
    asked = [call("ask", name=name) for name in names]

    def turn(request: ModelRequest) -> Any:
        return say("done") if any(isinstance(one, ModelMessage) for one in request.messages) else asked

    with SqliteRunStore(HERE / "runs.db") as store:
        model = ScriptedAdapter(turn, turn, turn)
        model.evaluate(prompt_of(where, [*names]), session, record=store.run("run"))
        problems = list(store.verify())
    ended = [[event.call_id, event.outcome] for event in session[ToolInvoked].all()]
    print(json.dumps({"ended": ended, "sent": sent(), "problems": problems}))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(*sys.argv[1:])
