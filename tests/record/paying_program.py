"""The program of test_inner_effects whose process ends while a payment is made, in the current directory.

`paying_program.py`: one line of JSON for each way to make it, with what became of the call and how often it was paid.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from weakincentives import Session, ToolInvoked
from weakincentives.prompt import IdempotencyConfig, MarkdownSection, Prompt, Tool, ToolAnnotations, ToolResult
from weakincentives.runtime import EffectLedger, SqliteEffectLedger, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say

LEASE = timedelta(milliseconds=100)  # of the process that ended
SESSION, SHOP = IdempotencyConfig(lease=LEASE), IdempotencyConfig(scope="shop", lease=LEASE)
READS = ToolAnnotations(read_only=True, open_world=False)
WRITES = ToolAnnotations(open_world=False)

Ledger = Callable[[Path], Any]
WAYS: dict[str, tuple[IdempotencyConfig, Ledger | None, ToolAnnotations | None]] = {
    "no ledger": (SESSION, None, None),
    "ledger in memory": (SHOP, lambda here: EffectLedger(), None),
    "no key": (IdempotencyConfig(strategy="none", lease=LEASE), SqliteEffectLedger, None),
    "ledger": (SESSION, SqliteEffectLedger, None),
    "inside, no ledger": (SESSION, None, WRITES),
    "inside, key of its session": (SESSION, SqliteEffectLedger, WRITES),
    "inside a reader, key of its session": (SESSION, SqliteEffectLedger, READS),
    "inside a reader, key of the shop": (SHOP, SqliteEffectLedger, READS),
}


@dataclass(frozen=True)
class Item:
    name: str


def run(here: Path, way: str, *, ends: bool) -> list[str]:
    """The outcomes of the run's calls, where the process does not end."""
    config, ledger, around = WAYS[way]

    def pay(params: Item) -> ToolResult[Any]:
        with (here / "paid.txt").open("a") as file:
            file.write(f"{params.name}\n")
        if ends:
            os._exit(9)
        return ToolResult.ok(None, "Paid.")

    def ask(params: Item) -> ToolResult[Any]:
        adapter = ScriptedAdapter(call("pay", name=params.name), say("ok"))
        return ToolResult.ok(None, adapter.evaluate(prompt("inner", paying), Session(), **options).text)

    def prompt(name: str, tool: Tool[Any, Any]) -> Prompt[Any]:
        return Prompt(name=name, sections=[MarkdownSection(title="Task", template="x", tools=[tool])])

    options = {} if ledger is None else {"effect_ledger": ledger(here / "ledger.db")}
    paying = Tool[Item, Any](name="pay", description="Pay.", handler=pay, idempotency=config)
    tool = paying
    if around is not None:
        tool = Tool[Item, Any](name="ask", description="Ask.", handler=ask, annotations=around)

    def turn(request: Any) -> Any:
        return say("done") if len(request.messages) > 1 else call(tool.name, name="rent")

    session = Session()
    with SqliteRunStore(here / "runs.db") as store:
        model = ScriptedAdapter(turn, turn)
        model.evaluate(prompt("outer", tool), session, record=store.run("r"), **options)
    return [event.outcome for event in session[ToolInvoked].all()]


def main() -> None:
    for way in WAYS:
        here = Path(way)
        here.mkdir()
        child = os.fork()
        if child == 0:
            run(here, way, ends=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        outcomes = run(here, way, ends=False)
        paid = (here / "paid.txt").read_text().split()
        print(json.dumps([way, os.waitstatus_to_exitcode(status), outcomes, paid]), flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
