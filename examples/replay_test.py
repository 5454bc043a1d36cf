"""A run of yesterday as a test of today's program: no model, no key, no mock.

    python examples/replay_test.py

records a run with a scripted model and writes it to one file. Then it is replayed three times: with the same program,
with one that counts wrongly, and with a disk that is full in the middle of it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from weakincentives import MainLoop, Session
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.testing import ScriptedAdapter, call, replay, say


@dataclass(frozen=True)
class Order:
    item: str
    pieces: int


@dataclass(frozen=True)
class Mail:
    text: str


mails: list[str] = []


def order(params: Order, *, context: ToolContext) -> ToolResult[Order]:
    """Only changes state and files, so a replay runs it."""
    assert context.filesystem is not None
    context.session[Order].append(params)
    context.filesystem.write(f"orders/{params.item}.txt", f"{params.pieces}\n")
    return ToolResult.ok(params, message=f"{params.pieces} of {params.item} are ordered.")


def miscounting_order(params: Order, *, context: ToolContext) -> ToolResult[Order]:
    """What became of it."""
    return order(Order(params.item, params.pieces + 1), context=context)


def send_mail(params: Mail) -> ToolResult[None]:
    """Reaches the world outside, so a replay answers it from the record."""
    mails.append(params.text)
    return ToolResult.ok(None, message="Sent.")


class Shop(MainLoop[str, str]):
    """Orders what it is asked for."""

    handler = staticmethod(order)

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        closed = ToolAnnotations(open_world=False)
        tools = [
            Tool[Order, Order](name="order", description="Order it.", handler=self.handler, annotations=closed),
            Tool[Mail, None](name="send_mail", description="Mail the customer.", handler=send_mail),
        ]
        task = MarkdownSection(title="Task", template=f"The customer wants {request}.", tools=tools)
        files = VfsToolsSection(config=VfsConfig(files={"stock.txt": "tea\n"}))
        return Prompt(name="shop", sections=[task, files]), Session(bus=self.bus)


class MiscountingShop(Shop):
    """The same program, with a mistake in it."""

    handler = staticmethod(miscounting_order)


def record(folder: Path) -> Path:
    """One run as one file, such as `tests/runs/tea.wink`."""
    script = [call("order", item="tea", pieces=2), call("send_mail", text="Two of tea are on their way."), say("Done.")]
    with SqliteRunStore(folder / "runs.db") as store:
        Shop(ScriptedAdapter(*script), config=MainLoopConfig(runs=store)).execute("two of tea", run_id="tea")
        return export_run(store, "tea", folder / "tea.wink")


def main() -> None:
    """Record, then replay."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder))
        print("--- the same program")
        print(replay(recorded, Shop))
        print("--- one that counts wrongly")
        print(replay(recorded, MiscountingShop))
        print("--- a full disk")
        result = replay(recorded, Shop, faults={4: OSError("no space left on device")})
        assert result.filesystem is not None
        print(result.call(4).outcome, result.session[Order].count(), result.filesystem.glob("orders/*"))
    print(f"--- mails sent: {len(mails)}")


if __name__ == "__main__":
    main()
