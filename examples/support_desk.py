"""A support desk whose refunds happen once, even if asked twice: python examples/support_desk.py --model scripted"""

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from weakincentives.cli.models import make_adapter
from weakincentives.dbc import require
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import IdempotencyConfig, MainLoop, MainLoopConfig, Session, SqliteEffectLedger, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Ticket:
    number: int
    text: str


@dataclass(frozen=True)
class Order:
    id: str = field(metadata={"description": "The order, such as ord_7", "pattern": r"^ord_\d+$"})


@dataclass(frozen=True)
class Refund:
    order_id: str = field(metadata={"description": "The order, such as ord_7", "pattern": r"^ord_\d+$"})
    cents: int = field(metadata={"description": "How much to pay back", "ge": 1})


class Bank:
    """Stands for the payment provider: what was paid here is gone."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay_back(self, order_id: str, cents: int) -> str:
        self.paid.append((order_id, cents))
        return f"re_{len(self.paid)}"


def _look_up(params: Order) -> ToolResult[str]:
    return ToolResult.ok(f"{params.id}: 25.00 paid, delivered broken")


@require(lambda params: params.cents <= 10_000, "refunds over 100.00 need a person")
def _refund(params: Refund, *, context: ToolContext) -> ToolResult[str]:
    receipt = context.resources.get(Bank).pay_back(params.order_id, params.cents)
    return ToolResult.ok(receipt, message=f"Refunded {params.cents / 100:.2f} for {params.order_id}.")


look_up = Tool[Order, str](name="look_up_order", description="What is known of an order.", handler=_look_up)
refund = Tool[Refund, str](
    name="refund",
    description="Pay money back to the customer. Once per order.",
    handler=_refund,
    # One refund an order, in whichever ticket, thread, process or year.
    idempotency=IdempotencyConfig(strategy="custom", key_fn=lambda params: params.order_id, scope="refunds", ttl=None),
)

template = PromptTemplate[str](
    ns="examples",
    key="support-desk",
    sections=[
        MarkdownSection[Ticket](
            title="Ticket",
            template="""
            You answer customers of a shop. Look an order up before you refund it.

            Ticket ${number}: ${text}
            """,
            tools=[look_up, refund],
            policies=[SequentialDependencyPolicy(dependencies={"refund": frozenset({"look_up_order"})})],
        )
    ],
)


class SupportDesk(MainLoop[Ticket, str]):
    def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
        return Prompt(template).bind(request), Session(bus=self.bus, tags={"ticket": str(request.number)})


TICKETS = [
    Ticket(1, "My teapot ord_7 came in pieces. I want my 25.00 back."),
    Ticket(2, "Did you get my last message? Please refund ord_7!"),
    Ticket(3, "ord_7 again. Make it 90.00, for the trouble."),
]
SCRIPT = [
    [say("Refunding at once."), call("refund", order_id="ord_7", cents=2500)],  # refused: not looked up
    call("look_up_order", id="ord_7"),
    call("refund", order_id="ord_7", cents=2500),
    say("We are sorry. 25.00 are on their way."),
    [call("look_up_order", id="ord_7"), call("refund", order_id="ord_7", cents=2500)],  # replayed
    say("Your 25.00 were refunded already."),
    [call("look_up_order", id="ord_7"), call("refund", order_id="ord_7", cents=9000)],  # a conflict
    say("We have refunded 25.00 and cannot refund more."),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="scripted", help="scripted, openai:NAME, anthropic:NAME, litellm:NAME")
    model = parser.parse_args().model
    adapter = ScriptedAdapter(*SCRIPT) if model == "scripted" else make_adapter(model)
    bank = Bank()
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteEffectLedger(Path(folder, "effects.db"))
        config = MainLoopConfig(resources={Bank: bank}, effect_ledger=ledger)
        for result in SupportDesk(adapter=adapter, config=config).run(TICKETS, progress=False):
            print(f"ticket {result.request.number}: {result.request.text}")
            if result.session is not None:
                for event in result.session[ToolInvoked].all():
                    print(f"  {event.outcome:10} {event.tool_name}: {event.rendered_output.splitlines()[0]}")
            print(f"  -> {result.error if result.response is None else result.response.text}")
        ledger.close()
    print(f"paid by the bank: {bank.paid}")


if __name__ == "__main__":
    main()
