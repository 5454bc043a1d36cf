"""What a type checker knows of `@tool`; checked by basedpyright and mypy, run by test_typed.py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from weakincentives.prompt import MarkdownSection, Tool, ToolContext, ToolResult, tool


@dataclass(frozen=True)
class Query:
    text: str


@tool
def add(left: int, right: int = 1) -> int:
    """Add."""
    return left + right


@tool(name="tell")
async def tell(name: str, *, context: ToolContext) -> ToolResult[str]:
    """Tell."""
    return ToolResult.ok(name)


@tool
def find(params: Query, *, context: ToolContext) -> ToolResult[list[str]]:
    """Find."""
    return ToolResult.ok([params.text])


@tool(timeout=2)
async def count(params: Query) -> int:
    """Count."""
    return len(params.text)


@tool
def book(query: Query, days: int) -> bool:
    """Book."""
    return days > len(query.text)


@tool
def ping() -> None:
    """Ping."""


def takes_numbers(made: Tool[Any, int]) -> None:
    assert made.name


def takes_queries(made: Tool[Query, list[str]]) -> None:
    assert_type(made.params_type, type[Query] | None)


async def awaited() -> None:
    assert_type(await count(params=Query("x")), int)
    assert_type(await tell("x", context=ToolContext()), ToolResult[str])


def main() -> None:
    """Every line is true at run time too."""
    assert_type(add(1, right=2), int)
    assert_type(find(Query("x"), context=ToolContext()), ToolResult[list[str]])
    assert_type(book(Query("x"), days=2), bool)
    asyncio.run(awaited())
    assert_type(find.params_type, type[Query] | None)
    assert_type(count.parse("{}" if count.params_type is None else '{"text": "x"}'), Query)
    takes_numbers(add)
    takes_numbers(count)
    takes_queries(find)
    MarkdownSection(title="Tools", tools=[add, tell, find, count, book, ping])


def wrong() -> None:
    """Never called: each line is an error that both type checkers see."""
    add("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    find(Query("x"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    takes_numbers(find)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    takes_queries(book)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
