"""A refund that happens once, although its process is killed in the middle of it.

    python examples/exactly_once.py

starts itself three times on one ledger. The first process sends the money and is killed before it can say so. The
second has no way to find out: it reports the outcome as unknown and does not repeat it. The third can ask the bank:
it finds the refund, and answers with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.runtime import IdempotencyConfig, Session, SqliteEffectLedger, ToolCall
from weakincentives.runtime.executor import ToolExecutor

LEASE = timedelta(seconds=0.5)  # short, so that you need not wait; a minute is usual


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int


@dataclass(frozen=True)
class Receipt:
    line: str

    def render(self) -> str:
        return f"The bank says: {self.line}"


class Bank:
    """Outside of everything: a file with one line for each refund that was paid."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pay(self, refund: Refund, key: str | None) -> Receipt:
        line = f"{refund.order} {refund.cents} {key}"
        with self.path.open("a") as file:
            file.write(f"{line}\n")
        return Receipt(line)

    def find(self, refund: Refund, key: str | None) -> Receipt | None:
        line = f"{refund.order} {refund.cents} {key}"
        paid = self.path.read_text().splitlines() if self.path.exists() else []
        return Receipt(line) if line in paid else None


def refund_tool(bank: Bank, mode: str) -> Tool[Refund, Receipt]:
    def refund(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        receipt = bank.pay(params, context.idempotency_key)
        if mode == "killed":
            print("paid, and killed before it could be recorded", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return ToolResult.ok(receipt, message="Refunded.")

    def ask_the_bank(params: Refund, *, context: ToolContext) -> ToolResult[Receipt] | None:
        receipt = bank.find(params, context.idempotency_key)
        return None if receipt is None else ToolResult.ok(receipt, message="Refunded earlier.")

    config = IdempotencyConfig(scope="shop", lease=LEASE, reconcile=ask_the_bank if mode == "asking" else None)
    return Tool[Refund, Receipt](name="refund", description="Refund an order.", handler=refund, idempotency=config)


def one_process(home: Path, mode: str) -> None:
    """What each process does: the model asks for the same refund."""
    tool = refund_tool(Bank(home / "bank.txt"), mode)
    section = MarkdownSection(title="Shop", template="Help customers.", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="examples", key="exactly-once", sections=[section]))
    with (
        SqliteEffectLedger(home / "ledger.db") as ledger,
        ToolExecutor(prompt=prompt, session=Session(), effect_ledger=ledger) as executor,
    ):
        reply = executor.execute(ToolCall("call_1", "refund", '{"order": "A-7", "cents": 1999}'))
    print(f"{reply.outcome}: {reply.text}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for mode in ("killed", "careful", "asking"):
            print(f"--- {mode}", flush=True)
            subprocess.run([sys.executable, __file__, name, mode], check=False)
            time.sleep(LEASE.total_seconds() * 1.2)  # the killed process's lease runs out
        paid = (home / "bank.txt").read_text().splitlines()
    print(f"--- the bank paid {len(paid)} time: {paid[0].rpartition(' ')[0]}")
    assert len(paid) == 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one_process(Path(sys.argv[1]), sys.argv[2])
    else:
        main()
