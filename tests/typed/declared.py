"""What a type checker knows of `Tool[P, R]`, `session[T]` and `resources.get(T)`; see test_typed.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, Resolver, ResourceContext, ResourceRegistry, Scope
from weakincentives.session import Append, Replace, Session, Slice, SliceOp, Vector, upsert_by
from weakincentives.testing import execute_tool


@dataclass(frozen=True)
class Booking:
    room: str


@dataclass(frozen=True)
class Receipt:
    number: int

    def render(self) -> str:
        return f"Number {self.number}"


class Numbers:
    def next(self) -> int:
        return 7


class Desk:
    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers


def book(params: Booking, *, context: ToolContext) -> ToolResult[Receipt]:
    """A handler: what it gets out of its context has the type that it asked for."""
    desk = context.resources.get(Desk)
    assert_type(desk, Desk)
    assert_type(context.resources.get(Numbers, None), Numbers | None)
    assert_type(context.session[Booking].latest(), Booking | None)
    return ToolResult.ok(Receipt(desk.numbers.next()))


def make_desk(resolver: Resolver) -> Desk:
    numbers = resolver.get(Numbers)
    assert_type(numbers, Numbers)
    return Desk(numbers)


def keep_newest(view: Vector[Booking], event: Receipt) -> SliceOp[Booking]:
    """A reducer: it sees items of its slice, and gives an operation on them."""
    newest = view.latest()
    assert_type(newest, Booking | None)
    return Replace(()) if newest is None else Append(newest)


def resources() -> None:
    """What `get` gives is of the type that it is asked for, with and without a default."""
    registry = ResourceRegistry.of(
        Binding(Desk, make_desk, scope=Scope.SINGLETON), Binding.instance(Numbers, Numbers())
    )
    with registry.open() as context:
        assert_type(context, ResourceContext)
        assert_type(context.get(Desk), Desk)
        assert_type(context.get(Receipt, 3), Receipt | int)
        with context.tool_scope() as scope:
            assert_type(scope.get(Desk), Desk)
    assert_type(registry.get(Numbers), Numbers)
    assert_type(registry.binding(Desk), Binding[Desk] | None)


def sessions() -> None:
    """A slice has the type of its items, and so has everything that is read from it."""
    session = Session()
    bookings = session[Booking]
    assert_type(bookings, Slice[Booking])
    bookings.register(Booking, upsert_by(lambda booking: booking.room))
    bookings.register(Receipt, keep_newest)
    session.dispatch(Booking("blue"))
    assert_type(bookings.latest(), Booking | None)
    assert_type(bookings.all(), Vector[Booking])
    assert_type(bookings.all()[0].room, str)
    assert [booking.room for booking in bookings.all()] == ["blue"]


def tools() -> None:
    """A tool knows the types of its handler, wherever it is put."""
    made = Tool[Booking, Receipt](name="book", description="Book a room.", handler=book)
    assert_type(made, Tool[Booking, Receipt])
    assert_type(made.params_type, type[Booking] | None)
    assert_type(made.replace(name="book_room"), Tool[Booking, Receipt])
    template = PromptTemplate[Receipt](ns="typed", key="desk", sections=[MarkdownSection(title="T", tools=[made])])
    assert_type(Prompt(template), Prompt[Receipt])
    reply = execute_tool(made, Booking("blue"), resources={Desk: Desk(Numbers())})
    assert reply.result.value == Receipt(7)


def main() -> None:
    """Every line is true at run time too."""
    resources()
    sessions()
    tools()
