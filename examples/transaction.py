"""A tool call is a transaction: what it says it failed to do, it has not half done."""

from dataclasses import dataclass

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session
from weakincentives.testing import execute_tool


@dataclass(frozen=True)
class Order:
    item: str
    count: int

    def render(self) -> str:
        return f"{self.count} x {self.item}"


def place_order(params: Order, *, context: ToolContext) -> ToolResult[Order]:
    context.session[Order].append(params)
    files = context.resources.get(Filesystem)
    files.write(f"orders/{params.item}.txt", str(params.count))
    if params.count > 10:
        return ToolResult.error("We have only 10 of these.\nOrder fewer.")
    return ToolResult.ok(params, message="Ordered.")


tool = Tool[Order, Order](name="place_order", description="Order something.", handler=place_order)
session, files = Session(), InMemoryFilesystem()

for arguments in ('{"item": "tea", "count": 2}', '{"item": "rice", "count": 50}', '{"item": "salt", "count": "3"}'):
    reply = execute_tool(tool, arguments, session=session, resources={Filesystem: files})
    print(f"{arguments}\n  -> {reply.outcome}: " + reply.text.replace("\n", "\n     "))

print("orders:", [order.item for order in session[Order].all()])
print("files: ", files.glob("orders/*"))
print("log:   ", [event.outcome for event in session[ToolInvoked].all()])
